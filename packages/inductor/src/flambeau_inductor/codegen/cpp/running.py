"""Scans along rows that add float32 up in double precision: what lies in memory meanwhile is float32, so that lanes are as wide as without them.

In: a ``KernelBody``. Out: the same with such scans over float32, and their names; who writes the kernel keeps their last value as a double.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ...ir.kernel import KernelBody, ScanStep, Statement
from ...ir.scalar import Scalar, indirect_scalars, reduced, transform, walk
from ...schedule.nest import values


def without_doubles(body: KernelBody) -> tuple[KernelBody, frozenset[str]]:
    """The body, and the names of its scans that are to be computed in double precision."""
    names = frozenset(s.name for s in body.statements if isinstance(s, ScanStep) and _is_of_floats(s.value))
    if names:
        names -= _used_as_doubles(body)
    if not names:
        return body, names

    def replace(node: Scalar) -> Scalar | None:
        if node.op == "to_dtype" and node.args[1].kind == "reduced" and node.args[1].args[0] in names:
            return reduced(node.args[1].args[0], node.dtype)
        return None

    def rewrite(statement: Statement) -> Statement:
        value = transform(statement.value, replace)
        if isinstance(statement, ScanStep) and statement.name in names:
            return evolve(statement, value=value.args[1], dtype=torch.float32)
        return evolve(statement, value=value)

    return evolve(body, statements=tuple(map(rewrite, body.statements))), names


def _is_of_floats(value: Scalar) -> bool:
    return value.op == "to_dtype" and value.dtype is torch.float64 and value.args[1].dtype is torch.float32


def _used_as_doubles(body: KernelBody) -> set[str]:
    """Results that are used as anything but the float32 that they are rounded to."""
    roots = [v for s in body.statements for v in values(s)]
    found = {root.args[0] for root in roots if root.kind == "reduced"}
    for node in walk(*roots):
        if node.op == "to_dtype" and node.dtype is torch.float32:
            continue
        found.update(part.args[0] for part in (*node.children, *indirect_scalars(node)) if part.kind == "reduced")
    return found
