"""A program with what was folded for it: when that is computed again, and what becomes of the memory of its inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from flambeau_runtime import FrozenProgram, ReleasedError
from flambeau_runtime.log import FOLDED_OFTEN, logger


class Folding:
    """Doubles what it is given, and counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.times += 1
        return tuple(tensor * 2 for tensor in given)


def program(*given: torch.Tensor) -> tuple[Any, ...]:
    """Of the kept inputs and what was folded: their sum."""
    return (sum(tensor.sum() for tensor in given),)


def make(**options: bool) -> tuple[FrozenProgram, Folding]:
    """Of three inputs: the first is kept, the last is folded, the second is both."""
    folding = Folding()
    return FrozenProgram(program, folding, (1, 2), (0, 1), **options), folding


def expected(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What `program` gives."""
    return x.sum() + a.sum() + 2 * a.sum() + 2 * b.sum()


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("change", ["written", "another", "data", "data twice", "died"])
def test_folds_again_where_an_input_changed(place: int, change: str) -> None:
    """And only there: what is not watched may be anything."""
    frozen, folding = make()
    given = [torch.randn(3), torch.randn(3), torch.randn(3)]
    for _ in range(2):
        given[0] = torch.randn(3)
        torch.testing.assert_close(frozen(*given)[0], expected(*given))
    assert folding.times == 1
    if change == "written":
        given[place].add_(1)
    elif change.startswith("data"):
        if change == "data twice":
            given[place].data = torch.empty(0)  # what comes next may lie where the first one lay
        given[place].data = torch.randn(3)
    else:
        if change == "died":
            given[place] = torch.empty(0)
        given[place] = torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(frozen(*given)[0], expected(*given))
    assert folding.times == 2


def test_what_inference_mode_made_is_folded_each_time() -> None:
    """Its writes are not counted."""
    frozen, folding = make()
    with torch.inference_mode():
        given = [torch.randn(3) for _ in range(3)]
        for times in (1, 2):
            torch.testing.assert_close(frozen(*given)[0], expected(*given))
            given[2].add_(1)
            assert folding.times == times


def test_folded_values_serve_outside_of_inference_mode() -> None:
    """They are ordinary tensors."""
    frozen, _ = make()
    seen: list[torch.Tensor] = []
    frozen._program = lambda *given: (seen.extend(given), ())[1]
    with torch.inference_mode():
        frozen(*(torch.zeros(3) for _ in range(3)))
    assert not any(tensor.is_inference() for tensor in seen[2:])


def test_memory_is_given_back() -> None:
    """Of what is not kept, once; using it says why, giving it again too."""
    frozen, folding = make(release=True)
    given = [torch.randn(3) for _ in range(3)]
    want = expected(*given)
    for _ in range(2):
        torch.testing.assert_close(frozen(*given)[0], want)
    assert folding.times == 1
    assert given[1].untyped_storage().nbytes() == 12 and given[2].untyped_storage().nbytes() == 0
    for use in (lambda: given[2] + 1, lambda: given[2].data_ptr(), lambda: given[2].tolist(), lambda: given[2].add_(1)):
        with pytest.raises(RuntimeError, match="freezing_discard_parameters"):
            use()
    with pytest.raises(ReleasedError, match="freezing_discard_parameters"):
        make()[0](*given)
    given[2].data = torch.randn(3)
    want = expected(*given)
    torch.testing.assert_close(frozen(*given)[0], want)
    assert folding.times == 2


def test_memory_that_a_kept_input_shares_stays() -> None:
    """Though under another name."""
    frozen, _ = make(release=True)
    both = torch.randn(6)
    x, a, b = torch.randn(3), both[:3], both[3:]
    want = expected(x, a, b)
    for _ in range(2):
        torch.testing.assert_close(frozen(x, a, b)[0], want)
    assert both.sum().isfinite()


def test_inputs_are_not_kept_alive() -> None:
    """Nor their memory."""
    import weakref

    frozen, _ = make()
    given = [torch.randn(3) for _ in range(3)]
    frozen(*given)
    seen = weakref.ref(given[2])
    del given
    assert seen() is None


def test_many_changes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: a program without freezing would do less."""
    monkeypatch.setattr(logger, "_destination", None)
    frozen, folding = make()
    given = [torch.randn(3) for _ in range(3)]
    with capture_logs() as events:
        for _ in range(20):
            frozen(*given)
            given[1].add_(1)
    assert folding.times == 20
    assert [event["event"] for event in events].count(FOLDED_OFTEN) == 1
