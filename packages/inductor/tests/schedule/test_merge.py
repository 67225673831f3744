"""When two loops do not become one: each reason, both ways round."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve

from flambeau_inductor.expr import Expr, Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.layout import Buffer, Layout
from flambeau_inductor.ir.loops import Pointwise, Reduction, Scan, Scatter, make_axes
from flambeau_inductor.schedule.merge import merge
from flambeau_inductor.schedule.nest import Nest, make_nest

CPU = torch.device("cpu")
AXES = make_axes((Int(8),))
I = AXES[0].symbol
BUFFERS = {
    name: Buffer(name, Layout.contiguous((Int(8),), torch.float32, CPU), storage=storage)
    for name, storage in {"x": "x", "y": "y", "a": "a", "b": "b", "start": "start", "s": "start"}.items()
}


def x_at(index: Expr, buffer: str = "x") -> Any:
    """An element."""
    return sc.load(buffer, index, torch.float32)


def loop(out: str, value: Any) -> Nest:
    """A pointwise loop."""
    return make_nest(0, Pointwise(BUFFERS[out], AXES, value))


PLAIN = loop("a", x_at(I))
SCATTER = make_nest(1, Scatter(BUFFERS["s"], AXES, sc.indirect(x_at(I, "i"), Int(8)), x_at(I), "set"))


def test_loops_over_the_same_points_become_one() -> None:
    """A value takes the place of the read of its result."""
    joined = merge(PLAIN, loop("b", sc.op("neg", x_at(I, "a"))), BUFFERS)
    assert isinstance(joined, Nest) and joined.statements[1].value is sc.op("neg", PLAIN.statements[0].value)


@pytest.mark.parametrize(
    ("first", "second", "options", "reason"),
    [
        (PLAIN, evolve(PLAIN, device=torch.device("cuda")), {}, "they run on"),
        (PLAIN, SCATTER, {}, "takes its points in turn"),
        (SCATTER, PLAIN, {}, "takes its points in turn"),
        (PLAIN, loop("b", x_at(I)), {"max_fusion_unique_io_buffers": 2}, "more than 2 buffers"),
        (PLAIN, loop("b", x_at(I)), {"max_fusion_size": 1}, "more than 1 loops"),
        (evolve(PLAIN, statements=PLAIN.statements * 500), PLAIN, {}, "statements"),
        (PLAIN, loop("b", x_at(7 - I, "a")), {}, "another point"),
    ],
)
def test_reasons(first: Nest, second: Nest, options: dict[str, int], reason: str) -> None:
    """Each is told."""
    found = merge(first, second, BUFFERS, **options)
    assert isinstance(found, str) and reason in found


def test_limits_are_reached_before_they_are_passed() -> None:
    """As many buffers and loops as are allowed."""
    assert isinstance(
        merge(PLAIN, loop("b", x_at(I)), BUFFERS, max_fusion_unique_io_buffers=3, max_fusion_size=2), Nest
    )


@pytest.mark.parametrize(
    ("kinds", "turned", "joins"),
    [
        (("argmax", "argmin"), False, True),
        (("argmax", "argmin"), True, False),
        (("sum", "argmin"), True, False),
        (("argmax", "sum"), True, True),
        (("sum", "max"), True, True),
    ],
)
def test_positions_keep_the_order_of_their_axes(kinds: tuple[str, str], turned: bool, joins: bool) -> None:
    """A position counts through its axes in their order: another loop's order is not taken for it, others do not care."""
    axes = make_axes((Int(3), Int(8)))
    i, j = (axis.symbol for axis in axes)
    dtypes = [torch.int64 if kind.startswith("arg") else torch.float32 for kind in kinds]
    outs = [Buffer(name, Layout.contiguous((), dtype, CPU)) for name, dtype in zip("pq", dtypes, strict=True)]
    first, second = (
        make_nest(n, Reduction(out, (), axes[::-1] if n and turned else axes, kind, x_at(i * 8 + j)))
        for n, (out, kind) in enumerate(zip(outs, kinds, strict=True))
    )
    assert isinstance(merge(first, second, {**BUFFERS, "p": outs[0], "q": outs[1]}), Nest) is joins


@pytest.mark.parametrize(
    ("device", "along", "op", "joins"),
    [("cpu", 1, "exp", False), ("cpu", 1, "neg", True), ("cpu", 0, "exp", True), ("cuda", 1, "exp", True)],
)
@pytest.mark.parametrize("comes_first", ["the loop", "the scan"])
def test_functions_with_a_vector_form_stay_out_of_scans_along_rows(
    device: str, along: int, op: str, joins: bool, comes_first: str
) -> None:
    """On a CPU these go element by element; a scan down columns has a vector of columns, a GPU scans in parallel."""
    axes = make_axes((Int(8), Int(8)))
    layout = Layout.contiguous((Int(8), Int(8)), torch.float32, torch.device(device))
    buffers = {name: Buffer(name, layout, storage=name) for name in "xab"}
    place = axes[0].symbol * 8 + axes[1].symbol
    is_scan_first = comes_first == "the scan"
    computed = sc.op(op, x_at(place, "b" if is_scan_first else "x"))
    pointwise = make_nest(int(is_scan_first), Pointwise(buffers["a"], axes, computed))
    scan = make_nest(
        int(not is_scan_first), Scan(buffers["b"], axes, along, "sum", x_at(place, "x" if is_scan_first else "a"))
    )
    first, second = (scan, pointwise) if is_scan_first else (pointwise, scan)
    assert isinstance(merge(first, second, buffers), Nest) is joins
