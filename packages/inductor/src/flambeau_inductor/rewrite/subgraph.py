"""Where a graph computes what another graph computes.

In: a *pattern*, a functional graph whose placeholders are operands and whose output is a tuple of calls; a graph. Out: every way to find its calls there, as
``Found``. Operands are nodes. In ``loosely`` calls have to agree in their ops and in how they read each other; numbers, dtypes and lists of numbers may differ.
Symbolic numbers agree where they are the same expression. Nothing is edited, no guard is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from flambeau_runtime.scalars import number_key

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@frozen
class Found:
    """``nodes`` of the graph (or numbers) by nodes of the pattern."""

    nodes: dict[fx.Node, Any]

    def calls(self) -> list[fx.Node]:
        """The nodes that were found for calls of the pattern that give tensors."""
        return [
            self.nodes[node]
            for node in self.nodes
            if node.op == "call_function" and isinstance(self.nodes[node], fx.Node) and not _is_number(node)
        ]


def results_of(pattern: fx.Graph) -> tuple[fx.Node, ...]:
    """The calls that a pattern returns."""
    (results,) = pattern.output_node().args
    return tuple(results)


def find(
    pattern: fx.Graph,
    root: fx.Node,
    *,
    loosely: bool = False,
    operands: Sequence[fx.Node] | None = None,
) -> Iterator[Found]:
    """The ways in which ``root`` is the last result of ``pattern``; ``operands``: where these are known."""
    start: dict[fx.Node, Any] = {}
    if operands is not None:
        start = dict(zip(pattern.find_nodes(op="placeholder"), operands, strict=True))
    *others, last = results_of(pattern)
    for bound in _node(last, root, start, loosely):
        yield from _rest(others, bound, loosely)


def _rest(results: Sequence[fx.Node], bound: dict[fx.Node, Any], loosely: bool) -> Iterator[Found]:
    """Results that the last one does not lead to are looked for among the readers of what is found."""
    result = next((result for result in results if result not in bound), None)
    if result is None:
        yield Found(bound)
        return
    # One is enough: what is found for it is among the readers of what it reads.
    inner, known = next(_entries(result, bound), (None, None))
    if inner is None or known is None:
        return
    for candidate in list(known.users):
        if candidate.target == inner.target and candidate not in bound.values():
            for more in _node(inner, candidate, bound, loosely):
                yield from _rest(results, more, loosely)


def _entries(result: fx.Node, bound: dict[fx.Node, Any]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Calls before ``result`` that are not found and read a node that is, with what was found for that."""
    pending, seen = [result], {result}
    while pending:
        node = pending.pop()
        for source in node.all_input_nodes:
            if source in bound:
                if isinstance(bound[source], fx.Node):
                    yield node, bound[source]
            elif source not in seen:
                seen.add(source)
                pending.append(source)


def _node(wanted: fx.Node, value: Any, bound: dict[fx.Node, Any], loosely: bool) -> Iterator[dict[fx.Node, Any]]:
    if wanted in bound:
        if bound[wanted] is value or (_is_number(wanted) and _same_number(bound[wanted], value)):
            yield bound
        return
    if _is_number(wanted):
        if loosely or _same_number(wanted, value):
            yield {**bound, wanted: value}
        return
    if not isinstance(value, fx.Node):
        return
    if wanted.op == "placeholder":
        if isinstance(value.meta.get("val"), torch.Tensor):
            yield {**bound, wanted: value}
        return
    if wanted.op != value.op or wanted.target != value.target or wanted.op != "call_function":
        return
    if value in bound.values():
        return
    yield from _all(
        [*zip(wanted.args, value.args), *((part, value.kwargs.get(name)) for name, part in wanted.kwargs.items())]
        if len(wanted.args) == len(value.args) and wanted.kwargs.keys() == value.kwargs.keys()
        else None,
        {**bound, wanted: value},
        loosely,
    )


def _all(pairs: list[tuple[Any, Any]] | None, bound: dict[fx.Node, Any], loosely: bool) -> Iterator[dict[fx.Node, Any]]:
    if pairs is None:
        return
    if not pairs:
        yield bound
        return
    (wanted, value), *rest = pairs
    for more in _argument(wanted, value, bound, loosely):
        yield from _all(rest, more, loosely)


def _argument(wanted: Any, value: Any, bound: dict[fx.Node, Any], loosely: bool) -> Iterator[dict[fx.Node, Any]]:
    if isinstance(wanted, fx.Node):
        yield from _node(wanted, value, bound, loosely)
    elif isinstance(wanted, tuple | list) and any(isinstance(part, fx.Node) for part in wanted):
        if isinstance(value, tuple | list) and len(value) == len(wanted):
            yield from _all(list(zip(wanted, value, strict=True)), bound, loosely)
    elif loosely:
        if not _is_tensor(value):
            yield bound
    elif _same_constant(wanted, value):
        yield bound


def _same_constant(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, tuple | list):
        return isinstance(value, tuple | list) and len(wanted) == len(value) and all(map(_same_constant, wanted, value))
    if isinstance(value, fx.Node) or isinstance(wanted, fx.Node):
        return _same_number(wanted, value)
    return number_key(wanted) == number_key(value)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and not _is_number(value)


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (*_SYMBOLIC, int, float))


def _same_number(one: Any, other: Any) -> bool:
    """Whether two numbers, or nodes that stand for some, are known to be equal."""
    one, other = (part.meta.get("val") if isinstance(part, fx.Node) else part for part in (one, other))
    if isinstance(one, _SYMBOLIC) and isinstance(other, _SYMBOLIC):
        return bool(one.node.expr == other.node.expr)
    return isinstance(one, int | float) and number_key(one) == number_key(other)
