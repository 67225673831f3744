"""itertools.

In: calls met while tracing. Out: lazy iterators over values; those that can be made again outlive a graph break.
"""

from __future__ import annotations

from operator import index as as_index
from typing import TYPE_CHECKING, Any

from ..library import itertools
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.iterators import ComputedIterator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_ITERTOOLS: Any = itertools
"""For its classes without a public name, which no stub has."""


@replaces(itertools.chain)
def chain(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _chained(t, t.wrapper.sequence(list(args), list).realise(t).iterate(t))


@replaces(itertools.chain.from_iterable)
def chain_from(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _chained(t, args[0].realise(t).iterate(t))


def _chained(t: Tracer, outer: Value) -> Value:
    current: list[Value | None] = [None]

    def step(t: Tracer) -> Value | None:
        while True:
            if current[0] is not None:
                item = current[0].next(t)
                if item is not None:
                    return item
                current[0] = None
            following = outer.next(t)
            if following is None:
                return None
            current[0] = following.realise(t).iterate(t)

    return ComputedIterator(itertools.chain, step, ends="reached")


@replaces(itertools.islice)
def islice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = [t.folder.concrete(arg) for arg in args[1:]]
    try:
        itertools.islice((), *given)
    except (TypeError, ValueError) as error:
        raise t.exceptions.raised(error) from None
    bounds = slice(*given)
    source = args[0].realise(t).iterate(t)
    stop = None if bounds.stop is None else as_index(bounds.stop)
    wanted = itertools.count(bounds.start or 0, bounds.step or 1)
    following = [next(wanted)]
    state = [0]

    def step(t: Tracer) -> Value | None:
        # As CPython: nothing is drawn behind the last element that is wanted, but everything before the bound is.
        goal = following[0] if stop is None else min(following[0], stop)
        while state[0] < goal:
            if source.next(t) is None:
                return None
            state[0] += 1
        if stop is not None and state[0] >= stop:
            return None
        item = source.next(t)
        if item is None:
            return None
        state[0] += 1
        following[0] = next(wanted)
        return item

    return ComputedIterator(itertools.islice, step, ends="failed")


@replaces(itertools.repeat)
def repeat(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    times = t.folder.integer(args[1]) if len(args) > 1 else None
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
    current = [args[0] if args else ConstantValue(0)]
    increment = args[1] if len(args) > 1 else ConstantValue(1)
    if not all(value.python_type() in (int, float, complex) for value in (current[0], increment)):
        raise GraphBreak("unsupported-call", "itertools.count of something else than plain numbers")

    def step(t: Tracer) -> Value | None:
        found = current[0]
        current[0] = t.operators.binary("+", found, increment)
        return found

    return ComputedIterator(itertools.count, step, lambda: (current[0], increment))


@replaces(itertools.cycle)
def cycle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    source: list[Value] = [args[0].realise(t).iterate(t)]
    items: list[Value] = []
    state = [0]

    def step(t: Tracer) -> Value | None:
        if source:
            item = source[0].next(t)
            if item is not None:
                items.append(item)
                return item
            source.clear()
        state[0] += 1
        return items[(state[0] - 1) % len(items)] if items else None

    return ComputedIterator(itertools.cycle, step)


def _combined(target: Any, pools: Any) -> None:
    """A function that draws everything from its arguments at once; `pools` gives what it is then called with."""

    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        try:
            rows = iter(target(*pools(t, args, kwargs)))
        except (TypeError, ValueError) as error:
            raise t.exceptions.raised(error) from None

        def step(t: Tracer) -> Value | None:
            row = next(rows, None)
            return None if row is None else t.wrapper.sequence(list(row), tuple)

        return ComputedIterator(target, step)

    replaces(target)(replacement)


def _pool(t: Tracer, value: Value) -> list[Value]:
    return t.operators.collect(value)


def _product_pools(t: Tracer, args: Args, kwargs: Kwargs) -> list[list[Value]]:
    times = t.folder.integer(kwargs["repeat"]) if "repeat" in kwargs else 1
    if times < 0:
        raise t.exceptions.raised(ValueError("repeat argument cannot be negative"))
    return [_pool(t, arg) for arg in args] * times


def _chosen_pools(t: Tracer, args: Args, kwargs: Kwargs) -> list[Any]:
    pool = _pool(t, args[0])
    if not all(issubclass(arg.python_type(), (int, type(None))) for arg in args[1:]):  # none of `__index__`
        t.folder.real_error(itertools.permutations, [t.wrapper.sequence([], tuple), *args[1:]], {})
    lengths = [t.folder.integer(arg) for arg in args[1:] if not (arg.is_constant() and arg.constant() is None)]
    return [pool, *lengths]


_combined(itertools.product, _product_pools)
_combined(itertools.permutations, _chosen_pools)
_combined(itertools.combinations, lambda t, args, kwargs: [*reversed([t.folder.integer(args[1]), _pool(t, args[0])])])
_combined(
    itertools.combinations_with_replacement,
    lambda t, args, kwargs: [*reversed([t.folder.integer(args[1]), _pool(t, args[0])])],
)


@replaces(itertools.pairwise)
def pairwise(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    source = args[0].realise(t).iterate(t)
    last: list[Value] = []

    def step(t: Tracer) -> Value | None:
        if not last:
            first = source.next(t)
            if first is None:
                return None
            last.append(first)
        item = source.next(t)
        if item is None:
            return None
        row = t.wrapper.sequence([last[0], item], tuple)
        last[0] = item
        return row

    return ComputedIterator(itertools.pairwise, step, ends="failed")


@replaces(itertools.zip_longest)
def zip_longest(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fill = kwargs.get("fillvalue", ConstantValue(None))
    sources: list[Value | None] = [arg.realise(t).iterate(t) for arg in args]

    def step(t: Tracer) -> Value | None:
        row: list[Value] = []
        for place, source in enumerate(sources):
            item = None if source is None else source.next(t)
            if item is None:
                sources[place] = None
                if not any(sources):
                    return None
            row.append(fill if item is None else item)
        return t.wrapper.sequence(row, tuple) if row else None

    return ComputedIterator(itertools.zip_longest, step)


@replaces(itertools.accumulate)
def accumulate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function = args[1] if len(args) > 1 else ConstantValue(None)
    plain = function.is_constant() and function.constant() is None
    source = args[0].realise(t).iterate(t)
    first = kwargs.get("initial", ConstantValue(None))
    total: list[Value] = []

    def step(t: Tracer) -> Value | None:
        if not total and not (first.is_constant() and first.constant() is None):
            total.append(first)
            return first
        item = source.next(t)
        if item is None:
            return None
        if not total:
            total.append(item)
        else:
            total[0] = (
                t.operators.binary("+", total[0], item) if plain else t.caller.call(function, [total[0], item], {})
            )
        return total[0]

    return ComputedIterator(itertools.accumulate, step)


@replaces(itertools.starmap)
def starmap(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, source = args[0], args[1].realise(t).iterate(t)

    def step(t: Tracer) -> Value | None:
        row = source.next(t)
        return None if row is None else t.caller.call(function, list(t.operators.iterate_all(row)), {})

    return ComputedIterator(itertools.starmap, step, lambda: (function, source))


@replaces(itertools.takewhile)
def takewhile(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    predicate, source = args[0], args[1].realise(t).iterate(t)
    ended = [False]

    def step(t: Tracer) -> Value | None:
        item = None if ended[0] else source.next(t)
        if item is not None and not t.caller.call(predicate, [item], {}).truth(t):
            ended[0] = True
            return None
        return item

    return ComputedIterator(
        itertools.takewhile, step, lambda: (predicate, t.wrapper.sequence([], list) if ended[0] else source)
    )


@replaces(itertools.dropwhile)
def dropwhile(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    predicate, source = args[0], args[1].realise(t).iterate(t)
    dropping = [True]

    def step(t: Tracer) -> Value | None:
        item = source.next(t)
        while dropping[0] and item is not None and t.caller.call(predicate, [item], {}).truth(t):
            item = source.next(t)
        dropping[0] = dropping[0] and item is None
        return item

    return ComputedIterator(itertools.dropwhile, step)


@replaces(itertools.compress)
def compress(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    source, chosen = (arg.realise(t).iterate(t) for arg in args)

    def step(t: Tracer) -> Value | None:
        while (item := source.next(t)) is not None and (kept := chosen.next(t)) is not None:
            if kept.truth(t):
                return item
        return None

    return ComputedIterator(itertools.compress, step, lambda: (source, chosen))


@replaces(itertools.filterfalse)
def filterfalse(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    predicate, source = args[0], args[1].realise(t).iterate(t)

    def step(t: Tracer) -> Value | None:
        while (item := source.next(t)) is not None:
            is_none = predicate.is_constant() and predicate.constant() is None
            kept = item if is_none else t.caller.call(predicate, [item], {})
            if not kept.truth(t):
                return item
        return None

    return ComputedIterator(itertools.filterfalse, step, lambda: (predicate, source))


@replaces(itertools.groupby)
def groupby(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    key = args[1] if len(args) > 1 else ConstantValue(None)
    plain = key.is_constant() and key.constant() is None
    source = args[0].realise(t).iterate(t)
    # The element that was drawn and belongs to no group that was given yet, with its key; the number of the group.
    ahead: list[tuple[Value, Value]] = []
    group = [0]

    def draw(t: Tracer) -> bool:
        item = source.next(t)
        if item is None:
            return False
        ahead[:] = [(item, item if plain else t.caller.call(key, [item], {}))]
        return True

    def step(t: Tracer) -> Value | None:
        last = current[0] if current else None
        while not ahead or (last is not None and t.operators.same_or_equal(ahead[0][1], last)):
            if not draw(t):
                return None
        current[:] = [ahead[0][1]]
        group[0] += 1
        return t.wrapper.sequence([current[0], _group(group[0])], tuple)

    def _group(mine: int) -> Value:
        def inner(t: Tracer) -> Value | None:
            if mine != group[0] or (not ahead and not draw(t)):
                return None
            item, found = ahead[0]
            if not t.operators.same_or_equal(found, current[0]):
                return None
            ahead.clear()
            return item

        return ComputedIterator(_ITERTOOLS._grouper, inner)

    current: list[Value] = []
    return ComputedIterator(itertools.groupby, step)


@replaces(itertools.tee)
def tee(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    count = t.folder.integer(args[1]) if len(args) > 1 else 2
    if count < 0:
        raise t.exceptions.raised(ValueError("n must be >= 0"))
    source = args[0].realise(t).iterate(t)
    drawn: list[Value] = []

    def reader() -> Value:
        place = [0]

        def step(t: Tracer) -> Value | None:
            if place[0] == len(drawn):
                item = source.next(t)
                if item is None:
                    return None
                drawn.append(item)
            place[0] += 1
            return drawn[place[0] - 1]

        return ComputedIterator(_ITERTOOLS._tee, step)

    return t.wrapper.sequence([reader() for _ in range(count)], tuple)
