"""`RepeatedCalls`: a call of a module that is like an earlier one is not traced again: the operations of that one are recorded once more.

In: a module, the arguments of its call, and the way to trace it. Out: the result, by one way or the other.

The first call of a class is traced, the second one is traced and remembered, every further one may repeat that: with this module's tensors in the
place of the other's. The calls are alike where

- every guard that the trace has about the remembered module, and all that it led to, holds of this one and all that it leads to. Guards say all
  that a trace assumed of what was there before the frame: by them a compiled frame serves other modules, and so does a remembered call;
- the arguments are the same objects or constants, or tensors that the graph computed, with the same properties and sharing of memory;
- nothing has changed in between that the code may have read: torch's modes, and what the frame wrote to.

A call is not remembered if it changed anything outside of itself, saw what leads to its module (the model, a list of its layers), or made what is more
than operations on tensors of sizes that are known.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import cache, partial
from operator import getitem
from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve, fields, frozen
from torch.fx import Graph, Node

from ..guards.check import Resolved, all_hold
from ..guards.spec import GuardSpec, IdentityIs
from ..guards.state import current_state
from ..sources.source import Pinned, Source, Step, root_of, steps
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.mappings import DictValue
from ..values.sequences import ListValue, TupleValue
from ..values.tensor import TensorValue
from .messages import tell_of_operation
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..values.objects import ObjectValue

_FEWEST = 3
"""Operations below which tracing again costs no more."""
_MOST = 4
"""Calls of a class that are traced with a look at what they do: those of layers are alike, or are not."""
_OF_CALLS = frozenset(("val", "stack", "calls"))
"""What is known of a node that is nothing but an operation."""


class _NotAlike(Exception):
    """A value has no counterpart."""


@frozen(eq=False)
class _Remembered:
    """A call that was traced.

    Attributes:
        source: of the module.
        given: what stands for the arguments, with the contents that containers had.
        state: what the code may have read besides.
        guards: those about the module and what it leads to.
        inputs: sources of the tensors that it led to.
        nodes: what was recorded, in order.
        result: what stands for the result.
        depth: how many frames, and how many calls of modules, were around it.
    """

    source: Source
    given: Any
    state: tuple[Any, ...]
    guards: tuple[GuardSpec, ...]
    inputs: tuple[Source, ...]
    nodes: tuple[Node, ...]
    result: Any
    depth: tuple[int, int]


@frozen(eq=False)
class _Computed:
    """A tensor in what stands for arguments or a result: which one, and its properties."""

    value: TensorValue
    properties: tuple[Any, ...]


@frozen(eq=False)
class _Container:
    """A list, tuple or dict of the trace's own, with what it held."""

    made: Callable[[list[Value]], Value]
    kind: tuple[Any, ...]
    items: tuple[Any, ...]


class RepeatedCalls(Part):
    """The calls of one trace."""

    def __init__(self, t: Any) -> None:
        super().__init__(t)
        #: What is remembered of each class, and how many calls of it were traced.
        self._known: dict[type, list[_Remembered]] = {}
        self._traces: Counter[type] = Counter()
        #: What the program has on its stacks, or asks for an attribute, while a call is traced that may be remembered.
        self.seen: set[Value] | None = None

    def call(
        self, module: ObjectValue, args: Sequence[Value], kwargs: Mapping[str, Value], trace: Callable[[], Value]
    ) -> Value:
        """`module(*args, **kwargs)`; `trace` traces it."""
        kind = module.python_type()
        if module.object is MISSING or not module.object.__dict__.get("_modules"):
            return trace()
        if module.source is None or self.t.guards.is_trusted(module.source):
            return trace()
        given, names, known = [*args, *kwargs.values()], tuple(kwargs), self._known.setdefault(kind, [])
        if known and self._is_plain():
            for earlier in known:
                found = self._repeated(earlier, module, given, names)
                if found is not None:
                    return found
        self._traces[kind] += 1
        if not 1 < self._traces[kind] <= _MOST or not self._is_plain():
            return trace()
        result, made = self._traced(module, given, names, trace)
        if made is not None:
            known.append(made)
        return result

    def _is_plain(self) -> bool:
        """Whether nothing is in force or about that a remembered call does not know of."""
        graph, overrides = self.t.graph, self.t.overrides
        return not (
            graph.region is not None or graph.bodies or graph.wraps or graph.shape_env is not None or graph.open_inference
            or overrides.listens or overrides.has_subclasses or self.t.wrapper.rehearsing
        )  # fmt: skip

    def _state(self) -> tuple[Any, ...]:
        """What the code of a module may read besides the module and its arguments."""
        graph = self.t.graph
        return current_state(), self.t.heap.size(), tuple(map(id, graph.open_modes)), len(graph.settings)

    # a call that is traced

    def _traced(
        self, module: ObjectValue, given: Sequence[Value], names: tuple[str, ...], trace: Callable[[], Value]
    ) -> tuple[Value, _Remembered | None]:
        """The result, and what is to be remembered."""
        t, graph, source = self.t, self.t.graph, module.source
        assert source is not None
        try:
            met = set[int]()
            stands = tuple(self._stands_for(value, met) for value in given), names
        except _NotAlike:
            return trace(), None
        if self._is_written(source) or _is_within(stands[0], source):
            return trace(), None
        state, generators, lasting = self._state(), len(t.generators), len(graph.lasting)
        tensors = [value.fake for value in _tensors(stands[0])]
        written = self._writes(tensors)
        last = next(iter(reversed(graph.graph.nodes)), None)
        with t.heap.watching(given), self._noting() as seen:
            result = trace()
        above = {id(step) for step in steps(source)} - {id(source)}
        if any(id(value.source) in above for value in seen):
            return result, None
        if (
            self._state() != state
            or not self._is_plain()
            or self._writes(tensors) != written
            or len(graph.lasting) != lasting
        ):
            return result, None
        if not all(generator.done for generator in t.generators[generators:]):
            return result, None
        nodes = tuple(_since(graph.graph, last))
        if len(nodes) < _FEWEST or not all(map(_is_plain_node, nodes)):
            return result, None
        try:
            answer = self._stands_for(result, met)
            _check_nodes(nodes, stands[0], answer)
        except _NotAlike:
            return result, None
        guards = tuple(guard for guard in t.guards.specs if any(_leads_from(s, source) for s in _sources(guard)))
        if self._names_pinned(source):
            return result, None
        inputs = tuple(s for _, _, s in t.wrapper.tensor_inputs if _leads_from(s, source))
        depth = len(t.frames.user_stack()), len(graph.calls)
        return result, _Remembered(source, stands, state, guards, inputs, nodes, answer, depth)

    @contextmanager
    def _noting(self) -> Iterator[set[Value]]:
        """What the program sees meanwhile. Who sees what leads to the module may have come to the module from there, by a path of its own."""
        outer, self.seen = self.seen, set[Value]()
        try:
            yield self.seen
        finally:
            if outer is not None:
                outer |= self.seen
            self.seen = outer

    def _names_pinned(self, source: Source) -> bool:
        """Whether a guard is about what came of the module and is named otherwise: a method bound to an object that `source` leads to."""
        for root in {root_of(path) for guard in self.t.guards.specs for path in _sources(guard)}:
            owner = (
                self.t.wrapper.wrapped.get(id(getattr(root.value, "__self__", None)))
                if isinstance(root, Pinned)
                else None
            )
            if owner is not None and owner.source is not None and _leads_from(owner.source, source):
                return True
        return False

    def _writes(self, tensors: Sequence[torch.Tensor]) -> int:
        """How often tensors from outside were written to: these, and all inputs."""
        fakes = (*tensors, *(fake for _, fake, _ in self.t.wrapper.tensor_inputs))
        return sum(fake._version for fake in fakes if not fake.is_inference())

    def _is_written(self, source: Source) -> bool:
        """Whether the frame has changed an object that a module leads to: its guards do not tell."""
        return any(target.source is None or _leads_from(target.source, source) for target in self.t.heap.targets())

    def _stands_for(self, value: Value, met: set[int]) -> Any:
        """What an argument or a result is compared with, or made again from. Raises `_NotAlike` for what has no counterpart: containers that come up
        twice (in `met`) are among it."""
        value = value.realise(self.t)
        if isinstance(value, ConstantValue):
            return value
        if isinstance(value, TensorValue):
            if value.attrs:
                raise _NotAlike
            return _Computed(value, _properties(value.fake))
        if value.source is not None:
            return value
        parts = _parts(value)
        if parts is None or id(value) in met:
            raise _NotAlike
        met.add(id(value))
        kind, items = parts
        return _Container(_maker(value), kind, tuple(self._stands_for(item, met) for item in items))

    # a call that is repeated

    def _repeated(
        self, earlier: _Remembered, module: ObjectValue, given: Sequence[Value], names: tuple[str, ...]
    ) -> Value | None:
        """The result of a call like an earlier one; None, with nothing recorded, where it is not."""
        t, new = self.t, module.source
        assert new is not None
        before, named = earlier.given
        if named != names or len(before) != len(given) or earlier.state != self._state():
            return None
        if self._is_written(new) or self._is_written(earlier.source) or _is_within(before, new):
            return None
        moved: dict[int, Value] = {}
        if not all(self._is_alike(old, value, moved) for old, value in zip(before, given, strict=True)):
            return None
        if len(set(map(id, moved.values()))) < len(moved) or not _share_alike(moved, [*_tensors(before)]):
            return None
        real = Resolved(t.info.locals, t.info.globals, t.info.builtins)
        paths: dict[int, Source] = {id(earlier.source): new}
        guards = [_moved_guard(guard, paths) for guard in earlier.guards]
        if not all_hold(guards, real):
            return None
        for guard in guards:
            t.guards.add(guard)
        for source in earlier.inputs:
            t.wrapper.wrap(real[_moved(source, paths)], _moved(source, paths))
        return _Repetition(self, earlier, moved, paths, real).result()

    def _is_alike(self, old: Any, value: Value, moved: dict[int, Value]) -> bool:
        """Whether an argument may stand where another one stood; `moved` gets the tensors and containers by those in whose place they are."""
        value = value.realise(self.t)
        if isinstance(old, ConstantValue):
            return value is old or (
                isinstance(value, ConstantValue) and _same_constant(old.constant(), value.constant())
            )
        if isinstance(old, _Computed):
            if not isinstance(value, TensorValue) or value.attrs or _properties(value.fake) != old.properties:
                return False
            if value is not old.value and (value.source is not None or old.value.source is not None):
                return False
            return moved.setdefault(id(old.value), value) is value
        if isinstance(old, _Container):
            found = _parts(value)
            return (
                found is not None
                and found[0] == old.kind
                and moved.setdefault(id(old), value) is value
                and len(found[1]) == len(old.items)
                and all(self._is_alike(before, item, moved) for before, item in zip(old.items, found[1], strict=True))
            )
        return value is old


class _Repetition:
    """One call that is recorded again."""

    def __init__(
        self,
        calls: RepeatedCalls,
        earlier: _Remembered,
        moved: dict[int, Value],
        paths: dict[int, Source],
        real: Resolved,
    ) -> None:
        self._t, self._earlier, self._paths, self._real = calls.t, earlier, paths, real
        #: Node -> the node in its place, and that one's fake.
        self._nodes: dict[Node, tuple[Node, Any]] = {}
        self._given: dict[Node, Value] = {
            value.node: moved[id(value)] for value in _tensors(earlier.given[0]) if value.node is not None
        }
        self._moved = moved
        self._results: dict[int, Value] = {}
        self._numbers: dict[int, int] = {}

    def result(self) -> Value:
        """Record the operations; what stands for the result of the call."""
        t, (frames, calls) = self._t, self._earlier.depth
        t.frames.note_handlers()
        around, outer = t.frames.user_stack(), t.graph.calls
        try:
            for node in self._earlier.nodes:
                t.frames.stamped = (*around, *node.meta["stack"][frames:])
                t.graph.calls = (*outer, *map(self._renumbered, node.meta.get("calls", ())[calls:]))
                self._nodes[node] = self._recorded(node)
        finally:
            t.frames.stamped, t.graph.calls = None, outer
        return self._value(self._earlier.result)

    def _renumbered(self, call: tuple[int, str, bool]) -> tuple[int, str, bool]:
        number = self._numbers.get(call[0])
        if number is None:
            number = self._numbers[call[0]] = self._t.graph.next_call()
        return (number, *call[1:])

    def _recorded(self, node: Node) -> tuple[Node, Any]:
        """The same operation on what is in the place of its operands."""
        t = self._t
        if _takes_part(node):
            whole, value = self._operand(node.args[0])
            part = value[node.args[1]]
            return t.graph.derive(getitem, (whole, node.args[1]), part), part
        args, fakes = _split([self._both(arg) for arg in node.args])
        named, fakes_named = _split_dict({name: self._both(arg) for name, arg in node.kwargs.items()})
        made, result = t.graph.call(node.op, node.target, args, named, (fakes, fakes_named))
        if t.graph.heard or t.graph.kernels:
            tell_of_operation(t, partial(t.graph.run, node.op, node.target, fakes, fakes_named))
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
        t = self._t
        value: Any = self._given.get(node)
        if value is None and node.op == "placeholder":
            source = t.graph.inputs[t.graph.input_nodes.index(node)]
            path = _moved(source, self._paths)
            if path is not source:
                value = t.wrapper.wrap(self._real[path], path)
        if value is None:
            return node, node.meta["val"]
        return t.recorder.node_of(value), value.fake

    def _value(self, stands: Any) -> Value:
        """What a part of the result is."""
        if isinstance(stands, _Container):
            return stands.made([self._value(item) for item in stands.items])
        if isinstance(stands, _Computed):
            return self._tensor(stands.value)
        assert isinstance(stands, Value)
        if stands.source is None:
            return stands
        path = _moved(stands.source, self._paths)
        return stands if path is stands.source else self._t.wrapper.wrap(self._real[path], path)

    def _tensor(self, old: TensorValue) -> Value:
        known: Value | None = self._moved.get(id(old)) or self._results.get(id(old))
        if known is None:
            assert old.node is not None or old.source is not None
            if old.node in self._nodes:
                node, fake = self._nodes[old.node]
                known = self._t.recorder.wrap_result(fake, node)
            else:
                path = _moved(old.source, self._paths) if old.source is not None else None
                known = old if path is None or path is old.source else self._t.wrapper.wrap(self._real[path], path)
            self._results[id(old)] = known
        return known


# nodes


def _check_nodes(nodes: Sequence[Node], given: Any, result: Any) -> None:
    """Raises `_NotAlike` where an operation, or the result, is of what is no argument, no input and no constant of the trace."""
    own = set(nodes)
    known = {value.node for value in _tensors(given)}
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in own and operand not in known and operand.op not in ("placeholder", "get_attr"):
                raise _NotAlike
    for value in _tensors((result,)):
        if value.source is None and value.node not in own and value.node not in known:
            raise _NotAlike


def _since(graph: Graph, last: Node | None) -> Iterator[Node]:
    node = next(iter(graph.nodes), graph._root) if last is None else last.next
    while node is not graph._root:
        yield node
        node = node.next


def _is_plain_node(node: Node) -> bool:
    """Whether a node is an operation, or a part of the result of one."""
    if node.op not in ("call_function", "call_method") or not _OF_CALLS.issuperset(node.meta):
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


# values


def _parts(value: Value) -> tuple[tuple[Any, ...], list[Value]] | None:
    """The kind and the items of a container of the trace's own."""
    if value.source is not None:
        return None
    if type(value) is TupleValue:
        return (TupleValue, value.cls), list(value.items)
    if type(value) is ListValue and value.cls is list:
        return (ListValue, list), list(value.items)
    if type(value) is DictValue and value.cls is dict and value.origin is None and value.default is None:
        if all(key.is_constant() for key, _ in value.items.values()):
            return (DictValue, *value.items), [item for _, item in value.items.values()]
    return None


def _maker(value: Value) -> Callable[[list[Value]], Value]:
    """What makes such a container of other items."""
    if isinstance(value, TupleValue):
        return lambda items: TupleValue(items, value.cls)
    if isinstance(value, ListValue):
        return ListValue
    assert isinstance(value, DictValue)
    keys = [(key, name) for key, (name, _) in value.items.items()]
    return lambda items: DictValue({key: (name, item) for (key, name), item in zip(keys, items, strict=True)}, dict)


def _is_within(stands: Any, module: Source) -> bool:
    """Whether an argument is the module's own: of another one's call it is not known which of the two is meant."""
    if isinstance(stands, tuple):
        return any(_is_within(part, module) for part in stands)
    if isinstance(stands, _Container):
        return _is_within(stands.items, module)
    source = stands.value.source if isinstance(stands, _Computed) else stands.source
    return source is not None and _leads_from(source, module)


def _computed(given: Any) -> Iterator[_Computed]:
    for part in given:
        if isinstance(part, _Computed):
            yield part
        elif isinstance(part, _Container):
            yield from _computed(part.items)


def _tensors(given: Any) -> Iterator[TensorValue]:
    return (part.value for part in _computed(given))


def _same_constant(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other) and bool(one == other or one != one)


def _properties(fake: torch.Tensor) -> tuple[Any, ...]:
    """All that the code of a module may see of a tensor but its values."""
    return (
        fake.dtype, fake.device, fake.layout, tuple(fake.shape), fake.stride(), fake.storage_offset(), fake.requires_grad, fake.is_leaf,
        fake._is_view(), fake.is_inference(), fake.grad_fn is None, torch._C._dispatch_keys(fake).raw_repr(), fake.untyped_storage().nbytes(),
    )  # fmt: skip


def _share_alike(moved: Mapping[int, Value], old: Sequence[TensorValue]) -> bool:
    """Whether tensors share memory where those in whose place they are do."""

    def memory(fakes: Sequence[torch.Tensor]) -> list[int]:
        storages = [fake.untyped_storage()._cdata for fake in fakes]
        return [storages.index(storage) for storage in storages]

    new = [found for value in old if isinstance(found := moved[id(value)], TensorValue)]
    return memory([value.fake for value in old]) == memory([value.fake for value in new])


# sources and guards


def _leads_from(source: Source, start: Source) -> bool:
    """Whether a path comes by a place."""
    return any(step is start for step in steps(source))


def _moved(source: Source, paths: dict[int, Source]) -> Source:
    """The same path from another start; `paths` has that start, and gets what was asked."""
    found = paths.get(id(source))
    if found is None:
        found = source
        if isinstance(source, Step):
            base = _moved(source.base, paths)
            found = source if base is source.base else evolve(source, base=base)
        paths[id(source)] = found
    return found


_SOURCES = frozenset(("source", "other", "sources"))
"""Fields of guards that are a path, or several."""


def _paths(guard: GuardSpec) -> dict[str, tuple[Source, ...]]:
    """The paths that a guard is about, by the field that has them."""
    kind: Any = type(guard)
    found = {name: getattr(guard, name) for name in _fields(kind)}
    return {name: value if isinstance(value, tuple) else (value,) for name, value in found.items()}


def _sources(guard: GuardSpec) -> Iterator[Source]:
    for found in _paths(guard).values():
        yield from found


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name in _SOURCES)


def _moved_guard(guard: GuardSpec, paths: dict[int, Source]) -> GuardSpec:
    moved = {name: tuple(_moved(path, paths) for path in found) for name, found in _paths(guard).items()}
    changes: dict[str, Any] = {name: found if name == "sources" else found[0] for name, found in moved.items()}
    if isinstance(guard, IdentityIs):
        return IdentityIs(changes["source"], guard.expected, position=guard.position)
    return evolve(guard, **changes)
