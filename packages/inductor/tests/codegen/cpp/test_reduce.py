"""Every reduction and scan equals its meaning, with the lanes along the reduced axis and across it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor import compile_graph
from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.ir.loops import REDUCTION_KINDS, SCAN_KINDS, Loop, Reduction, Scan, make_axes
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

CPU = torch.device("cpu")
#: A float, an integer and a mask: what differs in the text.
DTYPES = (torch.float32, torch.int64, torch.bool)
SHAPE = (5, 37)


def _takes(kind: str, dtype: torch.dtype) -> bool:
    if kind in ("any", "all"):
        return dtype is torch.bool
    if kind == "logaddexp":
        return dtype.is_floating_point
    if kind == "xor_sum":
        return dtype is torch.int64
    return dtype is not torch.bool or kind in ("max", "min")


def _graph(dtype: torch.dtype) -> tuple[Graph, list[str]]:
    """Each kind along each of two dimensions."""
    given = Buffer("given", Layout.contiguous(tuple(map(Int, SHAPE)), dtype, CPU))
    buffers, operations, names = {"given": given}, list[Loop](), []

    def out(kind: str, *sizes: int) -> Buffer:
        position = kind in ("argmax", "argmin")
        made = Buffer(
            f"buf{len(names)}", Layout.contiguous(tuple(map(Int, sizes)), torch.int64 if position else dtype, CPU)
        )
        buffers[made.name] = made
        names.append(f"{kind} to {sizes}")
        return made

    for kind in filter(lambda kind: _takes(kind, dtype), REDUCTION_KINDS):
        for kept in ((0,), (1,)):
            axes = make_axes(tuple(map(Int, SHAPE)))
            value = sc.load("given", axes[0].symbol * SHAPE[1] + axes[1].symbol, dtype)
            reduced = tuple(axis for n, axis in enumerate(axes) if n not in kept)
            target = out(kind, *(SHAPE[n] for n in kept))
            operations.append(Reduction(target, tuple(axes[n] for n in kept), reduced, kind, value))
    for kind in filter(lambda kind: _takes(kind, dtype), SCAN_KINDS):
        for along in (0, 1):
            axes = make_axes(tuple(map(Int, SHAPE)))
            value = sc.load("given", axes[0].symbol * SHAPE[1] + axes[1].symbol, dtype)
            operations.append(Scan(out(kind, *SHAPE), axes, along, kind, value))
    results = tuple(Ref.whole(buffers[f"buf{n}"]) for n in range(len(names)))
    return Graph((TensorInput(given),), (), tuple(operations), results, buffers), names


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_kind(dtype: torch.dtype) -> None:
    """Rows of one value, of a mixture, and with ties; the results have the identity nowhere but where it is right."""
    torch.manual_seed(1)
    graph, names = _graph(dtype)
    values = torch.randn(SHAPE) if dtype.is_floating_point else torch.randint(-3, 4, SHAPE)
    values[0], values[1], values[2] = 0, 1, -1
    given = values > 0 if dtype is torch.bool else values.to(dtype)
    given[:, 3] = given[:, 4]
    found, wanted = load(compile_loops(graph).artifact)(given), run_graph(graph, [given])
    for name, one, other in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def _running_and_more(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A scan of a scan, what is made of both, reductions beside them, and of them."""
    once = x.exp().cumsum(-1)
    twice = (once * 0.1).cumsum(-1)
    return once.rsqrt(), twice - x, once.amax(-1), (x * 2).sum(-1), (x * 0.1 + 1).cumprod(-1)


def _before_and_after(x: torch.Tensor) -> torch.Tensor:
    """Reductions that the scan needs, and some that need it."""
    running = torch.softmax(x, -1).cumsum(-1)
    return torch.softmax(running * 3, -1)


def _written(x: torch.Tensor) -> torch.Tensor:
    running = x.tanh().cumsum(-1) + x
    x.copy_(running)
    return running * 2


def _exclusive(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.flip(-1).cumsum(-1).flip(-1) - x, (x > 0).cumsum(-1), (x * 5).int().cumsum(-1), (x * 5).int().cumprod(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [64, 67, 512, 1031])
@pytest.mark.parametrize("function", [_running_and_more, _before_and_after, _written, _exclusive])
def test_scans_along_long_rows(function: Callable[[torch.Tensor], Any], length: int, dtype: torch.dtype) -> None:
    """Block by block: each carries on from the one before it, the last may be shorter, and each row starts anew."""
    torch.manual_seed(1)
    x = (torch.randn(3, length) * 0.1).to(dtype)
    compiled = load(compile_graph(make_fx(function)(x.clone()), (x,)))
    given, expected = x.clone(), x.clone()
    wanted = function(expected.double() if function is not _written and dtype.itemsize == 2 else expected)
    found = compiled(given)
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 2e-1}.get(dtype, 1e-5)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(given, expected, rtol=tolerance, atol=tolerance)


def test_running_sums_of_what_has_no_end() -> None:
    """Infinities and numbers that are none go on to the end of their row alone; half of a row that overflows has no part in what comes to the whole."""
    x = torch.ones(5, 600)
    x[0, 100], x[1, 5], x[1, 500], x[2, 300] = torch.inf, torch.inf, -torch.inf, torch.nan
    x[3, ::2], x[3, 1::2], x[4] = 3e38, -3e38, -0.0

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cumsum(-1), (x * 0).cumprod(-1), x.double().cumsum(-1)

    found = load(compile_graph(make_fx(function)(x), (x,)))(x)
    for one, other in zip(found, function(x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(one.signbit(), other.signbit()) or other.isnan().any()
