"""Programs whose surroundings change between two calls: compiled, they see the change as plain Python does."""

from __future__ import annotations

import pytest
import torch

from flambeau_capture import make_region

from .changes import CHANGES, code, data, torch_state  # noqa: F401 - they register their programs


def _calls(function, make_change, undo):
    """Results (or exceptions) of two calls before the change and two after it."""
    found = []
    for turn in range(4):
        if turn == 2:
            make_change()
        try:
            found.append(function(torch.arange(3.0) + 1))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    undo()
    return found


@pytest.mark.parametrize("make", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(make):
    """Four results equal, types included."""
    torch.manual_seed(0)
    program, changes = make()
    expected = _calls(program, changes, getattr(program, "undo", lambda: None))
    torch.manual_seed(0)
    program, changes = make()
    region = make_region(program, lambda graph, inputs: graph.forward)
    found = _calls(region, changes, getattr(program, "undo", lambda: None))
    for want, have in zip(expected, found, strict=True):
        assert type(have) is type(want)
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(have, want, equal_nan=True)
        else:
            assert have == want
