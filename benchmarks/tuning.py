"""The numbers of ``devices/tuning.py`` measured anew: programs that each of them decides about, at half its value, as it is, and at twice.

    python -m benchmarks.tuning --device cuda            # all of them
    python -m benchmarks.tuning --only pieces_elements

In: nothing but a GPU. Out: a line for each program, with microseconds and kernels' launches of each value; one where another value is faster by more than what two runs differ by is marked. A new
family of devices gets a ``Tuning`` of its own in ``devices/cuda/gpus.py`` from that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from attrs import evolve
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor import compile_graph, decompositions
from flambeau_inductor.devices import Tuning
from flambeau_inductor.devices.cuda import gpus
from flambeau_runtime import Artifact
from flambeau_runtime.timing import time_apart

#: What two runs of one program differ by.
NOISE = 0.98
BF16, F32 = torch.bfloat16, torch.float32
Case = tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], torch.dtype], ...]]


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _row_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def _column_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


def _busy(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x.exp().log1p()).erf()


def _head(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w.t()


def _finished(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ w.t() + y)


def _rows(function: Callable[..., Any], lengths: tuple[int, ...], dtype: torch.dtype = F32) -> list[Case]:
    """Rows of 256 MiB in all."""
    return [(function, ((((1 << 28) // (n * dtype.itemsize), n), dtype),)) for n in lengths]


#: Number -> programs that it decides about.
CASES: Mapping[str, list[Case]] = {
    "persistent_elements": [*_rows(_softmax, (4096, 8192, 16384, 32768)), *_rows(_norm, (8192, 16384), BF16)],
    "persistent_once_elements": _rows(_row_sum, (2048, 4096, 8192, 16384)),
    "pieces_elements": [*_rows(_softmax, (6144, 12288, 20480)), *_rows(_norm, (6144, 12288, 20480), BF16)],
    "column_elements": [(_column_sum, (((n, 1 << 20), F32),)) for n in (16, 32, 64, 128)],
    "busy": [(_busy, (((1 << 26,), BF16),)), (torch.tanh, (((1 << 26,), BF16),)), (torch.exp, (((1 << 26,), F32),))],
    "repeated": [(_busy, (((1 << 26,), BF16),)), (_busy, (((1 << 24,), F32),))],
    "full": [(_busy, (((1 << n,), BF16),)) for n in (20, 21, 22, 23)],
    "product_gain": [(_head, (((4096, 768), BF16), ((n, 768), BF16))) for n in (1001, 5003, 20011, 50257)],
    "kept_seconds": [
        (_finished, (((n, 64), BF16), ((256, 64), BF16), ((n, 256), BF16))) for n in (50176, 100352, 200704)
    ],
    "finished_seconds": [
        (_finished, (((m, 4096), BF16), ((n, 4096), BF16), ((m, n), BF16)))
        for m, n in ((2048, 4096), (4096, 4096), (8192, 4096))
    ],
}


def _compiled(case: Case, tuning: Tuning) -> Artifact:
    """The program of a case where ``tuning`` decides."""
    function, specs = case
    before = gpus._present
    table = {op: rule for op, rule in decompositions().items() if rule is not None}
    with FakeTensorMode():
        fakes = [torch.empty(sizes, dtype=dtype, device="cuda") for sizes, dtype in specs]
        gm = make_fx(function, decomposition_table=table, _allow_non_fake_inputs=True)(*fakes)
    with mock.patch.object(gpus, "_present", lambda index: evolve(before(index), tuning=tuning)):
        return compile_graph(gm, fakes, {"autotune_local_cache": False})


def _measure(name: str, case: Case, device: torch.device) -> str:
    """A line of the report."""
    tuning = gpus.facts_of(device).tuning
    value = getattr(tuning, name)
    values = [type(value)(value * factor) for factor in (0.5, 1, 2)]
    artifacts = [_compiled(case, evolve(tuning, **{name: value})) for value in values]
    different = {artifact.digest for artifact in artifacts}
    function, specs = case
    what = f"{name:26} {function.__name__.strip('_'):11} {' '.join(str(list(sizes)) for sizes, _ in specs):28}"
    if len(different) == 1:
        return f"{what} decides nothing between {values[0]} and {values[2]}"
    times = time_apart(artifacts, device=device)
    words = [f"{value}: {'fails' if taken is None else f'{taken * 1e6:.1f} us'}" for value, taken in zip(values, times)]
    known = [taken for taken in times if taken is not None]
    mark = "  <- another is faster" if times[1] is None or min(known) < NOISE * times[1] else ""
    return f"{what} {'  '.join(words)}{mark}"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", choices=sorted(CASES), help="one number alone")
    given = parser.parse_args()
    device = torch.device(given.device, torch.cuda.current_device())
    for name, cases in CASES.items():
        for case in cases if given.only in (None, name) else ():
            print(_measure(name, case, device), flush=True)


if __name__ == "__main__":
    main()
