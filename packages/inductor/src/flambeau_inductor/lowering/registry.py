"""The lowering table: ATen overload → rule.

In: ``@lowers(aten.relu.default)`` on functions ``rule(g: Builder, *args, **kwargs)`` whose tensor arguments are ``TensorValue``s, ints are
ints or ``Expr``s. Out: ``rule_for(op)``. A rule that meets a case it does not take raises ``Decline(reason)``: the op then runs as
a library call, and the reason is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Rule = Callable[..., Any]
_RULES: dict[Any, Rule] = {}
_UNKNOWN: list[str] = []
_Function = TypeVar("_Function", bound=Rule)


class Decline(Exception):
    """This call is better (or only) done by the library; the message is the reason."""


def overload(name: str) -> Any:
    """``aten`` overload ``"add.Tensor"`` (``"relu"`` means ``relu.default``), or None where this torch does not have it."""
    base, _, suffix = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return None if packet is None else getattr(packet, suffix or "default", None)


def lowers(*names: str) -> Callable[[_Function], _Function]:
    """Register a rule for ATen overloads given by name; an overload has one rule. Names this torch lacks are left out (``unknown_names``)."""

    def decorate(rule: _Function) -> _Function:
        for name in names:
            op = overload(name)
            if op is None:
                _UNKNOWN.append(name)
                continue
            if op in _RULES:
                raise ValueError(f"{name} is lowered twice")
            _RULES[op] = rule
        return rule

    return decorate


def rule_for(op: Any) -> Rule | None:
    """The rule of an overload, or None."""
    return _RULES.get(op)


def unknown_names() -> tuple[str, ...]:
    """The names of rules that this torch has no overload for."""
    return tuple(_UNKNOWN)


def lowered_ops() -> tuple[Any, ...]:
    """Every overload that has a rule."""
    return tuple(_RULES)
