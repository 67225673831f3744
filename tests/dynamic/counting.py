"""Compile with the default backend, compare every call with eager, and count the compilations.

In: a function and the argument lists of its calls. Out: how many graphs the default backend got.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from ..comparison import assert_same


class Counted:
    """A compiled callable of the default backend beside its eager original."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function = function
        self.recorder = Recorder()
        self.compiled = compile_recorded(function, self.recorder, **options)

    @property
    def graphs(self) -> int:
        """Graphs compiled so far."""
        return len(self.recorder.graphs)

    def check(self, *args: Any, **kwargs: Any) -> None:
        """One call, equal to eager; arguments are copied so that mutations do not meet."""
        ours = self.compiled(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        assert_same(ours, self.function(*args, **kwargs))


def compilations(function: Callable[..., Any], calls: Iterable[Sequence[Any]], **options: Any) -> int:
    """Compare every call with eager; the number of graphs compiled."""
    counted = Counted(function, **options)
    for args in calls:
        counted.check(*args)
    return counted.graphs


def compilations_with_gradients(function: Callable[..., Tensor], calls: Iterable[Sequence[Any]]) -> int:
    """As `compilations`, with gradients of every floating-point argument compared too."""
    recorder = Recorder()
    compiled = compile_recorded(function, recorder)
    for args in calls:
        ours, theirs = _leaves(args), _leaves(args)
        actual, expected = compiled(*ours), function(*theirs)
        assert_same(actual, expected)
        actual.square().sum().backward()
        expected.square().sum().backward()
        assert_same(_gradients(ours), _gradients(theirs))
    return len(recorder.graphs)


def _leaves(args: Sequence[Any]) -> list[Any]:
    return [a.detach().clone().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]


def _gradients(args: Sequence[Any]) -> list[Tensor | None]:
    return [a.grad for a in pytree.tree_leaves(args) if isinstance(a, Tensor) and a.requires_grad]


def entries(*sizes: int) -> list[tuple[Tensor]]:
    """One vector argument of each size."""
    return [(torch.randn(size),) for size in sizes]
