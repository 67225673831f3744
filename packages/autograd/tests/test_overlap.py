"""Which views of one memory meet, against the sets of places that they show."""

from __future__ import annotations

import random

import pytest
import torch
from lifting import compile_function

from flambeau_autograd import UnsupportedGraph
from flambeau_autograd.functional.overlap import overlaps


def places(view: torch.Tensor) -> set[int]:
    """The element numbers in the storage."""
    numbers = torch.arange(view.untyped_storage().nbytes() // view.itemsize)
    return set(numbers.as_strided(view.shape, view.stride(), view.storage_offset()).flatten().tolist())


def test_views_that_are_drawn() -> None:
    draw = random.Random(0)
    memory, met = torch.empty(400), 0
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
    assert 100 < met < 1400


def test_parts_of_rows() -> None:
    """Query, key and value out of one product lie between each other and do not meet."""
    query, key, value = torch.empty(6, 8, 48).split([32, 8, 8], -1)
    assert not overlaps(query, key)
    assert not overlaps(key, value)
    assert overlaps(query[..., ::3], query[..., 1:])


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
