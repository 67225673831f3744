"""`Repetition`: the operations of a call that was traced, recorded once more for another module.

In: the nodes of that call and its result, what stands for its arguments, where the other module is. Out: new nodes, and the result.
"""

from __future__ import annotations

from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from ..values.base import Value
from .likeness import ContainerLikeness, NotAlike, TensorLikeness, tensors_in
from .messages import tell_of_operation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..guards.check import Resolved
    from ..guards.paths import Moved
    from ..sources.source import Source
    from ..values.base import Tracer
    from .likeness import Likeness, Matching

_OF_OPERATIONS = frozenset(("val", "stack", "calls", "module"))
"""What is known of a node that is nothing but an operation."""


class Repetition:
    """One call that is recorded again.

    Args:
        given: the arguments of the call that was traced.
        matching: what stands for those.
        moved: paths from that call's module, from the other one.
        real: the real objects at paths.
    """

    def __init__(self, t: Tracer, given: Sequence[Likeness], matching: Matching, moved: Moved, real: Resolved) -> None:
        self._t, self._moved, self._real = t, moved, real
        # By the identity of a tensor's value: the one in its place, of arguments and of results.
        self._values: dict[int, Value] = {id(value): matching.instead(value) for value in tensors_in(given)}
        self._given = {value.node: matching.instead(value) for value in tensors_in(given) if value.node is not None}
        # Node -> the node in its place, and that one's fake.
        self._nodes: dict[Node, tuple[Node, Any]] = {}
        self._numbers: dict[int, int] = {}

    def record(self, nodes: Sequence[Node], depth: tuple[int, int]) -> None:
        """Record the operations; `depth` is how many frames, and how many calls of modules, were around them."""
        frames, graph = self._t.frames, self._t.graph
        frames.note_handlers()
        around, outer = frames.user_stack(), graph.calls
        try:
            for node in nodes:
                frames.stamped = (*around, *node.meta["stack"][depth[0] :])
                graph.calls = (*outer, *map(self._renumbered, node.meta.get("calls", ())[depth[1] :]))
                self._nodes[node] = self._recorded(node)
        finally:
            frames.stamped, graph.calls = None, outer

    def value(self, likeness: Likeness) -> Value:
        """What a part of the result is, once the operations are recorded."""
        if isinstance(likeness, ContainerLikeness):
            return likeness.made([self.value(item) for item in likeness.items])
        if not isinstance(likeness, TensorLikeness):
            return self._there(likeness.source) or likeness
        old = likeness.value
        found = self._values.get(id(old))
        if found is None:
            if old.node in self._nodes:
                node, fake = self._nodes[old.node]
                found = self._t.recorder.wrap_result(fake, node)
            else:
                found = self._there(old.source) or old
            self._values[id(old)] = found
        return found

    def _there(self, source: Source | None) -> Value | None:
        """What is at the place of something that the traced call's module led to; None for what is elsewhere."""
        path = source if source is None else self._moved.path(source)
        return None if path is None or path is source else self._t.wrapper.wrap(self._real[path], path)

    def _renumbered(self, call: tuple[int, str, bool, str]) -> tuple[int, str, bool, str]:
        number, *rest = call
        if number not in self._numbers:
            self._numbers[number] = self._t.graph.next_call()
        return (self._numbers[number], *rest)  # type: ignore[return-value]

    def _recorded(self, node: Node) -> tuple[Node, Any]:
        """The same operation on what is in the place of its operands."""
        graph = self._t.graph
        if _takes_part(node):
            whole, value = self._operand(node.args[0])
            part = value[node.args[1]]
            return graph.derive(getitem, (whole, node.args[1]), part), part
        args, fakes = _split([self._both(arg) for arg in node.args])
        named, fakes_named = _split_dict({name: self._both(arg) for name, arg in node.kwargs.items()})
        made, result = graph.call(node.op, node.target, args, named, (fakes, fakes_named))
        if graph.heard or graph.kernels:
            tell_of_operation(self._t, partial(graph.run, node.op, node.target, fakes, fakes_named))
        return made, result

    def _both(self, argument: Any) -> tuple[Any, Any]:
        """An argument in the graph, and on fakes."""
        if isinstance(argument, Node):
            return self._operand(argument)
        if isinstance(argument, tuple | list):
            nodes, fakes = _split([self._both(item) for item in argument])
            return (tuple(nodes), tuple(fakes)) if isinstance(argument, tuple) else (nodes, fakes)
        if isinstance(argument, dict):
            return _split_dict({key: self._both(item) for key, item in argument.items()})
        if isinstance(argument, slice):
            nodes, fakes = _split([self._both(part) for part in (argument.start, argument.stop, argument.step)])
            return slice(*nodes), slice(*fakes)
        return argument, argument

    def _operand(self, node: Any) -> tuple[Node, Any]:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = self._outside(node)
        return found

    def _outside(self, node: Node) -> tuple[Node, Any]:
        """What is in the place of an argument, of an input, of a constant."""
        graph = self._t.graph
        value: Any = self._given.get(node)
        if value is None and node.op == "placeholder":
            value = self._there(graph.inputs[graph.input_nodes.index(node)])
        if value is None:
            return node, node.meta["val"]
        return self._t.recorder.node_of(value), value.fake


def nodes_since(graph: Graph, last: Node | None) -> list[Node]:
    """What was recorded behind a node (None: from the beginning). Raises `NotAlike` where that is more than operations on tensors."""
    node = graph._root.next if last is None else last.next
    found = []
    while node is not graph._root:
        if not _is_operation(node):
            raise NotAlike
        found.append(node)
        node = node.next
    return found


def check_operands(nodes: Sequence[Node], given: Sequence[Likeness], result: Likeness) -> None:
    """Raises `NotAlike` where an operation, or the result, is of what is no argument, no input and no constant of the trace."""
    known: set[Node | None] = {*nodes, *(value.node for value in tensors_in(given))}
    operands = (operand for node in nodes for operand in node.all_input_nodes)
    if not all(operand in known or operand.op in ("placeholder", "get_attr") for operand in operands):
        raise NotAlike
    if not all(value.source is not None or value.node in known for value in tensors_in([result])):
        raise NotAlike


def _is_operation(node: Node) -> bool:
    """Whether a node is an operation on tensors, or a part of the result of one."""
    if node.op not in ("call_function", "call_method") or not _OF_OPERATIONS.issuperset(node.meta):
        return False
    value = node.meta["val"]
    if isinstance(value, tuple | list):
        return all(part is None or isinstance(part, torch.Tensor) for part in value)
    return isinstance(value, torch.Tensor)


def _takes_part(node: Node) -> bool:
    """Whether a node is a part of a result of several."""
    whole = node.args[0] if node.args else None
    return node.target is getitem and isinstance(whole, Node) and isinstance(whole.meta["val"], tuple | list)


def _split(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [node for node, _ in pairs], [fake for _, fake in pairs]


def _split_dict(pairs: Mapping[Any, tuple[Any, Any]]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return {key: node for key, (node, _) in pairs.items()}, {key: fake for key, (_, fake) in pairs.items()}
