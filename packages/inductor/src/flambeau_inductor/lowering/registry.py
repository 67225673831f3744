"""Rules of lowering: ATen overload → rule.

In: ``@lowers("relu")`` on functions ``rule(g: Builder, *args, **kwargs)`` whose tensor arguments are ``TensorValue``s, ints are ints or
``Expr``s. Out: rows of ``ops/aten.py``'s registry. A rule that meets a case it does not take raises ``Decline(reason)``: the op then runs
as a library call, and the reason is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._ops import OpOverload

from ..ops.aten import Rule, Treatment, aten_op, declare, overloads_of, rows

_Function = TypeVar("_Function", bound=Rule)


#: The reason for calls that no kernel was expected of.
LEFT = "left to the library"


class Decline(Exception):
    """This call is better (or only) done by the library; the message is the reason."""


def lowers(*names: str, **facts: Any) -> Callable[[_Function], _Function]:
    """Give ATen overloads a rule, by name: ``"add.Tensor"``; ``"relu"`` means ``relu.default``. An overload has one rule.

    ``facts`` are further fields of their ``AtenOp``: what stages need to know of the op beside its rule. Names that this torch lacks do no harm.
    """

    def decorate(rule: _Function) -> _Function:
        full = (name if "." in name else f"{name}.default" for name in names)
        declare(*full, treatment=Treatment.LOWERED, rule=rule, **facts)
        return rule

    return decorate


def rule_for(op: Any) -> Rule | None:
    """The rule of an overload, or None."""
    return aten_op(op).rule if isinstance(op, OpOverload) else None


def lowered_ops() -> tuple[OpOverload, ...]:
    """Every overload that has a rule."""
    return tuple(op for row in rows() if row.rule is not None for op in overloads_of(row.name))
