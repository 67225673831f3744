"""A module that does everything a compiler dislikes behaves as in plain Python, and `explain` says where the graphs end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from tests.comparison import assert_same


class Untidy(nn.Module):
    """Prints, branches on a tensor's value, catches an exception, mutates a list it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: Tensor, seen: list[Any], mode: str) -> Tensor:
        self.calls += 1
        y = self.linear(x)
        print("mean is computed for", mode)
        if y.sum() > 0:
            y = y * 2
        else:
            y = y - 1
        try:
            if mode == "raise":
                raise KeyError(mode)
            y = y + {"add": 1.0}[mode]
        except KeyError as error:
            seen.append(str(error))
            y = y * 3
        seen.append(y.shape[0])
        if mode == "fail":
            raise ValueError("mode fail reached the end")
        return torch.relu(y)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("mode", ["add", "raise", "missing", "fail"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_same_prints_results_exceptions_and_mutations(
    mode: str, sign: float, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three calls each, so that cached entries behave like the first."""
    torch.manual_seed(0)
    module = Untidy()
    compiled = flambeau.compile(module, backend=backend)
    x = torch.ones(2, 4) * sign

    def run(function: Any) -> tuple[Any, ...]:
        seen: list[Any] = ["before"]
        module.calls = 0
        results: list[Any] = []
        for _ in range(3):
            try:
                results.append(function(x, seen, mode))
            except ValueError as error:
                results.append(repr(error))
        return results, seen, module.calls, capsys.readouterr().out

    expected = run(module)
    assert_same(run(compiled), expected)


def test_explain_names_every_break() -> None:
    """Each break has this file, a line of `forward`, a reason and a hint."""
    explanation = flambeau.explain(Untidy())(torch.ones(2, 4), [], "add")
    assert explanation.graph_break_count >= 2
    first = Untidy.forward.__code__.co_firstlineno
    for reason in explanation.breaks:
        assert reason.file == __file__
        assert first < reason.line < first + 25
        assert reason.reason
        assert reason.hint
    lines = " ".join(reason.reason for reason in explanation.breaks)
    assert "print" in lines
    assert "branch" in lines
    assert str(explanation).count(__file__) == explanation.graph_break_count


def test_fullgraph_shows_the_line() -> None:
    """Under fullgraph=True the same is an error with the user's source line and a caret."""
    compiled = flambeau.compile(Untidy(), fullgraph=True)
    with pytest.raises(Exception, match="print") as caught:
        compiled(torch.ones(2, 4), [], "add")
    text = str(caught.value)
    assert 'print("mean is computed for", mode)' in text
    assert "^" in text
    assert "hint" in text.lower()


@pytest.mark.falls_back("program was left out")
@pytest.mark.parametrize("wrong", [lambda mask: mask.sum(), lambda mask: torch.ones(2) + torch.ones(3)])
def test_a_way_for_compilers_only_that_raises_is_not_taken(wrong: Callable[[Any], Any]) -> None:
    """The function asks whether it is compiled, and fails if it is: plain Python, told otherwise, runs it; what it calls is compiled."""

    def inner(x: Tensor) -> Tensor:
        return x.sin() * 2

    def program(x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = inner(x)
        if mask is None and not torch.compiler.is_compiling():
            return y + 1
        return y * wrong(mask)

    compiled = flambeau.compile(program)
    for _ in range(2):
        assert_same(compiled(torch.ones(4)), program(torch.ones(4)))
