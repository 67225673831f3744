"""Patterns of `match` and descriptors go by what a class says at the time of the call: it may say something else later.

In: programs that change a class between calls, each run in plain Python and compiled, on classes of their own. Out: the same results and errors.
"""

from __future__ import annotations

import collections
import collections.abc
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from .counted_graphs import CountedGraphs

X = torch.ones(2)
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Wrap], Iterator[Any]]


class Sized:
    def __len__(self) -> int:
        return 2


class TwoItems(Sized):
    def __getitem__(self, place: int) -> int:
        if place > 1:
            raise IndexError
        return place + 3


def mapping_by_its_get(wrap: Wrap) -> Iterator[Any]:
    class Bag(collections.abc.MutableMapping):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.held = {"a": 1, "b": 2}

        def __getitem__(self, key: str) -> int:
            return self.held[key]

        __setitem__ = __delitem__ = __contains__ = lambda *_: None

        def __iter__(self) -> Iterator[str]:
            return iter(self.held)

        def __len__(self) -> int:
            return len(self.held)

    bag = Bag()

    def f(x: Tensor) -> Tensor:
        match bag:
            case {"a": v}:
                return x * v + 3
        return x - 1

    g = wrap(f)
    yield g(X)
    Bag.__contains__ = lambda *_: False  # type: ignore[method-assign]
    yield g(X)
    Bag.get = lambda self, key, default=None: 7  # type: ignore[method-assign]
    yield g(X)
    Bag.get = lambda self, key, default=None: default  # type: ignore[method-assign]
    yield g(X)


def mappings_of_the_library(wrap: Wrap) -> Iterator[Any]:
    class Nine(dict):  # type: ignore[type-arg]
        def get(self, key: Any, default: Any = None) -> Any:
            return 9

    subjects: list[Any] = [collections.defaultdict(int, a=1), Nine(a=1), collections.ChainMap({"a": 2}, {"b": 3})]
    subjects += [collections.OrderedDict(a=1), collections.Counter("aab"), types.MappingProxyType({"a": 8}), {}]

    def f(x: Tensor) -> Any:
        found: list[Any] = []
        for subject in subjects:
            match subject:
                case {"a": v, "b": w}:
                    found.append((v, w))
                case {"a": v, **rest}:
                    found.append((v, rest))
                case _:
                    found.append(None)
        return x * 2, found

    yield wrap(f)(X)


def registered_later(wrap: Wrap) -> Iterator[Any]:
    class Both(TwoItems):
        def get(self, key: str, default: Any) -> int:
            return 5

    subject = Both()

    def f(x: Tensor) -> Tensor:
        match subject:
            case [a, b]:
                return x * a + b
            case {"a": v}:
                return x * v
        return x - 1

    g = wrap(f)
    yield g(X)
    collections.abc.Mapping.register(Both)
    yield g(X)


def registered_as_a_sequence(wrap: Wrap) -> Iterator[Any]:
    class Row(TwoItems):
        pass

    row = Row()

    def f(x: Tensor) -> Tensor:
        match row:
            case [a, b]:
                return x * a + b
        return x - 1 if isinstance(row, collections.abc.Sequence) else x

    g = wrap(f)
    yield g(X)
    collections.abc.Sequence.register(Row)
    yield g(X)


class Pair:
    __match_args__ = ("w", "z")

    def __init__(self) -> None:
        self.w = 3


class Number(int):
    pass


def classes(wrap: Wrap) -> Iterator[Any]:
    class Later(Pair):
        pass

    pair, number = Later(), Number(4)

    def by_place(x: Tensor) -> Tensor:
        match pair:
            case Later(1, 2):
                return x * 2
            case Later(3):
                return x * 3
        return x - 1

    def by_name(x: Tensor) -> Tensor:
        match pair:
            case Pair(absent=1):
                return x * 2
            case Pair(w=3):
                return x * 3
        return x - 1

    def itself(x: Tensor) -> Tensor:
        match number:
            case Number(4):
                return x * 2
        return x - 1

    for function in (by_place, by_name, itself):
        yield from outcome(wrap(function))
    g = wrap(by_place)
    for names in (("z", "w"), ("w",)):
        Later.__match_args__ = names
        yield from outcome(g)


def more_by_place(x: Tensor) -> Tensor:
    match Pair():
        case Pair(3, 4, 5):
            return x * 2
    return x


def one_name_twice(x: Tensor) -> Tensor:
    match Pair():
        case Pair(3, w=3):
            return x * 2
    return x


def no_class(x: Tensor) -> Tensor:
    match x.dim():
        case len(imag=0):
            return x * 2
    return x


def places_of_a_class_without(x: Tensor) -> Tensor:
    match Sized():
        case Sized(2):
            return x * 2
    return x


def descriptors(wrap: Wrap) -> Iterator[Any]:
    class Field:
        low = 5

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else 2

    class Part:
        w = Field()

    part, kind = Part(), Field

    def of_class(x: Tensor) -> Tensor:
        return x + Part.w.low

    def of_instance(x: Tensor) -> Tensor:
        return x * part.w

    def stored(x: Tensor) -> Tensor:
        part.w = 3
        return x * part.w

    compiled = [wrap(f) for f in (of_class, of_instance, stored)]

    def every() -> Iterator[Any]:
        for one in compiled:
            yield from outcome(one)

    yield from every()
    kind.__get__ = lambda self, instance, owner=None: 1 if instance is None else 9  # type: ignore[method-assign]
    yield from every()
    kind.__set__ = lambda self, instance, new: vars(instance).update(w=new * 2)  # type: ignore[attr-defined]
    yield from every()
    del kind.__get__
    yield from every()
    del kind.__set__  # type: ignore[attr-defined]
    yield from every()


def outcome(function: Callable[..., Any]) -> Iterator[Any]:
    """The result for `X`, or the error."""
    try:
        yield function(X)
    except (AttributeError, TypeError) as error:
        yield type(error), str(error)


@pytest.mark.parametrize(
    "program",
    [mapping_by_its_get, mappings_of_the_library, registered_later, registered_as_a_sequence, classes, descriptors],
)
def test_as_in_python(program: Program) -> None:
    graphs = CountedGraphs()
    assert repr(list(program(graphs))) == repr(list(program(lambda f: f)))
    assert graphs.number


@pytest.mark.falls_back("a pattern for")
@pytest.mark.compiles(graphs=0)
@pytest.mark.parametrize("program", [more_by_place, one_name_twice, no_class, places_of_a_class_without])
def test_what_python_refuses(program: Callable[[Tensor], Tensor]) -> None:
    graphs = CountedGraphs()
    assert list(outcome(graphs(program))) == list(outcome(program))
    assert not graphs.number
