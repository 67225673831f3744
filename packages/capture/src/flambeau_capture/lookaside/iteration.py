"""itertools.

In: calls met while tracing. Out: lazy iterators over values; those that can be made again outlive a graph break.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.iterators import ComputedIterator
from .registry import replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


@replaces(itertools.chain)
def chain(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _chained(t, t.iterate(t.sequence(list(args), list)))


@replaces(itertools.chain.from_iterable)
def chain_from(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _chained(t, t.iterate(args[0]))


def _chained(t: Tracer, outer: Value) -> Value:
    current: list[Value | None] = [None]

    def step(t: Tracer) -> Value | None:
        while True:
            if current[0] is not None:
                item = current[0].next(t)
                if item is not None:
                    return item
            following = outer.next(t)
            if following is None:
                return None
            current[0] = t.iterate(following)

    return ComputedIterator(itertools.chain, step)


@replaces(itertools.islice)
def islice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bounds = slice(*(t.concrete(a) for a in args[1:]))
    source = t.iterate(args[0])
    start, step_size = bounds.start or 0, bounds.step or 1
    state = [0]

    def step(t: Tracer) -> Value | None:
        while bounds.stop is None or state[0] < bounds.stop:
            item = source.next(t)
            if item is None:
                return None
            state[0] += 1
            if state[0] - 1 >= start and (state[0] - 1 - start) % step_size == 0:
                return item
        return None

    return ComputedIterator(itertools.islice, step)


@replaces(itertools.repeat)
def repeat(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    times = t.concrete(args[1]) if len(args) > 1 else t.concrete(kwargs["times"]) if "times" in kwargs else None
    state = [0]

    def step(t: Tracer) -> Value | None:
        if times is not None and state[0] >= times:
            return None
        state[0] += 1
        return args[0]

    return ComputedIterator(
        itertools.repeat,
        step,
        lambda: (args[0], *(() if times is None else (ConstantValue(max(times - state[0], 0)),))),
    )


@replaces(itertools.count)
def count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    current = [args[0] if args else kwargs.get("start", ConstantValue(0))]
    increment = args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))

    def step(t: Tracer) -> Value | None:
        found = current[0]
        current[0] = t.binary("+", found, increment)
        return found

    return ComputedIterator(itertools.count, step, lambda: (current[0], increment))


@replaces(itertools.cycle)
def cycle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = list(t.iterate_all(args[0]))
    state = [0]

    def step(t: Tracer) -> Value | None:
        state[0] += 1
        return items[(state[0] - 1) % len(items)] if items else None

    return ComputedIterator(itertools.cycle, step)


def _listed(target: Any, combine: Any) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return t.iterate(t.sequence([t.sequence(list(group), tuple) for group in combine(t, args, kwargs)], list))

    replaces(target)(replacement)


_listed(
    itertools.product,
    lambda t, args, kwargs: itertools.product(
        *(list(t.iterate_all(a)) for a in args), repeat=t.concrete(kwargs["repeat"]) if "repeat" in kwargs else 1
    ),
)
_listed(
    itertools.permutations,
    lambda t, args, kwargs: itertools.permutations(list(t.iterate_all(args[0])), *(t.concrete(a) for a in args[1:])),
)
_listed(
    itertools.combinations,
    lambda t, args, kwargs: itertools.combinations(list(t.iterate_all(args[0])), t.concrete(args[1])),
)
_listed(itertools.pairwise, lambda t, args, kwargs: itertools.pairwise(list(t.iterate_all(args[0]))))


@replaces(itertools.zip_longest)
def zip_longest(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fill = kwargs.get("fillvalue", ConstantValue(None))
    rows = itertools.zip_longest(*(list(t.iterate_all(a)) for a in args), fillvalue=fill)
    return t.iterate(t.sequence([t.sequence(list(row), tuple) for row in rows], list))


@replaces(itertools.accumulate)
def accumulate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function = args[1] if len(args) > 1 else kwargs.get("func")
    totals: list[Value] = [kwargs["initial"]] if "initial" in kwargs and not kwargs["initial"].is_constant() else []
    for item in t.iterate_all(args[0]):
        if not totals:
            totals.append(item)
        elif function is None or function.is_constant():
            totals.append(t.binary("+", totals[-1], item))
        else:
            totals.append(t.call(function, [totals[-1], item], {}))
    return t.iterate(t.sequence(totals, list))


@replaces(itertools.starmap)
def starmap(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.iterate(
        t.sequence([t.call(args[0], list(t.iterate_all(group)), {}) for group in t.iterate_all(args[1])], list)
    )


@replaces(itertools.takewhile)
def takewhile(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    predicate, source = args[0], t.iterate(args[1])
    ended = [False]

    def step(t: Tracer) -> Value | None:
        item = None if ended[0] else source.next(t)
        if item is None or not t.truth(t.call(predicate, [item], {})):
            ended[0] = True
            return None
        return item

    return ComputedIterator(
        itertools.takewhile, step, lambda: (predicate, t.sequence([], list) if ended[0] else source)
    )


@replaces(itertools.dropwhile)
def dropwhile(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    predicate, source = args[0], t.iterate(args[1])
    dropping = [True]

    def step(t: Tracer) -> Value | None:
        item = source.next(t)
        while dropping[0] and item is not None and t.truth(t.call(predicate, [item], {})):
            item = source.next(t)
        dropping[0] = False
        return item

    return ComputedIterator(itertools.dropwhile, step)


@replaces(itertools.compress)
def compress(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    source, chosen = (t.iterate(arg) for arg in args)

    def step(t: Tracer) -> Value | None:
        while (item := source.next(t)) is not None and (kept := chosen.next(t)) is not None:
            if t.truth(kept):
                return item
        return None

    return ComputedIterator(itertools.compress, step, lambda: (source, chosen))


@replaces(itertools.filterfalse)
def filterfalse(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    predicate, source = args[0], t.iterate(args[1])

    def step(t: Tracer) -> Value | None:
        while (item := source.next(t)) is not None:
            kept = item if predicate.is_constant() else t.call(predicate, [item], {})
            if not t.truth(kept):
                return item
        return None

    return ComputedIterator(itertools.filterfalse, step, lambda: (predicate, source))


@replaces(itertools.groupby)
def groupby(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.iterate(t.call(t.wrap_pinned(_groups), args, kwargs))


def _groups(iterable: Any, key: Any = None) -> list[tuple[Any, Any]]:
    """Groups in full; that each group ends when the next one starts makes no difference to a loop that uses them in turn."""
    groups: list[tuple[Any, list[Any]]] = []
    for item in iterable:
        found = item if key is None else key(item)
        if groups and groups[-1][0] == found:
            groups[-1][1].append(item)
        else:
            groups.append((found, [item]))
    return [(found, iter(items)) for found, items in groups]


@replaces(itertools.tee)
def tee(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    count = t.concrete(args[1]) if len(args) > 1 else t.concrete(kwargs["n"]) if "n" in kwargs else 2
    items = list(t.iterate_all(args[0]))
    return t.sequence([t.iterate(t.sequence(items, list)) for _ in range(count)], tuple)
