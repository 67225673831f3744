"""Which tensors an argument of a call is, by the expressions of `mutates_args`: `buffer`, `model.running_mean`, `buffers[0]`, `state["key"]`.

In: expressions, a function and what it is called with. Out: the places of the tensors among those of the call.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .library import inspect, operator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def check_expressions(function: Callable[..., Any], expressions: Sequence[str]) -> None:
    """Raise ValueError for an expression that does not begin with a parameter's name, or is none of these."""
    known = inspect.signature(function).parameters if expressions else {}
    for expression in expressions:
        root = _steps(expression)[0]
        if root not in known:
            raise ValueError(
                f"{expression!r} of mutates_args begins with {root!r}, which is no parameter: there are {', '.join(known)}"
            )


def tensors_written(
    function: Callable[..., Any],
    expressions: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tensors: Sequence[torch.Tensor],
) -> list[int]:
    """Places among `tensors`.

    Raises:
        ValueError: for an expression that is not a tensor of the call, or a container of such.
    """
    if not expressions:
        return []
    arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    places: set[int] = set()
    for expression in expressions:
        root, *steps = _steps(expression)
        found = arguments.get(root, None)
        for how, name in steps:
            found = how(found, name)
        for leaf in pytree.tree_leaves(found):
            mine = [place for place, tensor in enumerate(tensors) if tensor is leaf]
            if leaf is not None and not mine:
                raise ValueError(
                    f"{expression!r} of mutates_args is no tensor among the arguments, nor a container of such"
                )
            places.update(mine)
    return sorted(places)


def _steps(expression: str) -> list[Any]:
    """The name that an expression begins with, and (how, what) is read from there on."""
    steps: list[Any] = []
    try:
        node = ast.parse(expression, mode="eval").body
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                steps.append((getattr, node.attr))
            elif isinstance(node, ast.Subscript):
                steps.append((operator.getitem, ast.literal_eval(node.slice)))
            else:
                raise ValueError
            node = node.value
    except (SyntaxError, ValueError):
        raise ValueError(
            f"{expression!r} of mutates_args is not a parameter, nor an attribute or item of one"
        ) from None
    return [node.id, *reversed(steps)]
