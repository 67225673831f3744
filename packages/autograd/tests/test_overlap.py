"""Which views of one memory meet, against the sets of places that they show."""

from __future__ import annotations

import random

import torch

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
