"""The grid of matrix products: projections of language models, squares, skinny and unaligned ones, with what is done before and after them.

    python -m benchmarks.gemms --device cuda --part bfloat16     # one number format; without --part all of them
    python -m benchmarks.gemms --device cuda --only 4096x14336   # rows whose name holds the text
    python -m benchmarks.gemms --device cuda --tuned             # with max_autotune as well

In: nothing but a GPU. Out: a line for each row with the device's microseconds, caches cold: the library's product alone, eager with all of the row, the default
choice, and with ``--tuned`` that of ``max_autotune``; after each how often the library's product alone fits in (more is better), ``*`` where that is below
0.95, and whether a kernel of our own computes the product. Then the geometric means. ``--peer`` adds torch.compile, ``--deadline`` stops between rows. All programs of a part are
compiled before the first one is timed, and what is to be measured for them is measured together. The library's product of int8 weights is that of weights that were converted
before.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor import compile_graph, decompositions
from flambeau_runtime import Artifact, load

from .clock import cold_seconds
from .engines import compiled
from .surroundings import Record, command_of, provenance

FORMATS = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "tf32": torch.float32,
    "float32": torch.float32,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.bfloat16,
}
#: Below this part of the speed of the library's product alone a row misses the bar.
BAR = 0.95
#: The largest error relative to the result's size: roundings of the format, of what feeds the product as well.
_TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "float16": 5e-3, "fp8": 4e-2}
_FP8_MOST = 448.0
Function = Callable[..., Tensor]
Sizes = tuple[int, int, int]


@frozen
class Row:
    """``m`` rows times a weight of (n, k), in one of ``FORMATS``; ``around``: what comes before and after, one of ``_AROUND``."""

    part: str
    sizes: Sizes
    around: str = "alone"

    @property
    def name(self) -> str:
        """In the table."""
        return f"{self.part} {'x'.join(map(str, self.sizes))} {self.around}"


# -- what is around a product: (operands, the program) --------------------------------------------------------------------


def _alone(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.t()


def _bias(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w, b)


def _bias_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b))


def _bias_gelu_tanh(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def _silu(x: Tensor, w: Tensor) -> Tensor:
    return F.silu(x @ w.t())


def _residual(x: Tensor, w: Tensor, r: Tensor) -> Tensor:
    return r + x @ w.t()


def _gated(x: Tensor, w: Tensor, a: Tensor) -> Tensor:
    return (F.silu(a) * x) @ w.t()


def _normed(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return (normed.to(x.dtype) * s) @ w.t()


def _quantised(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w.t()).float() * 2.0).clamp(-_FP8_MOST, _FP8_MOST).to(torch.float8_e4m3fn)


def _int8(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return (x @ w.to(x.dtype).t()) * s


def _int8_silu(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return F.silu(_int8(x, w, s))


def _fp8(x: Tensor, w: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch._scaled_mm(x, w.t(), one, other, out_dtype=torch.bfloat16)


def _fp8_bias_gelu(x: Tensor, w: Tensor, one: Tensor, other: Tensor, b: Tensor) -> Tensor:
    return F.gelu(torch._scaled_mm(x, w.t(), one, other, bias=b, out_dtype=torch.bfloat16))


def _fp8_dynamic(x: Tensor, w: Tensor, other: Tensor) -> Tensor:
    """Rows of 16-bit numbers that are quantised first, each with a scale of its own."""
    most = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / _FP8_MOST
    eighth = (x.float() / most).clamp(-_FP8_MOST, _FP8_MOST).to(torch.float8_e4m3fn)
    return torch._scaled_mm(eighth, w.t(), most, other, out_dtype=torch.bfloat16)


#: Name -> the program, and its operands beside both of the product: n and m stand for sizes, 1 for a number.
_AROUND: dict[str, tuple[Function, tuple[str, ...]]] = {
    "alone": (_alone, ()),
    "bias": (_bias, ("n",)),
    "bias_gelu": (_bias_gelu, ("n",)),
    "bias_gelu_tanh": (_bias_gelu_tanh, ("n",)),
    "silu": (_silu, ()),
    "residual": (_residual, ("mn",)),
    "gated": (_gated, ("mk",)),
    "normed": (_normed, ("k",)),
    "quantised": (_quantised, ()),
    "int8": (_int8, ("n",)),
    "int8_silu": (_int8_silu, ("n",)),
    "fp8": (_fp8, ("scale", "scale")),
    "fp8_rows": (_fp8, ("scale_m", "scale_n")),
    "fp8_bias_gelu": (_fp8_bias_gelu, ("scale", "scale", "n")),
    "fp8_dynamic": (_fp8_dynamic, ("scale_n",)),
}
#: Those that make an operand of the product first.
_BEFORE = ("gated", "normed", "fp8_dynamic")
#: Columns and terms of the projections of a model of 8 and of 7 billion parameters, and of a smaller one.
QKV, OUT, UP, DOWN, SMALL_UP = (6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (3072, 768)


def _grid() -> Iterator[Row]:
    """All rows."""
    for m, weight, around in (
        (1, QKV, "alone"), (1, UP, "silu"), (1, DOWN, "gated"), (1, OUT, "residual"), (16, UP, "silu"), (16, DOWN, "gated"), (16, QKV, "bias"),
        (64, UP, "silu"), (64, DOWN, "residual"), (64, QKV, "normed"), (256, UP, "silu"), (256, OUT, "residual"),
        (1024, UP, "silu"), (1024, SMALL_UP, "bias_gelu"), (1024, OUT, "residual"), (8192, UP, "silu"), (8192, OUT, "residual"),
        (8192, DOWN, "gated"), (8192, SMALL_UP, "bias_gelu_tanh"), (8192, OUT, "alone"), (8192, QKV, "normed"), (2048, OUT, "quantised"),
        (1024, (1024, 1024), "bias_gelu"), (2048, (2048, 2048), "bias_gelu"), (4096, (4096, 4096), "silu"), (8192, (8192, 8192), "silu"),
        (8192, (64, 4096), "silu"), (64, (8192, 8192), "bias"), (8192, (8192, 64), "silu"), (64, (64, 16384), "bias"),
        (1000, (1001, 1003), "bias_gelu"), (4095, (4095, 4095), "silu"), (1024, (50257, 768), "alone"), (4096, (4097, 4096), "bias"),
    ):  # fmt: skip
        yield Row("bfloat16", (m, *weight), around)
    for m, weight, around in (
        (1, UP, "silu"), (16, OUT, "bias_gelu"), (256, DOWN, "gated"), (2048, SMALL_UP, "bias_gelu"), (4096, OUT, "residual"),
        (8192, (4096, 1024), "bias_gelu_tanh"), (3000, (3001, 3002), "silu"), (1024, (32000, 4096), "alone"),
    ):  # fmt: skip
        yield Row("float16", (m, *weight), around)
    for m, weight, around in (
        (1, OUT, "silu"), (16, SMALL_UP, "bias_gelu"), (256, OUT, "residual"), (1024, SMALL_UP, "bias_gelu"), (8192, SMALL_UP, "bias_gelu"),
        (4096, OUT, "silu"), (8192, (768, 3072), "residual"), (2048, (2048, 2048), "bias_gelu"), (1001, (1003, 1002), "bias"), (1024, (50257, 768), "alone"),
    ):  # fmt: skip
        yield Row("tf32", (m, *weight), around)
    for m, weight, around in ((1, OUT, "silu"), (128, SMALL_UP, "bias_gelu"), (1024, OUT, "silu")):
        yield Row("float32", (m, *weight), around)
    for m, weight, around in (
        (1, UP, "fp8"), (16, UP, "fp8_rows"), (16, DOWN, "fp8_dynamic"), (256, OUT, "fp8_bias_gelu"), (1024, UP, "fp8_dynamic"), (1024, OUT, "fp8_rows"),
        (4096, OUT, "fp8"), (8192, UP, "fp8_bias_gelu"), (8192, OUT, "fp8_rows"), (8192, DOWN, "fp8_dynamic"),
    ):  # fmt: skip
        yield Row("fp8", (m, *weight), around)
    for m, weight, around in (
        (1, UP, "int8_silu"), (1, OUT, "int8"), (4, DOWN, "int8"), (16, UP, "int8_silu"), (16, OUT, "int8"), (64, OUT, "int8"), (64, UP, "int8_silu"),
        (256, OUT, "int8"), (1024, UP, "int8_silu"), (8192, OUT, "int8"),
    ):  # fmt: skip
        yield Row("int8", (m, *weight), around)


GRID = tuple(_grid())


# -- operands and programs ------------------------------------------------------------------------------------------------


def _operands(row: Row, device: str) -> tuple[Function, tuple[Tensor, ...]]:
    """The program of a row, and what it is called with; a weight is stored as (n, k)."""
    dtype, (m, n, k) = FORMATS[row.part], row.sizes
    function, others = _AROUND[row.around]
    wide = torch.bfloat16 if row.part == "fp8" else dtype
    sizes = {"n": (n,), "k": (k,), "mn": (m, n), "mk": (m, k), "scale": (), "scale_m": (m, 1), "scale_n": (1, n)}

    def make(size: Sequence[int], wanted: torch.dtype, factor: float = 1.0) -> Tensor:
        if wanted is torch.int8:
            return torch.randint(-127, 128, tuple(size), dtype=wanted, device=device)
        return (torch.randn(tuple(size), device=device) * factor).to(wanted)

    left = make((m, k), wide if row.around == "fp8_dynamic" else dtype)
    right = make((n, k), torch.int8 if row.part == "int8" else dtype, 1.0 if row.part == "fp8" else k**-0.5)
    rest = [
        torch.rand(sizes[name], device=device) + 0.5 if name.startswith("scale") else make(sizes[name], wide)
        for name in others
    ]
    return function, (left, right, *rest)


def _library(row: Row, operands: Sequence[Tensor]) -> Callable[[], Tensor]:
    """The library's product alone."""
    left, right = operands[:2]
    if row.part == "fp8":
        one = torch.ones((), device=left.device)
        eighth = left.to(torch.float8_e4m3fn)
        if "rows" in row.around or "dynamic" in row.around:
            _, n, _ = row.sizes
            one = torch.ones((row.sizes[0], 1), device=left.device)
            other = torch.ones((1, n), device=left.device)
            return lambda: torch._scaled_mm(eighth, right.t(), one, other, out_dtype=torch.bfloat16)
        return lambda: torch._scaled_mm(eighth, right.t(), one, one, out_dtype=torch.bfloat16)
    weight = right.to(left.dtype)
    return lambda: left @ weight.t()


def _traced(function: Callable[..., Any], fakes: Sequence[Tensor], options: dict[str, Any]) -> Artifact:
    table = {op: rule for op, rule in decompositions().items() if rule is not None}
    gm = make_fx(function, decomposition_table=table, _allow_non_fake_inputs=True)(*fakes)
    return compile_graph(gm, fakes, options)


def _is_ours(artifact: Artifact) -> bool:
    return any("gemm" in kernel.entry for kernel in artifact.kernels)


def _error(found: Tensor, wanted: Tensor) -> float:
    size = torch.linalg.vector_norm(wanted.double())
    return float(torch.linalg.vector_norm(found.double() - wanted.double()) / size.clamp(min=1e-30))


# -- the run --------------------------------------------------------------------------------------------------------------


def _compile(rows: Sequence[Row], device: str, tuned: bool) -> dict[Row, list[Callable[..., Any] | str]]:
    """The programs of all rows, default and tuned, or why there is none: all kernels are being compiled when this returns."""
    with FakeTensorMode():
        operands = {row: _operands(row, device) for row in rows}
    options = [{"autotune_local_cache": False}, *([{"max_autotune": True}] if tuned else [])]
    if tuned:
        _measure_together([operands[row] for row in rows])
    found: dict[Row, list[Callable[..., Any] | str]] = {row: [] for row in rows}
    for given in options:
        for row in rows:
            function, tensors = operands[row]
            try:
                artifact = _traced(function, tensors, given)
                found[row].append(_Program(load(artifact), _is_ours(artifact)))
            except Exception as error:
                found[row].append(f"{type(error).__name__}: {error}"[:120])
    return found


@frozen(eq=False)
class _Program:
    """A loaded program, and whether it computes the product in a kernel of our own."""

    call: Callable[..., Any]
    is_ours: bool

    def __call__(self, *operands: Tensor) -> Tensor:
        (result,) = self.call(*operands)
        return result


def _measure_together(rows: Sequence[tuple[Function, tuple[Tensor, ...]]]) -> None:
    """Measure what will be asked about any row: in one program of all, whose candidates are compiled side by side."""
    flat = [operand for _, operands in rows for operand in operands]

    def every(*operands: Tensor) -> list[Tensor]:
        left = iter(operands)
        return [function(*(next(left) for _ in each)) for function, each in rows]

    _traced(every, flat, {"max_autotune_gemm": True})


def _line(row: Row, device: str, programs: Sequence[Callable[..., Any] | str], peer: bool) -> dict[str, Any]:
    """The figures of a row, in seconds."""
    torch.manual_seed(0)
    function, operands = _operands(row, device)
    library = _library(row, operands)
    wanted = function(*operands)
    ways: dict[str, Callable[[], Any]] = {"library": library, "eager": lambda: function(*operands)}
    record: dict[str, Any] = {"name": row.name}
    named = dict(zip(("default", "tuned"), programs))
    if peer:
        named["peer"] = compiled("torch.compile", function)
    for name, program in named.items():
        if isinstance(program, str):
            record[f"{name}_error"] = program
            continue
        try:
            error = _error(program(*operands), wanted)
        except Exception as raised:
            record[f"{name}_error"] = f"{type(raised).__name__}: {raised}"[:120]
            continue
        if not error <= _TOLERANCE.get(row.part, 2e-2):
            record[f"{name}_error"] = f"differs from eager by {error:.1e}"
        record[f"{name}_ours"] = getattr(program, "is_ours", False)
        ways[name] = lambda program=program: program(*operands)
    return record | dict(zip(ways, cold_seconds(list(ways.values()), device)))


#: What a row's figures are called in the tables of results.
_ENGINES = {
    "library": "library",
    "eager": "eager",
    "default": "flambeau",
    "tuned": "flambeau/max-autotune",
    "peer": "torch.compile",
}


def _kept(record: dict[str, Any]) -> Iterator[Record]:
    """A row as records of a run, one for each way."""
    run = provenance(Path(__file__).resolve().parent)
    run["command"] = command_of("benchmarks.gemms", sys.argv[1:])
    for way, engine in _ENGINES.items():
        base = {"experiment": "gemms", "workload": record["name"], "engine": engine, **run}
        if f"{way}_error" in record:
            yield {**base, "error": record[f"{way}_error"]}
        elif way in record:
            yield {**base, "device_seconds": record[way]}


def _shown(record: dict[str, Any]) -> str:
    library = record["library"]
    words = [f"{record['name']:44} {library * 1e6:8.1f} {record['eager'] * 1e6:8.1f}"]
    for way in ("default", "tuned", "peer"):
        if way in record:
            ratio = library / record[way]
            mark = ("*" if ratio < BAR else " ") + ("own" if record.get(f"{way}_ours") else "   ")
            words.append(f"{way} {record[way] * 1e6:8.1f} {ratio:5.2f}{mark}")
        if f"{way}_error" in record:
            words.append(f"{way}: {record[f'{way}_error']}")
    return "  ".join(words)


def _summary(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """All rows, then those alone whose operands are there: what makes an operand first is no part of a product."""
    yield from _means(records)
    yield "of operands that are there:"
    yield from _means([record for record in records if record["name"].split()[-1] not in _BEFORE])


def _means(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    for way in ("eager", "default", "tuned", "peer"):
        ratios = [record["library"] / record[way] for record in records if way in record]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            below = sum(ratio < BAR for ratio in ratios)
            yield f"{way:8} {len(ratios)} rows, geometric mean {mean:.3f} of the library's product alone, {below} below {BAR}"


def main() -> None:
    """Print the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--part", nargs="*", choices=list(FORMATS), help="number formats")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--tuned", action="store_true", help="max_autotune as well")
    parser.add_argument("--peer", action="store_true", help="torch.compile as well")
    parser.add_argument("--deadline", type=float, default=math.inf, help="time no row after so many seconds")
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes, to try the command")
    parser.add_argument("--json", type=Path, help="append a line of JSON for each row")
    given = parser.parse_args()
    start, records = time.monotonic(), []
    print(f"torch {torch.__version__} {torch.cuda.get_device_name() if given.device == 'cuda' else 'CPU'}")
    for part in given.part or FORMATS:
        torch.backends.cuda.matmul.allow_tf32 = part == "tf32"
        chosen = [row for row in GRID if row.part == part and given.only in row.name]
        small = [Row(row.part, _shrunk(row.sizes, given.shrink), row.around) for row in chosen]
        if not small or time.monotonic() - start > given.deadline:
            continue
        programs = _compile(small, given.device, given.tuned)
        print(f"{part}: compiled after {time.monotonic() - start:.0f} s", flush=True)
        for row in small:
            if time.monotonic() - start > given.deadline:
                print("out of time")
                break
            try:
                records.append(_line(row, given.device, programs[row], given.peer))
            except Exception as error:
                print(f"{row.name:44} {type(error).__name__}: {error}"[:200], flush=True)
                continue
            print(_shown(records[-1]), flush=True)
            if given.json is not None:
                with given.json.open("a") as file:
                    file.writelines(json.dumps(record) + "\n" for record in _kept(records[-1]))
    print("\n".join(_summary(records)), f"after {time.monotonic() - start:.0f} s", sep="\n")


def _shrunk(sizes: Sizes, by: int) -> Sizes:
    m, n, k = (max(1, size // by) for size in sizes)
    return m, n, k


if __name__ == "__main__":
    main()
