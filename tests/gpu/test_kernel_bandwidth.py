"""What share of the copy bandwidth the generated kernels reach, printed beside neighbouring block sizes and warps.

Nothing is asserted about time: the table shows where the analytic model of blocks and warps is not the best of its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.codegen.triton import options
from flambeau_inductor.decomposition_table import decompositions
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif("FLAMBEAU_SHARD" in os.environ, reason="times beside other processes say nothing"),
]

F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64
Specs = list[tuple[tuple[int, ...], torch.dtype]]


def _rms_norm(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = a.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(a.dtype) * w


def _layer_norm(a: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(a, (a.shape[-1],), w, b)


#: name -> (function, inputs).
CASES: dict[str, tuple[Callable[..., Any], Specs]] = {
    "add": (lambda a, b: a + b, [((1 << 26,), F32)] * 2),
    "add_bf16": (lambda a, b: a + b, [((1 << 27,), BF16)] * 2),
    "gelu": (lambda a: F.gelu(a), [((1 << 26,), F32)]),
    "gelu_bf16": (lambda a: F.gelu(a), [((1 << 27,), BF16)]),
    "softmax1k": (lambda a: a.softmax(-1), [((65536, 1024), F32)]),
    "softmax1k_bf16": (lambda a: a.softmax(-1), [((131072, 1024), BF16)]),
    "softmax4k": (lambda a: a.softmax(-1), [((16384, 4096), F32)]),
    "softmax4k_bf16": (lambda a: a.softmax(-1), [((32768, 4096), BF16)]),
    "softmax16k": (lambda a: a.softmax(-1), [((4096, 16384), F32)]),
    "softmax50k": (lambda a: a.softmax(-1), [((2048, 50257), F32)]),
    "softmax50k_bf16": (lambda a: a.softmax(-1), [((4096, 50257), BF16)]),
    "softmax64": (lambda a: a.softmax(-1), [((1 << 20, 64), F32)]),
    "layer_norm1k": (_layer_norm, [((65536, 1024), F32), ((1024,), F32), ((1024,), F32)]),
    "layer_norm4k_bf16": (_layer_norm, [((32768, 4096), BF16), ((4096,), BF16), ((4096,), BF16)]),
    "layer_norm16k": (_layer_norm, [((4096, 16384), F32), ((16384,), F32), ((16384,), F32)]),
    "rms_norm4k_bf16": (_rms_norm, [((32768, 4096), BF16), ((4096,), BF16)]),
    "cross_entropy": (lambda a, t: F.cross_entropy(a, t), [((4096, 32000), F32), ((4096,), I64)]),
    "transpose": (lambda a: a.t().contiguous(), [((8192, 8192), F32)]),
    "transpose_bf16": (lambda a: a.t().contiguous(), [((16384, 8192), BF16)]),
    "column_sum": (lambda a: a.sum(0), [((16384, 4096), F32)]),
    "narrow_column_sum": (lambda a: a.sum(0), [((1 << 20, 64), F32)]),
    "row_sum": (lambda a: a.sum(1), [((16384, 4096), F32)]),
    "full_sum": (lambda a: a.sum(), [((1 << 26,), F32)]),
    "cumsum": (lambda a: a.cumsum(1), [((8192, 8192), F32)]),
    "embedding_bf16": (lambda w, i: F.embedding(i, w), [((50257, 1024), BF16), ((64, 1024), I64)]),
    "cat": (lambda a, b: torch.cat([a, b], 1), [((16384, 2048), F32)] * 2),
}

Change = Callable[[options.Config], options.Config | None]


def _scaled(key: str, factor: float) -> Change:
    def change(config: options.Config) -> options.Config | None:
        if key == "warps":
            warps = int(config.num_warps * factor)
            return evolve(config, num_warps=warps) if 1 <= warps <= 32 else None
        block = int(config.blocks.get(key, 0) * factor)
        if block < 1 or (key == "r" and config.persistent):
            return None
        return evolve(config, blocks={**config.blocks, key: block})

    return change


CHANGES: dict[str, Change] = {
    "model": lambda config: config,
    **{
        f"{key}{sign}": _scaled(key, factor) for key in ("warps", "x", "r") for sign, factor in (("/2", 0.5), ("*2", 2))
    },
}


def _seconds(run: Callable[[], Any]) -> float:
    """The best of a few batches of launches."""
    for _ in range(3):
        run()
    best = float("inf")
    for _ in range(4):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(8):
            run()
        stop.record()
        stop.synchronize()
        best = min(best, start.elapsed_time(stop) / 8e3)
    return best


def _inputs(specs: Specs) -> list[torch.Tensor]:
    return [
        torch.randint(0, 30000, sizes, device="cuda")
        if dtype is I64
        else torch.randn(sizes, device="cuda", dtype=dtype)
        for sizes, dtype in specs
    ]


def _compiled(function: Callable[..., Any], specs: Specs) -> Callable[..., Any]:
    table = {op: rule for op, rule in decompositions().items() if rule is not None}
    with FakeTensorMode():
        fakes = [torch.empty(sizes, dtype=dtype, device="cuda") for sizes, dtype in specs]
        gm = make_fx(function, decomposition_table=table, _allow_non_fake_inputs=True)(*fakes)
    found = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    built = compile_loops(lower_graph(gm, found))
    return load(built.artifact, constants=built.constants)


def _variants(
    function: Callable[..., Any], specs: Specs, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    original = options.choose
    for name, change in CHANGES.items():
        used: list[str] = []
        possible = True

        def choose(*args: Any, **kwargs: Any) -> options.Config:
            nonlocal possible
            before = original(*args, **kwargs)
            after = change(before)  # noqa: B023
            possible = possible and after is not None
            config = after or before
            used.append(f"{dict(config.blocks)} w{config.num_warps}{' per' if config.persistent else ''}")  # noqa: B023
            return config

        monkeypatch.setattr(options, "choose", choose)
        try:
            compiled = _compiled(function, specs)
        except Exception as error:
            used.append(f"failed: {error}")
            possible = name == "model"
            compiled = None
        finally:
            monkeypatch.setattr(options, "choose", original)
        if possible and compiled is not None:
            yield name, " + ".join(dict.fromkeys(used)), compiled


@pytest.mark.parametrize("name", CASES)
def test_bandwidth(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to eager; the share of the copy bandwidth is printed."""
    function, specs = CASES[name]
    torch.manual_seed(0)
    inputs = _inputs(specs)
    half, other = (torch.empty(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(2))
    copy = 2 * half.numel() / _seconds(lambda: other.copy_(half))
    expected = function(*inputs)
    read = inputs[1].numel() * inputs[0].shape[1] * 2 if name.startswith("embedding") else sum(map(_bytes, inputs))
    moved = read + _bytes(expected)
    eager = _seconds(lambda: function(*inputs))
    lines = [f"{name}: eager {moved / eager / 1e9:.0f} GB/s, copy {copy / 1e9:.0f} GB/s"]
    for change, config, compiled in _variants(function, specs, monkeypatch):
        actual = compiled(*inputs)[0]
        torch.testing.assert_close(actual, expected, rtol=2e-2 if BF16 in (s[1] for s in specs) else 1e-4, atol=1e-2)
        lines.append(f"  {change:8} {moved / _seconds(lambda: compiled(*inputs)) / 1e9:6.0f} GB/s  {config}")  # noqa: B023
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
