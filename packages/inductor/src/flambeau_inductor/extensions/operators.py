"""Which operators a registration names, and what it may say of them.

In: overloads, packets, custom operators, or lists of them. Out: ``OpOverload``s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from ..errors import ExtensionError
from ..ops.aten import Treatment, aten_op

_FIXED = (Treatment.ITEM, Treatment.ASSERTION, Treatment.IGNORED)


def overloads(ops: Any) -> tuple[OpOverload, ...]:
    """Every functional overload that ``ops`` names. ExtensionError for what is no operator, and for one that writes to its arguments."""
    given = list(ops) if isinstance(ops, Iterable) and not isinstance(ops, OpOverloadPacket) else [ops]
    found = [overload for op in given for overload in _of(op)]
    if not found:
        raise ExtensionError("no operator is named")
    for overload in found:
        _check(overload)
    return tuple(dict.fromkeys(found))


def _of(op: Any) -> list[OpOverload]:
    if isinstance(op, CustomOpDef):
        op = op._opoverload
    if isinstance(op, OpOverload):
        return [op]
    if isinstance(op, OpOverloadPacket):
        every = [getattr(op, name) for name in op.overloads()]
        return [overload for overload in every if not overload._schema.is_mutable and _gives_tensors(overload)]
    raise ExtensionError(
        f"{op!r} is no operator of torch's dispatcher",
        hint="give torch.ops.library.name, or what torch.library.custom_op made",
    )


def _gives_tensors(op: OpOverload) -> bool:
    """Not so of overloads for plain numbers, which are in no graph."""
    return any("Tensor" in str(result.type) for result in op._schema.returns)


def _check(op: OpOverload) -> None:
    schema = op._schema
    if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
        raise ExtensionError(
            f"{op} writes to its arguments or returns a view; functional operators alone can be registered"
        )
    if not schema.returns:
        raise ExtensionError(f"{op} returns nothing")
    if aten_op(op).draws:
        raise ExtensionError(f"{op} draws random numbers, whose order the compiler keeps")
    if aten_op(op).treatment in _FIXED:
        raise ExtensionError(f"{op} is no computation: it reads or checks a number")
