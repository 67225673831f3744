"""Every reduction and scan equals its meaning, with the lanes along the reduced axis and across it."""

from __future__ import annotations

import pytest
import torch

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
