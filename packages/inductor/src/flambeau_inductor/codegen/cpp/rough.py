"""Which elementary functions of a kernel may be rough, for their results are rounded to 16 bits at last.

In: the body of a kernel in the kernel IR. Out: the ops for which ``rough.hpp`` has a function.

A rough result errs by 2**-17 of itself, an eighth of a percent of what rounding to bfloat16 errs by at most. Products and quotients keep that; a difference
of numbers that are nearly the same does not. So each use is followed up to where it is rounded. Results of sigmoid and tanh err by as much of their distance
from 1 and -1 too, so that these may be added to and taken from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ... import kernel_ir as kir
from ...kernel_ir import Node
from .short_nans import statements_of

#: Scalar op -> the support function for it.
ROUGH = {"exp": "rough_exp", "sigmoid": "rough_sigmoid", "tanh": "rough_tanh"}
_BESIDE_ONE = frozenset({"sigmoid", "tanh"})
#: What errs by as much of its result as its operands do of theirs.
_KEEPS = frozenset({"abs", "maximum", "minimum", "mul", "neg", "reciprocal", "relu", "truediv", "where"})


def rough_ops(body: kir.Block) -> frozenset[kir.Op]:
    """The ops on lanes that may be computed by the functions of ``ROUGH``."""
    statements = list(statements_of(body))
    local = {s.pointer.name for s in statements if isinstance(s, kir.LocalArray)}
    stores = [s for s in statements if isinstance(s, kir.Store)]
    assigned = [(s.targets[0].name, s.value) for s in statements if isinstance(s, kir.Assign)]
    asked = [(name, op) for name, op in assigned if isinstance(op, kir.Op) and op.name in ROUGH and op.tiles]
    if not asked or not all(s.pointer.name in local or s.pointer.dtype is torch.bfloat16 for s in stores):
        return frozenset()
    uses: dict[str, list[kir.Statement]] = {}
    for statement in statements:
        for name in _used(statement):
            uses.setdefault(name, []).append(statement)
    return frozenset(op for name, op in asked if op.dtype is torch.float32 and _is_harmless(name, op.name, uses))


def _is_harmless(result: str, function: str, uses: Mapping[str, list[kir.Statement]]) -> bool:
    """Whether all that is made of ``result``, which ``function`` computes, errs by no more, up to where it is rounded."""
    pending, seen = [result], {result}
    while pending:
        name = pending.pop()
        for s in uses.get(name, ()):
            found: list[str] = []
            if isinstance(s, kir.Store):
                found = [s.pointer.name]
            elif isinstance(s, kir.Assign | kir.Update):
                if s.value.dtype in (torch.bfloat16, torch.bool):
                    continue
                if not (_keeps(s.value) or (name == result and _keeps_beside(s.value, function))):
                    return False
                found = [target.name for target in s.targets]
            else:
                return False
            pending += set(found) - seen
            seen.update(found)
    return True


def _used(s: kir.Statement) -> set[str]:
    """The variables and the memory whose values a statement takes."""
    if isinstance(s, kir.Assign | kir.Update | kir.Store):
        return _names(s.value)
    if isinstance(s, kir.If):
        return _names(s.condition)
    if isinstance(s, kir.Check):
        return _names(s.position)
    return {s.array.name, s.running.name} if isinstance(s, kir.RunInPlace) else set()


def _names(node: Node) -> set[str]:
    """The variables, and the memory, that an expression is made of."""
    if isinstance(node, kir.Variable):
        return {node.name}
    if isinstance(node, kir.Load):
        return {node.pointer.name}
    return set().union(*map(_names, _parts(node)))


def _parts(node: Node) -> Iterator[Node]:
    if isinstance(node, kir.Op | kir.Reduce):
        yield from node.operands
    elif isinstance(node, kir.Combine):
        yield from (*node.old, *node.new)
    elif isinstance(node, kir.Cast | kir.Broadcast | kir.AsIndex):
        yield node.value


def _keeps(node: Node) -> bool:
    """Whether ``node`` errs by no more of itself than its operands do of themselves."""
    if isinstance(node, kir.Combine | kir.Reduce):
        return node.kind in ("sum", "max", "min")
    if isinstance(node, kir.Op):
        plain = not any(isinstance(part, kir.Op) and part.name != "to_dtype" for part in node.operands)
        return plain and (node.name in _KEEPS or (node.name == "to_dtype" and node.dtype is torch.float32))
    return isinstance(node, kir.Load | kir.Cast | kir.Broadcast)


def _keeps_beside(node: Node, function: str) -> bool:
    """The same of what is added to, or taken from, the result of ``function``."""
    if not isinstance(node, kir.Op) or node.name not in ("add", "sub"):
        return False
    numbers = [
        part.value.value for part in node.operands if isinstance(part, kir.Full) and isinstance(part.value, kir.Number)
    ]
    number = numbers[0] if numbers else 0
    if function in _BESIDE_ONE:
        return abs(number) == 1
    return node.name == "add" and number > 0
