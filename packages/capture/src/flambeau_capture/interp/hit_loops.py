"""`HitLoops`: loops over the numbers that somebody chose, traced as loops over all numbers.

    for expert in (mask.sum(dim=(-1, -2)) > 0).nonzero(): ...

In: a tensor that a `for` statement goes over. Out: an iterator that gives a known number a round, if it is what `graph/idle_rounds.py` calls hits. After
the last round it is looked whether all that a round does is what those do for whose numbers nobody asked: nothing. If they do more, or cannot be traced, the
frame is traced anew, and that loop breaks the graph: how many rounds it has depends on data.

A round may leave nothing behind but what it adds to tensors: no variable that is read later, no change of an object, no generator or iterator that it draws from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.fx import Node

from ..graph.idle_rounds import Hits, Round, are_idle, hits_of, rows_of
from ..refusal import TraceAnew
from ..rewrite.resume import sees_locals
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.iterators import IteratorValue
from ..values.sequences import TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from ..values.walk import reachable
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

    from ..values.base import Tracer
    from .frame import Frame

#: Rounds of one loop, and of all of a trace: each is traced and compiled.
_MOST, _MOST_OF_A_TRACE = 64, 256


class HitLoops(Part):
    """The loops of one trace that go over all numbers."""

    def __init__(self, t: Tracer, refused: set[tuple[CodeType, int]]) -> None:
        super().__init__(t)
        #: Loops that earlier traces could not show to be loops over all numbers.
        self._refused = refused
        self._open: list[_NumbersIterator] = []
        self._rounds = 0

    def iterate(self, frame: Frame, value: Value) -> Value | None:
        """The iterator of a `for` statement at the next instruction of `frame`; None where the loop is not over hits, or more than that."""
        t = self.t
        if not isinstance(value, TensorValue) or value.node is None or t.overrides.listens or t.graph.bodies:
            return None
        found = hits_of(value.node) if type(value.fake) is not torch.Tensor else None
        place = (frame.code, frame.next_index)
        if found is None or sees_locals(frame.code) or place in self._refused or _can_draw(frame):
            return None
        self._rounds += found.count
        if found.count > _MOST or self._rounds > _MOST_OF_A_TRACE:
            return None
        t.members.refuse_patched(value, "__iter__")
        # Each round's sizes are its own: what torch keeps of results on fakes is never found again, and takes most of the time.
        t.graph.fake_mode.cache_enabled = False
        made = _NumbersIterator(t, frame, found, value)
        self._open.append(made)
        return made

    def truth(self, value: Value) -> bool | None:
        """Whether a condition on the numbers of rows that the round has found holds, where it is not idle; None for what that does not tell."""
        if not self._open or not isinstance(value, SymbolicValue) or not isinstance(value.symbol, torch.SymBool):
            return None
        counts = {symbol for iterator in self._open for symbol in iterator.rows()}
        positive = {symbol: type(symbol)(symbol.name, integer=True, positive=True) for symbol in counts}
        condition = value.symbol.node.expr.subs(positive)
        return bool(condition) if condition in (True, False) else None

    def ended(self, iterator: _NumbersIterator) -> None:
        """A loop came to its end, and may stay as it is."""
        self._open.remove(iterator)

    def check(self, read: Iterable[Value] = ()) -> None:
        """Trace anew where a loop did not come to the end of all rounds, which nobody may have asked for, or what it bound is `read` later."""
        for iterator in self._open:
            self.give_up(iterator, "a loop over chosen numbers is left")
        for value in read:
            if isinstance(value, _Forgotten):
                value.realise(self.t)

    def give_up(self, iterator: _NumbersIterator, why: str) -> NoReturn:
        """Raise `TraceAnew`, after which the loop is one over those numbers that somebody chose."""
        self._refused.add(iterator.place)
        raise TraceAnew(GraphBreak("data-dependent-value", why))


def _can_draw(frame: Frame) -> bool:
    """Whether what the frame's variables lead to holds an iterator, of which nothing tells that it went on."""
    return any(isinstance(part, IteratorValue) for part in reachable(_roots(frame)).values())


def _roots(frame: Frame) -> list[Value]:
    return [*frame.locals.values(), *frame.cells.values()]


class _Forgotten(Value):
    """What a variable holds that a round of a loop over all numbers bound: another round may have been the last one that was asked for."""

    __slots__ = ("_iterator",)

    def __init__(self, iterator: _NumbersIterator) -> None:
        super().__init__()
        self._iterator = iterator

    def realise(self, t: Tracer) -> Value:
        loops: HitLoops = t.hit_loops
        loops.give_up(self._iterator, "a variable is read that a loop over chosen numbers bound")


class _NumbersIterator(IteratorValue):
    """Gives 0, 1, 2, ... as tensors like the rows of `hits`."""

    __slots__ = ("_began", "_frame", "_hits", "_like", "_rounds", "_state", "_variables", "_watch", "place")

    def __init__(self, t: Tracer, frame: Frame, hits: Hits, value: TensorValue) -> None:
        super().__init__()
        self.place: tuple[CodeType, int] = (frame.code, frame.next_index)
        self._frame, self._variables = frame, dict(frame.locals)
        self._hits, self._like = hits, value.fake
        self._watch = t.heap.watching(_roots(frame))
        self._watch.__enter__()
        self._state = _state(t)
        self._began: Node | None = None
        self._rounds: list[Round] = []

    def python_type(self) -> type:
        return type(iter(()))

    def next(self, t: Tracer) -> Value | None:
        number = len(self._rounds)
        if self._began is not None:
            self._rounds.append(Round(number, tuple(_since(self._began))))
            self._forget_variables()
            number += 1
        if number == self._hits.count:
            self._end(t)
            return None
        self._began = next(iter(reversed(t.graph.graph.nodes)))
        like = self._like
        sizes = TupleValue([ConstantValue(size) for size in like.shape[1:]], tuple)
        named = {"dtype": t.wrapper.from_python(like.dtype), "device": t.wrapper.from_python(like.device)}
        item = t.recorder.record("call_function", torch.full, [sizes, ConstantValue(number)], named)
        assert isinstance(item, TensorValue)
        item.number = number
        return item

    def rows(self) -> set[Any]:
        """The numbers of rows that the round has found so far."""
        return (
            set() if self._began is None else rows_of(self._hits, Round(len(self._rounds), tuple(_since(self._began))))
        )

    def _forget_variables(self) -> None:
        variables = self._frame.locals
        for name in {*variables, *self._variables}:
            if variables.get(name) is not self._variables.get(name):
                variables[name] = self._variables[name] = _Forgotten(self)

    def _end(self, t: Tracer) -> None:
        if _state(t) != self._state or not are_idle(self._hits, self._rounds, differentiated=torch.is_grad_enabled()):
            t.hit_loops.give_up(self, "a round of a loop over chosen numbers does more than add rows")
        self._watch.__exit__(None, None, None)
        t.hit_loops.ended(self)


def _state(t: Tracer) -> tuple[Any, ...]:
    """What a round leaves as it is: objects, generators, modes."""
    graph = t.graph
    return t.heap.size(), len(t.generators), len(graph.open_modes), torch.is_grad_enabled()


def _since(last: Node) -> list[Node]:
    """The operations behind a node; inputs are in front of all."""
    found = []
    node = last.next
    while node.op != "root":
        found.append(node)
        node = node.next
    return found
