"""`RepeatedCalls`: a call of a module that is like an earlier one is not traced again: the operations of that one are recorded once more.

In: a module, the arguments of its call, and the way to trace it. Out: the result, by one way or the other.

The first call of a class is traced, the second one is traced and remembered, every further one may repeat that, with this module's tensors in the
place of the other's. The calls are alike where

- every guard that the trace has about the remembered module, and all that it led to, holds of this one and all that it leads to. Guards say all
  that a trace assumed of what was there before the frame: by them a compiled frame serves other modules, and so does a remembered call;
- the arguments are the same objects or constants, or tensors that the graph computed, with the same properties and sharing of memory;
- nothing has changed in between that the code may have read: torch's modes, what the frame wrote to, the properties of the tensors that it saw.

A call is not remembered if it changed anything outside of itself, saw what leads to its module (the model, a list of its layers), or made what is more
than operations on tensors of sizes that are known.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..guards.check import Resolved, all_hold
from ..guards.paths import Inside, Moved, leads_from, sources_of
from ..guards.state import current_state
from ..sources.source import Pinned, roots_of, steps
from ..values.base import MISSING, Value
from ..values.tensor import TensorValue
from ..values.walk import same_things
from .likeness import Matching, NotAlike, TensorLikeness, is_of, likeness_of, tensors_in
from .part import Part
from .repetition import Repetition, check_operands, nodes_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.fx import Node

    from ..guards.spec import GuardSpec
    from ..sources.source import Source
    from ..values.objects import ObjectValue
    from .likeness import Likeness

_FEWEST = 3
"""Operations below which tracing again costs no more."""
_MOST = 4
"""Calls of a class that are traced with a look at what they do: those of layers are alike, or are not."""


@frozen(eq=False)
class _Given:
    """The arguments of a call, and the names of those that have one."""

    likenesses: tuple[Likeness, ...]
    names: tuple[str, ...]


@frozen(eq=False)
class _Remembered:
    """A call that was traced.

    Attributes:
        source: of the module.
        state: what the code may have read besides the module and its arguments.
        held: the contents of what the frame made and what was there before leads to.
        guards: those about the module and what it leads to.
        inputs: the tensors that it led to.
        others: further tensors that were there before the call, which the code saw.
        depth: how many frames, and how many calls of modules, were around it.
    """

    source: Source
    given: _Given
    state: tuple[Any, ...]
    held: tuple[Any, ...]
    guards: tuple[GuardSpec, ...]
    inputs: tuple[TensorLikeness, ...]
    others: tuple[TensorLikeness, ...]
    nodes: tuple[Node, ...]
    result: Likeness
    depth: tuple[int, int]


class RepeatedCalls(Part):
    """The calls of one trace."""

    def __init__(self, t: Any) -> None:
        super().__init__(t)
        # By class: what is remembered, and how many calls were traced.
        self._known: dict[type, list[_Remembered]] = {}
        self._traces: Counter[type] = Counter()
        #: What the program has on its stacks, or asks for an attribute, while a call is traced that may be remembered.
        self.seen: set[Value] | None = None

    def call(
        self, module: ObjectValue, args: Sequence[Value], kwargs: Mapping[str, Value], trace: Callable[[], Value]
    ) -> Value:
        """`module(*args, **kwargs)`; `trace` traces it."""
        source, kind = module.source, module.python_type()
        if module.object is MISSING or not module.object.__dict__.get("_modules"):
            return trace()
        if source is None or self.t.guards.is_trusted(source):
            return trace()
        if not self._is_plain():
            return trace()
        given, names, known = [*args, *kwargs.values()], tuple(kwargs), self._known.setdefault(kind, [])
        for earlier in known:
            found = self._repeated(earlier, module, given, names)
            if found is not None:
                return found
        self._traces[kind] += 1
        if not 1 < self._traces[kind] <= _MOST:
            return trace()
        result, made = self._traced(source, given, names, trace)
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
        return current_state(), self.t.heap.size(), tuple(graph.open_modes), len(graph.settings)

    def _is_changed(self, source: Source) -> bool:
        """Whether the frame has changed an object that a module leads to: its guards do not tell."""
        return any(target.source is None or leads_from(target.source, source) for target in self.t.heap.targets())

    # a call that is traced

    def _traced(
        self, source: Source, given: Sequence[Value], names: tuple[str, ...], trace: Callable[[], Value]
    ) -> tuple[Value, _Remembered | None]:
        """The result, and what is to be remembered."""
        t, met, held = self.t, set[int](), self.t.heap.held()
        try:
            likenesses = tuple(likeness_of(t, value, met) for value in given)
        except NotAlike:
            return trace(), None
        if held is None or self._is_changed(source):
            return trace(), None
        state = self._state(), held
        before = state[0], self._writes(likenesses), len(t.graph.lasting), len(t.generators)
        last = next(iter(reversed(t.graph.graph.nodes)), None)
        with t.heap.watching(given), self._noting() as seen:
            result = trace()
        try:
            self._check_effects(likenesses, *before)
            nodes, answer = nodes_since(t.graph.graph, last), likeness_of(t, result, met)
            check_operands(nodes, likenesses, answer)
            return result, self._remembered(source, _Given(likenesses, names), state, nodes, answer, seen)
        except NotAlike:
            return result, None

    @contextmanager
    def _noting(self) -> Iterator[set[Value]]:
        """What the program sees meanwhile."""
        outer, self.seen = self.seen, set[Value]()
        try:
            yield self.seen
        finally:
            if outer is not None:
                outer |= self.seen
            self.seen = outer

    def _writes(self, given: Sequence[Likeness]) -> int:
        """How often tensors from outside were written to: arguments, and all inputs."""
        fakes = (
            *(value.fake for value in tensors_in(given)),
            *(fake for _, fake, _ in self.t.wrapper.tensor_inputs),
        )
        return sum(fake._version for fake in fakes if not fake.is_inference())

    def _check_effects(
        self, given: Sequence[Likeness], state: tuple[Any, ...], writes: int, lasting: int, generators: int
    ) -> None:
        """Raises `NotAlike` where something outside of the call, or of what is in force, is not as it was."""
        same = self._state() == state and self._writes(given) == writes and len(self.t.graph.lasting) == lasting
        over = all(generator.done for generator in self.t.generators[generators:])
        if not (same and over and self._is_plain()):
            raise NotAlike

    def _remembered(
        self,
        source: Source,
        given: _Given,
        state: tuple[tuple[Any, ...], tuple[Any, ...]],
        nodes: Sequence[Node],
        result: Likeness,
        seen: set[Value],
    ) -> _Remembered:
        """Raises `NotAlike` for a short call, and where the code may have come to something of the module by another path than from the module."""
        if len(nodes) < _FEWEST:
            raise NotAlike
        above = {id(step) for step in steps(source)} - {id(source)}
        if is_of(given.likenesses, source) or any(id(value.source) in above for value in seen):
            raise NotAlike
        self._refuse_methods(source)
        inside = Inside(source)
        guards = tuple(g for g in self.t.guards.specs if any(map(inside, sources_of(g))))
        wrapped = (self.t.wrapper.wrapped[id(real)] for real, _, path in self.t.wrapper.tensor_inputs if inside(path))
        inputs = [value for value in wrapped if isinstance(value, TensorValue)]
        compared, made = {*inputs, *tensors_in(given.likenesses)}, set(nodes)
        others = [v for v in seen if isinstance(v, TensorValue) and v not in compared and v.node not in made]
        depth = len(self.t.frames.user_stack()), len(self.t.graph.calls)
        return _Remembered(
            source, given, *state, guards, _like(inputs), _like(others), tuple(nodes), result, depth
        )  # fmt: skip

    def _refuse_methods(self, source: Source) -> None:
        """Raises `NotAlike` where a guard is about a method bound to an object that the module leads to, which is named by itself."""
        for root in roots_of(path for guard in self.t.guards.specs for path in sources_of(guard)):
            owner = getattr(root.value, "__self__", None) if isinstance(root, Pinned) else None
            value = self.t.wrapper.wrapped.get(id(owner))
            if value is not None and value.source is not None and leads_from(value.source, source):
                raise NotAlike

    # a call that is repeated

    def _repeated(
        self, earlier: _Remembered, module: ObjectValue, given: Sequence[Value], names: tuple[str, ...]
    ) -> Value | None:
        """The result of a call like an earlier one; None, with nothing recorded, where it is not."""
        t, source, before, matching = self.t, module.source, earlier.given, Matching(self.t)
        assert source is not None
        if names != before.names or self._state() != earlier.state:
            return None
        if self._is_changed(source) or self._is_changed(earlier.source) or is_of(before.likenesses, source):
            return None
        held = t.heap.held()
        if held is None or not same_things(held, earlier.held):
            return None
        if not all(other.fits(other.value) for other in earlier.others):
            return None
        if not matching.matches(before.likenesses, given):
            return None
        real, moved = Resolved(t.info.locals, t.info.globals, t.info.builtins), Moved(earlier.source, source)
        guards = list(map(moved.spec, earlier.guards))
        if not all_hold(guards, real):
            return None
        for tensor in earlier.inputs:
            assert tensor.value.source is not None
            path = moved.path(tensor.value.source)
            found = t.wrapper.wrap(real[path], path)
            if not isinstance(found, TensorValue) or not tensor.fits(found):
                return None
        for guard in guards:
            t.guards.add(guard)
        repetition = Repetition(t, before.likenesses, matching, moved, real)
        repetition.record(earlier.nodes, earlier.depth)
        return repetition.value(earlier.result)


def _like(values: Sequence[TensorValue]) -> tuple[TensorLikeness, ...]:
    return tuple(map(TensorLikeness.of, values))
