"""Decompositions of a program's own: what an operator is made of, in calls of torch.

In: ``register_decomposition(op, formula)`` where ``formula`` takes the operator's arguments and computes its results. Out: ``own_decompositions()``, laid over
the table that graphs are traced with; operators that have a lowering of the program's are left whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import ExtensionError
from .calls import facts, told
from .operators import overloads
from .table import Entry, Registration, checked_uuid, entries

KIND = "decomposition"


def register_decomposition(
    ops: Any, formula: Callable[..., Any] | None = None, *, uuid: str | None = None
) -> Registration:
    """Have graphs that are traced from now on contain what ``formula`` calls in the place of ``ops``."""
    targets, uuid = overloads(ops), checked_uuid(uuid)

    def enter(function: Callable[..., Any]) -> list[Entry]:
        taken = {entry.payload[0] for entry in entries("lowering")}
        if both := taken.intersection(targets):
            raise ExtensionError(f"{min(map(str, both))} has a lowering of yours, which wants to meet it whole")
        return [Entry(KIND, str(op), uuid, (op, _held(op, function))) for op in targets]

    return Registration(enter, formula)


def own_decompositions() -> dict[OpOverload, Callable[..., Any] | None]:
    """What was registered."""
    return {
        entry.payload[0]: entry.payload[1] if entry.kind == KIND else None
        for entry in entries()
        if entry.kind in (KIND, "lowering")
    }


def _held(op: OpOverload, formula: Callable[..., Any]) -> Callable[..., Any]:
    """``formula``, whose failures name it, held to the operator's own results as far as their facts go."""

    @functools.wraps(formula)
    def run(*args: Any, **kwargs: Any) -> Any:
        made = told(f"the decomposition of {op}", functools.partial(formula, *args, **kwargs))
        wanted = _results(op, args, kwargs)
        if wanted is not None and (given := _facts(made)) != _facts(wanted):
            raise ExtensionError(f"the decomposition of {op} gives {given}; the operator gives {_facts(wanted)}")
        return made

    return run


def _results(op: OpOverload, args: Any, kwargs: Any) -> Any:
    """What the operator gives for these fakes; None where that is not known without computing."""
    if torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags:
        return None
    tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    if not tensors or not all(isinstance(value, FakeTensor) for value in tensors):
        return None
    with _disable_current_modes(), torch.no_grad():
        return op(*args, **kwargs)


def _facts(results: Any) -> str:
    parts = results if isinstance(results, tuple | list) else [results]
    return ", ".join(map(facts, parts))
