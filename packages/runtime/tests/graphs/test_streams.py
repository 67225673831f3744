"""Streams come out of a ring, so that a further one may be the very stream that is being recorded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
import torch
from attrs import frozen

from flambeau_runtime.graphs.cuda import other_stream


@frozen
class Stream:
    cuda_stream: int


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The handles that were handed out, of a ring of three."""
    ring: Iterator[int] = cycle([7, 8, 9])
    found: list[int] = []

    def draw() -> Stream:
        found.append(next(ring))
        return Stream(found[-1])

    monkeypatch.setattr(torch.cuda, "Stream", draw)
    return found


def test_a_stream_in_use_is_not_taken_again(drawn: list[int]) -> None:
    assert [other_stream({8}).cuda_stream for _ in range(4)] == [7, 9, 7, 9]
    assert drawn == [7, 8, 9, 7, 8, 9]


def test_whatever_is_next_will_do_otherwise(drawn: list[int]) -> None:
    assert [other_stream(set()).cuda_stream for _ in range(2)] == [7, 8]
    assert drawn == [7, 8]
