"""The collector runs rarely while a frame is compiled, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flambeau_capture
from flambeau_capture.collector import few_collections


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    found = gc.get_threshold()
    yield
    gc.set_threshold(*found)


def test_it_is_put_back_after_the_last_of_nested_compiles() -> None:
    """Also when one of them raises."""
    gc.set_threshold(701, 11, 12)
    with few_collections():
        assert gc.get_threshold()[0] > 701
        with pytest.raises(KeyError), few_collections():
            raise KeyError
        assert gc.get_threshold()[0] > 701
    assert gc.get_threshold() == (701, 11, 12)


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 10, 10)])
def test_what_is_rarer_already_stays(own: tuple[int, int, int]) -> None:
    """A collector that is off, or that waits longer, is left alone."""
    gc.set_threshold(*own)
    with few_collections():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_is_set_meanwhile_stays() -> None:
    """The program's word counts for more than what was found before."""
    with few_collections():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_a_compile_is_inside_and_the_program_outside() -> None:
    """The backend sees the relaxed collector; the function, at a break and afterwards, its own."""
    gc.set_threshold(702, 13, 14)
    in_backend: list[Any] = []
    in_program: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        in_backend.append(gc.get_threshold())
        return gm.forward

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        in_program.append(gc.get_threshold())
        return y * 2

    flambeau_capture.make_region(f, backend)(torch.ones(2))
    assert in_backend and all(threshold[0] > 702 for threshold in in_backend)
    assert in_program == [(702, 13, 14)]
    assert gc.get_threshold() == (702, 13, 14)
