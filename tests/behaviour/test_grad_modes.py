"""Grad modes inside of compiled functions: contexts, decorators and setters in any nesting, with graph breaks and writes between.

A drawn program computes under modes that it sets; results, what requires grad, which are leaves, gradients, and the mode that it leaves
are those of eager.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

from ..comparison import run_as_it_is

MODES = ("torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)")
OPERATIONS = (
    "{a} * {b}", "{a} + 1", "{a} @ {b}.T @ {b}", "({a} * 2).detach()", "{a}.view(-1).mul(2).view(3, 3)", "{a}.T + {b}", "torch.sin({a})",
    "under_none({a})", "under_all({a})", "{a}.clone().mul_({b})", "torch.where({a} > 0, {a}, {b})", "{a}[:2].sum() + {b}",
)  # fmt: skip


@torch.no_grad()
def under_none(a: Tensor) -> Tensor:
    return a * 3


@torch.enable_grad()
def under_all(a: Tensor) -> Tensor:
    return a * 5


class Draw:
    """The text of one program."""

    def __init__(self, seed: int, breaks: bool) -> None:
        self.random = random.Random(seed)
        self.breaks = breaks
        self.names = ["x", "w"]
        self.owned: list[str] = []
        self.lines = ["def program(x, w):", "    x = x * 1"]
        self.block("    ", 0)
        self.lines.append(f"    return ({', '.join(self.names)}, torch.is_grad_enabled())")

    def block(self, indent: str, depth: int) -> None:
        """Some statements."""
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.random()
            if kind < 0.35 and depth < 3:
                self.lines.append(f"{indent}with {self.random.choice(MODES)}:")
                self.block(indent + "    ", depth + 1)
            elif kind < 0.42:
                self.lines.append(f"{indent}torch.set_grad_enabled({self.random.random() < 0.5})")
            elif kind < 0.5 and self.breaks:
                self.lines.append(f"{indent}flambeau.compiler.graph_break()")
            elif kind < 0.58 and self.owned:
                target, other = self.random.choice(self.owned), self.random.choice(self.names)
                self.lines.append(f"{indent}{target}.add_({other} * 2)")
            else:
                self.operation(indent)

    def operation(self, indent: str) -> None:
        name = f"v{len(self.names)}"
        a, b = self.random.choice(self.names), self.random.choice(self.names)
        text = self.random.choice(OPERATIONS)
        self.lines.append(f"{indent}{name} = {text.format(a=a, b=b)}")
        self.names.append(name)
        if "detach" not in text:
            self.owned.append(name)


def _program(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {
        "torch": torch, "flambeau": flambeau, "under_none": under_none, "under_all": under_all, "__name__": __name__,
    }  # fmt: skip
    exec(compile(text, "<drawn>", "exec"), space)
    return space["program"]  # type: ignore[no-any-return]


def _run(function: Callable[..., Any], seed: int, outer: bool) -> tuple[Any, list[Tensor]]:
    """What is equal or not, and tensors to compare."""
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(3, 3, generator=generator) * 0.3 for _ in range(2))
    x.requires_grad_(seed % 3 > 0)
    w.requires_grad_(seed % 4 > 1)
    try:
        with torch.set_grad_enabled(outer):
            *results, mode = function(x, w)
            mode = (mode, torch.is_grad_enabled())
    except RuntimeError as error:
        return (str(error),), []
    facts: list[Any] = [(t.requires_grad, t.is_leaf, t.grad_fn is None, t.shape, t.stride()) for t in results]
    loss = sum(t.sum() * (i + 1) for i, t in enumerate(results) if t.requires_grad and not t.is_leaf)
    if isinstance(loss, Tensor):
        try:
            loss.backward()
        except RuntimeError:
            facts.append("refused")
    found = [t.grad for t in (x, w)]
    return ([mode, *facts], [grad is None for grad in found]), [*results, x, w, *(g for g in found if g is not None)]


def _compare(seed: int, backend: Any) -> int:
    """Compare one program with eager, inside and outside of gradients; the number of graphs."""
    text = "\n".join(Draw(seed, breaks=seed % 2 == 0).lines)
    graphs = 0

    def counting(graph: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return run_as_it_is(graph, inputs)

    flambeau.compiler.reset()
    compiled = flambeau.compile(_program(text), backend=backend or counting)
    for outer in (True, False, True):
        (expected, theirs), (actual, ours) = (_run(function, seed, outer) for function in (_program(text), compiled))
        assert actual == expected, f"seed {seed}, outer {outer}\n{text}\n{actual}\n{expected}"
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=lambda m: f"seed {seed}\n{text}\n{m}")
    return graphs


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_drawn_programs_are_captured(first: int) -> None:
    assert sum(_compare(seed, None) for seed in range(first, first + 20)) >= 40


@pytest.mark.falls_back(*["graph_break() was called"] * (sys.version_info >= (3, 12)))
def test_drawn_programs_with_the_default_backend() -> None:
    for seed in range(1000, 1012):
        _compare(seed, "inductor")


@pytest.mark.slow
@pytest.mark.judges_itself  # some graphs are refused by eager, and run in it
@pytest.mark.parametrize("first", range(2000, 4000, 100))
def test_many_drawn_programs(first: int) -> None:
    assert sum(_compare(seed, None if seed % 4 else "inductor") for seed in range(first, first + 100)) >= 100
