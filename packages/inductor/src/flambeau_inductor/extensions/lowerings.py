"""Lowerings of a program's own: how an operator becomes loops.

In: ``register_lowering(op, rule)`` where ``rule(loops, *args, **kwargs)`` gets tensors (``sizes``, ``dtype``, ``device``, ``rank``, ``at(index)``) and numbers, and a ``Loops``
to make the result with. Out: the rule in the place of the library's call, and of ours where there is one. What it returns is an element for each index; nothing is stored
before somebody needs memory, so that loops fuse with what comes before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from .. import expr as ex
from ..errors import ExtensionError
from ..ir import scalar as sc
from ..ir.loops import REDUCTION_KINDS
from ..ir.scalar import Scalar
from ..lowering.builder import Builder
from ..lowering.pointwise import elementwise
from ..lowering.reductions import dims_of
from ..lowering.registry import Decline, rule_for
from ..lowering.values import Index, TensorValue, traced_sizes
from ..ops.aten import Rule, own_rules
from .calls import told
from .operators import overloads
from .table import Entry, Registration, checked_uuid, entries, on_change

KIND = "lowering"


class Loops:
    """What a lowering makes its result with. Tensors and scalars are values: nothing is changed in place."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    @property
    def result(self) -> torch.Tensor:
        """The operator's result as its fake says: sizes, dtype, device."""
        return self._builder.out

    def op(self, name: str, *operands: Scalar, dtype: torch.dtype | None = None) -> Scalar:
        """A scalar operation by its name: "add", "mul", "truediv", "exp", "where", "lt", "to_dtype" …; ValueError for one that does not exist."""
        return sc.op(name, *operands, dtype=dtype)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Scalar:
        """A number as a scalar."""
        return self._builder.constant(value, dtype)

    def elementwise(
        self, function: Callable[..., Scalar], *operands: Any, dtype: torch.dtype | None = None
    ) -> TensorValue:
        """``function`` of the scalars of broadcast operands (tensors and numbers), which are promoted as torch does. Half types are computed in float32 and
        rounded once, at the end. ``dtype``: of the result, where it is another than the operands'."""
        return elementwise(self._builder, function, *operands, dtype=dtype)

    def tensor(
        self,
        sizes: Sequence[Any],
        element: Callable[[Index], Scalar],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> TensorValue:
        """The tensor whose element at an index (one expression for each dimension) is ``element(index)``."""
        convert = self._builder.convert
        return self._builder.lazy(
            self._builder.exprs(sizes), dtype, device, lambda index: convert(element(index), dtype)
        )

    def reduce(
        self, tensor: TensorValue, dims: Any, kind: str, *, keepdim: bool = False, dtype: torch.dtype | None = None
    ) -> TensorValue:
        """The "sum", "prod", "max", "min", "any", "all", "argmax" or "argmin" over dimensions; half types are added up in float32."""
        if kind not in REDUCTION_KINDS:
            raise ValueError(f"no reduction is called {kind!r}; there are: {', '.join(REDUCTION_KINDS)}")
        dtype = dtype or (torch.int64 if kind.startswith("arg") else tensor.dtype)
        return self._builder.reduce(tensor, dims_of(tensor, dims), kind, dtype=dtype, keepdim=keepdim)

    def call(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """What another operator's lowering gives for these values. ``Decline`` is raised where that leaves the call to the library."""
        rule = rule_for(op)
        if rule is None:
            raise ExtensionError(f"{op} has no lowering; loops are made of operators that have one")
        return rule(self._builder, *args, **kwargs)

    def decline(self, reason: str) -> Any:
        """Leave this call to the operator's own kernel, for a reason that logs tell."""
        raise Decline(reason)


def register_lowering(ops: Any, rule: Callable[..., Any] | None = None, *, uuid: str | None = None) -> Registration:
    """Have ``rule`` make loops of calls of ``ops``."""
    targets, uuid = overloads(ops), checked_uuid(uuid)

    def enter(function: Callable[..., Any]) -> list[Entry]:
        taken = {entry.payload[0] for entry in entries("decomposition")}
        if both := taken.intersection(targets):
            raise ExtensionError(f"{min(map(str, both))} has a decomposition, and is never lowered")
        return [Entry(KIND, str(op), uuid, (op, _checked(op, function))) for op in targets]

    return Registration(enter, rule)


def _tell() -> None:
    own_rules(dict(entry.payload for entry in entries(KIND)))


on_change(_tell)


def _checked(op: OpOverload, function: Callable[..., Any]) -> Rule:
    """A rule of the program's, held to what the operator's fake says."""

    def rule(g: Builder, *args: Any, **kwargs: Any) -> Any:
        made = told(f"the lowering of {op}", partial(function, Loops(g), *args, **kwargs), Decline)
        val = g.node.meta["val"] if g.node is not None and g.node.target is op else None
        expected = val if isinstance(val, tuple | list) else [val]
        parts = made if isinstance(made, tuple | list) else [made]
        if len(parts) != len(op._schema.returns):
            raise ExtensionError(f"the lowering of {op} gives {len(parts)} results, not {len(op._schema.returns)}")
        for part, fake in zip(parts, expected if val is not None else [None] * len(parts), strict=True):
            _check(op, part, fake)
        return tuple(parts) if isinstance(made, tuple | list) else made

    return rule


def _check(op: OpOverload, part: Any, fake: Any) -> None:
    if not isinstance(part, TensorValue):
        raise ExtensionError(f"the lowering of {op} gives {type(part).__name__}, not a tensor of its loops")
    if not isinstance(fake, torch.Tensor):
        return
    if part.dtype is not fake.dtype or part.device != fake.device or part.rank != fake.dim():
        raise ExtensionError(
            f"the lowering of {op} gives {part.dtype} of {part.rank} dimensions on {part.device}; its fake has {fake.dtype} of {fake.dim()} on {fake.device}"
        )
    sizes, wanted = list(map(ex.hint, part.sizes)), traced_sizes(fake)
    if wanted is not None and sizes != wanted:
        raise ExtensionError(f"the lowering of {op} gives sizes {sizes}; its fake has {wanted}")
