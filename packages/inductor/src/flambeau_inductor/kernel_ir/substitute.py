"""Variables of the kernel IR under other names.

In: a statement or an expression, and what each variable becomes. Out: the same with those in place of it, where it is read and where it is defined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import attrs

from .values import Index, Node, Pointer, Variable

Part = TypeVar("Part")


def substituted(part: Part, names: Mapping[Variable, Variable]) -> Part:
    """``part``, a statement, an expression or a tuple of them, with every variable of ``names`` replaced."""
    found: Any = part
    if isinstance(part, Variable):
        found = names.get(part, part)
    elif isinstance(part, tuple):
        found = tuple(substituted(each, names) for each in part)
    elif isinstance(part, Index):
        spelled = tuple((symbol, substituted(node, names)) for symbol, node in part.names)
        found = Index(part.expression, spelled, part.tiles)
    elif attrs.has(type(found)) and not isinstance(part, Pointer):
        fields = attrs.fields(type(found))
        found = type(found)(*(substituted(getattr(part, field.name), names) for field in fields))
    return found


def children(node: Node) -> Iterator[Node]:
    """The operands of an expression, in order."""
    if isinstance(node, Index):
        yield from (name for _, name in node.names)
        return
    for attribute in attrs.fields(type(node)):
        value = getattr(node, attribute.name)
        for part in value if isinstance(value, tuple) else (value,):
            if attrs.has(type(part)) and hasattr(part, "tiles"):
                yield part


def walk(root: Node) -> Iterator[Node]:
    """An expression and everything below it, operands after what they belong to."""
    stack = [root]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(children(top))))
