"""Which views of one memory meet, against the sets of places that they show."""

from __future__ import annotations

import random

import pytest
import torch
from lifting import compile_function

from flambeau_autograd import UnsupportedGraph
from flambeau_autograd.functional.overlap import collides, lies_within, overlaps


def places(view: torch.Tensor) -> set[int]:
    """The element numbers in the storage."""
    numbers = torch.arange(view.untyped_storage().nbytes() // view.itemsize)
    return set(numbers.as_strided(view.shape, view.stride(), view.storage_offset()).flatten().tolist())


def layout(view: torch.Tensor) -> tuple[object, ...]:
    return view.shape, view.stride(), view.storage_offset()


def test_views_that_are_drawn() -> None:
    draw = random.Random(0)
    memory, met, within = torch.empty(400), 0, 0
    for _ in range(1500):
        views = []
        for _ in range(2):
            rank = draw.randint(0, 3)
            sizes, strides = (
                [draw.randint(0 if draw.random() < 0.1 else 1, 4) for _ in range(rank)],
                draw.choices((0, 1, 2, 3, 5, 8, 24, 30), k=rank),
            )
            views.append(memory.as_strided(sizes, strides, draw.randint(0, 60)))
        expected = bool(places(views[0]) & places(views[1]))
        assert overlaps(*views) == expected, [(v.shape, v.stride(), v.storage_offset()) for v in views]
        met += expected
        assert collides(*views) == (expected and layout(views[0]) != layout(views[1])), [layout(v) for v in views]
        moved = memory.as_strided(views[0].shape, views[0].stride(), draw.randint(0, 60))
        expected = bool(places(views[0]) & places(moved)) and layout(views[0]) != layout(moved)
        assert collides(views[0], moved) == expected, (layout(views[0]), layout(moved))
        block = memory.as_strided((5, 2, 4), (8, 4, 1), 20)
        expected = places(views[0]) <= places(block)
        assert lies_within(views[0], block) == expected, (views[0].shape, views[0].stride())
        within += expected
    assert 100 < met < 1400
    assert 100 < within < 1400


def test_parts_of_rows() -> None:
    """Query, key and value out of one product lie between each other and do not meet."""
    query, key, value = torch.empty(6, 8, 48).split([32, 8, 8], -1)
    assert not overlaps(query, key)
    assert not overlaps(key, value)
    assert overlaps(query[..., ::3], query[..., 1:])
    many = torch.empty(5000, 3000, 16)
    assert not collides(many[..., :8], many[..., 8:])
    assert collides(many[1:], many[:-1])


REPLACED = {
    "slice": lambda x: torch.slice_scatter(x, x[:1] * 0 + 7, 0, 0, 1),
    "select": lambda x: torch.select_scatter(x, x.select(0, 0) + 1, 0, 0),
    "diagonal": lambda x: torch.diagonal_scatter(x, x.diagonal() * 2 + 1),
}
SHARED = {
    "rows": lambda x: x.expand(4, 6),
    "columns": lambda x: x[:, None].expand(6, 4),
    "windows": lambda x: x.unfold(0, 3, 1),
}


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("replaced", REPLACED)
def test_replaced_parts_of_shared_memory(replaced, shared) -> None:
    """Where eager's copy shares memory too, one written element shows in others, and a loop would write each: such graphs are refused."""
    x = torch.arange(6.0)

    def program(x):
        return REPLACED[replaced](SHARED[shared](x))

    if replaced == "diagonal" and shared != "windows":
        (found,) = compile_function(program, [x])(x)
        assert torch.equal(found, program(x)) and found.stride() == program(x).stride()
        return
    with pytest.raises(UnsupportedGraph, match="share memory"):
        compile_function(program, [x])


def gaps() -> torch.Tensor:
    """A square with other memory between its elements and behind them."""
    return torch.arange(100.0).as_strided((3, 3), (12, 2))


BESIDE = {
    "between what was written": (lambda x: x.neg_().as_strided((2,), (1,)), gaps),
    "between what was written, taken before": (lambda x: (x.as_strided((2,), (1,)), x.neg_())[0] + 1, gaps),
    "between what was computed": (lambda x: x.diagonal_scatter(x[0]).as_strided((2,), (1,)), gaps),
    "copied": (lambda x: torch.as_strided_copy(x.neg_(), (2,), (1,)), gaps),
    "replaced": (lambda x: x.neg_().as_strided_scatter(x[0, :2] * 2, (2,), (1,)), gaps),
    "in the order of loops": (lambda x: x.t().add_(x), gaps),
    "in the order of loops, a row": (lambda x: x.add_(x[1]), gaps),
    "in other types": (lambda x: x.t().add_(x.view(torch.int32)), gaps),
}


@pytest.mark.parametrize("name", BESIDE)
def test_memory_that_a_functional_graph_has_not(name: str) -> None:
    """What lies beside elements, and what a loop overwrites before it reads it, only eager knows."""
    program, given = BESIDE[name]
    with pytest.raises(UnsupportedGraph, match=r"memory (beside|that it overwrites)"):
        compile_function(program, [given()])


def test_strides_of_memory_that_is_there() -> None:
    """An input that nothing writes is looked at as it lies; a dense result is all of its memory."""
    for program in (
        lambda x: x.as_strided((2, 4), (12, 1)) + 1,
        lambda x: x.t().contiguous().as_strided((2, 4), (3, 1)).neg(),
        lambda x: x[1:].add_(x[:2].clone()),
        lambda x: torch.as_strided_copy(x, (2, 4), (12, 1)),
        lambda x: torch.as_strided_scatter(x, x[0, :2] * 2, (2,), (1,)),
        lambda x: torch.as_strided_copy(torch.arange(6.0), (2,), (3,)) * x[0, 1],
    ):
        (found,) = compile_function(program, [gaps()])(gaps())
        assert torch.equal(found, program(gaps()))
