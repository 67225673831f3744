"""What Python's own machinery decides in a program is what plain Python says: formats, descriptors, records, dispatch, caches, managers, the dict of an object.

In: programs around a tensor, each run in plain Python and compiled, several times, on objects of their own.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import re
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

from .counted_graphs import CountedGraphs


class Shown:
    def __init__(self, n: int = 1) -> None:
        self.n = n

    def __format__(self, spec: str) -> str:
        self.n += 1
        return f"<{self.n}|{spec}>"

    def __str__(self) -> str:
        return "never"


def formats(x: Tensor, log: list[Any]) -> Any:
    shown = Shown()
    return x * 2, f"{shown}{shown:>4}", f"{shown!s}", format(shown)


class Misformed:
    def __format__(self, spec: str) -> Any:
        return 3


def formats_wrongly(x: Tensor, log: list[Any]) -> Any:
    try:
        return x, f"{Misformed()}"
    except TypeError as error:
        return x * 2, str(error)


def takes_out_of_an_older_dict(x: Tensor, log: list[Any]) -> Any:
    log.append(vars(log[0]).pop("n", None))
    vars(log[0])["n"] = 7
    return x * 2


def annotated(x: Tensor, log: list[Any]) -> Any:
    def inner(t: Tensor, n: int = 2) -> list[int]:
        return [n]

    other = inner.__annotations__
    other["more"] = str
    return x * 2, dict(other), inner(x)


def fields_of_errors(x: Tensor, log: list[Any]) -> Any:
    try:
        json.loads("{bad")
    except json.JSONDecodeError as error:
        log.append((error.pos, error.msg, error.args))
    try:
        re.compile("(")
    except re.error as error:
        log.append((error.pos, error.pattern))
    return x * 2


@functools.lru_cache
def cached(found: Any, *, more: Any = 0) -> int:
    ASKED.append(1)
    return 3


ASKED: list[int] = []


@functools.lru_cache(maxsize=0)
def never_cached(found: Any) -> int:
    return len(found)


def asks_a_cache(x: Tensor, log: list[Any]) -> Any:
    for found, more in (([], 0), (1, {}), ((1, [2]), 0)):
        try:
            log.append(cached(found, more=more))
        except TypeError as error:
            log.append((str(error), len(ASKED)))
    return x * 2, never_cached([1])


class Noting:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __enter__(self) -> Noting:
        return self

    def __exit__(self, *error: Any) -> bool:
        self.log.append([part is None for part in error])
        self.log.append(bool(error[2]))
        return True


def leaves_a_manager(x: Tensor, log: list[Any]) -> Any:
    with Noting(log):
        pass
    with Noting(log), Noting(log):
        raise KeyError(1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(Noting(log))
        raise ValueError(2)
    return x * 2


class Loss(typing.NamedTuple):
    value: Any
    scale: int = 2

    def __add__(self, other: Any) -> Any:
        return Loss(self.value + other.value, self.scale + 1)

    def __len__(self) -> int:
        return 7

    def __bool__(self) -> bool:
        return False

    @property
    def scaled(self) -> Any:
        return self.value * self.scale


class Made(collections.namedtuple("Made", ["a", "b"])):
    __slots__ = ()

    def __new__(cls, a: int, b: int = 3) -> Made:
        return super().__new__(cls, a, b + 1)

    def __lt__(self, other: Any) -> bool:
        return self.b > other[1]


LOSS, MADE = Loss(2, 3), Made(1)


def records(x: Tensor, log: list[Any]) -> Any:
    total = Loss(x) + Loss(x * 3) + LOSS
    log.append((len(total), bool(total), total.scale, len(LOSS + LOSS), "no" if LOSS else "yes"))
    log.append((Made(1).b, tuple(Made(2)), Made(1) < (1, 2), MADE < (0, 9), MADE._replace(a=5), MADE.b))
    return total.scaled


class Defaults(collections.defaultdict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> Any:
        self["asked"] = key
        return super().__missing__(key)


DEFAULTS = [Defaults(list), Defaults()]


def asked_of(table: Any) -> Any:
    try:
        return list(table["k"])
    except KeyError as error:
        return error.args


def missing(x: Tensor, log: list[Any]) -> Any:
    y = x * 2
    log.append(asked_of(DEFAULTS[0]))
    log.append(asked_of(DEFAULTS[1]))
    return y * 2


class Meta(type):
    n = 2

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("auto"):
            return cls.n
        raise AttributeError(name)

    def __add__(cls, other: Any) -> Any:
        return other * cls.n

    def __radd__(cls, other: Any) -> Any:
        return other - cls.n

    def __repr__(cls) -> str:
        return "<no name>"


class Comparing(Meta):
    def __eq__(cls, other: object) -> Any:
        return "equal"

    def __hash__(cls) -> int:
        return 3


class OfMeta(metaclass=Meta):
    pass


class OfComparing(metaclass=Comparing):
    pass


def class_as_an_operand(x: Tensor, log: list[Any]) -> Any:
    y = x * 2
    return (OfMeta + y) + OfMeta


def class_that_is_compared(x: Tensor, log: list[Any]) -> Any:
    y = x * 2
    log.append((y == OfComparing, OfComparing == y))
    return (OfComparing + y) + OfComparing


def attribute_of_a_metaclass(x: Tensor, log: list[Any]) -> Any:
    try:
        log.append(OfMeta.auto)
        OfMeta.quiet  # noqa: B018 (it raises)
    except AttributeError as error:
        log.append((error.args, getattr(OfMeta, "quiet", 4), hasattr(OfMeta, "auto")))
    return x * 2


class Anew:
    asked = 0

    def __get__(self, instance: Any, owner: Any) -> Any:
        Anew.asked += 1
        return [Anew.asked, owner.__name__]


class Describes:
    found = Anew()

    @functools.singledispatchmethod
    def show(self, found: Any) -> str:
        return "other"

    @show.register
    def _(self, found: int) -> str:
        return "int"


def descriptors_of_a_class(x: Tensor, log: list[Any]) -> Any:
    log.append((Describes.found is Describes.found, Describes.found))
    log.append((Describes.show is Describes.show, Describes().show(1), Describes().show("")))
    return x * 2


class Inherits(list):  # type: ignore[type-arg]
    count_of = len

    def total(self) -> int:
        return super().count_of([1, 2, 3])  # type: ignore[misc]


class Doubles(Inherits):
    count_of = sum

    def total(self) -> int:
        return super().count_of([4, 5]) + self.count_of([4, 5])  # type: ignore[misc]


def builtins_in_a_class(x: Tensor, log: list[Any]) -> Any:
    return x * 2, Doubles().total(), Inherits([1]).count_of([1, 2])


class Prepares:
    def __get__(self, instance: Any, owner: Any) -> Any:
        return functools.partial(setattr, instance, "n")


class Prepared:
    __init__ = Prepares()


def made_by_an_object(x: Tensor, log: list[Any]) -> Any:
    y = x * 2
    return y, Prepared(3).n  # type: ignore[attr-defined]


BEHIND: dict[str, int] = {"a": 1}
SHOWN = types.MappingProxyType(BEHIND)


def shows_a_dict_that_changes(x: Tensor, log: list[Any]) -> Any:
    y = x * 2
    before = (len(SHOWN), SHOWN.get("b", 0))
    BEHIND["b"] = BEHIND.get("b", 0) + 1
    log.append((before, len(SHOWN), SHOWN["b"], "b" in SHOWN, list(SHOWN.items())))
    BEHIND.pop("b")
    return y, dict(SHOWN)


PROGRAMS: tuple[Any, ...] = (
    formats, formats_wrongly, takes_out_of_an_older_dict, annotated, fields_of_errors, asks_a_cache, leaves_a_manager, records,
    missing, class_as_an_operand, attribute_of_a_metaclass, descriptors_of_a_class, builtins_in_a_class, made_by_an_object,
    shows_a_dict_that_changes,
    pytest.param(class_that_is_compared, marks=pytest.mark.judges_itself),  # whose own code is not asked while a frame is traced
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_plain_python(program: Callable[[Tensor, list[Any]], Any]) -> None:
    graphs = CountedGraphs()
    compiled = graphs(program)
    for calls in range(2):
        seen = []
        for run in (program, compiled):
            Anew.asked, Meta.n = calls, 2 + calls
            for table in DEFAULTS:
                table.clear()
            log: list[Any] = [Shown(4)]
            result = run(torch.ones(2), log)
            parts = result if isinstance(result, tuple) else (result,)
            seen.append((parts[0].tolist(), repr(parts[1:]), repr([vars(log[0]), *log[1:]])))
        plain, ours = (
            tuple(re.sub(" at 0x[0-9a-f]+", "", part) if isinstance(part, str) else part for part in one)
            for one in seen
        )
        assert ours == plain
    assert graphs.number


def test_annotations_that_are_read_outside() -> None:
    """A function that is made inside and given away keeps them: `singledispatch` goes by them."""

    @functools.singledispatch
    def kind(found: Any) -> int:
        return 0

    def registers(x: Tensor) -> Any:
        y = x * 2

        @kind.register
        def _(found: str) -> int:
            return len(found)

        return y, kind("abc")

    graphs = CountedGraphs()
    assert graphs(registers)(torch.ones(2))[1] == 3
    assert graphs.number


@pytest.mark.falls_back("itertools.pairwise is not Python's own")
def test_a_class_of_itertools_that_a_program_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages use it as well, so that nothing is compiled meanwhile."""
    original = itertools.pairwise
    monkeypatch.setattr(itertools, "pairwise", lambda found: original([0, *found]))

    def pairs(x: Tensor) -> Any:
        found = itertools.pairwise([3, 4])
        return x if isinstance(found, Tensor) else x * sum(b for _, b in found)

    graphs = CountedGraphs()
    compiled = graphs(pairs)
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * 7)
    monkeypatch.undo()
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * 4)
    assert graphs.number


class Owner:
    n = 2

    def get(self) -> int:
        return self.n


def asks_a_reference(x: Tensor) -> Any:
    owner = Owner()
    reference = weakref.ref(owner)
    return x * reference().n  # type: ignore[union-attr]


def asks_a_method(x: Tensor) -> Any:
    owner = Owner()
    method = weakref.WeakMethod(owner.get)
    return x * method()()  # type: ignore[misc]


def asks_a_proxy(x: Tensor) -> Any:
    owner = Owner()
    proxy = weakref.proxy(owner)
    print(end="")
    return x * proxy.n


def asks_what_is_alive(x: Tensor) -> Any:
    alive: Any = weakref.WeakSet()
    owner = Owner()
    alive.add(owner)
    found = [len(alive)]
    del owner
    return x * 2, found, len(alive)


def asks_what_ended(x: Tensor) -> Any:
    ended: list[int] = []
    owner = Owner()
    weakref.finalize(owner, ended.append, 3)
    del owner
    return x * 2, len(ended)


@pytest.mark.falls_back("making a weak reference")
@pytest.mark.compiles(graphs=0)
@pytest.mark.parametrize(
    "program", [asks_a_reference, asks_a_method, asks_a_proxy, asks_what_is_alive, asks_what_ended]
)
def test_what_only_a_variable_holds_is_alive(program: Callable[[Tensor], Any]) -> None:
    """As long as the variable, also after its last use."""
    compiled = flambeau.compile(program)
    for _ in range(2):
        assert repr(compiled(torch.ones(2))) == repr(program(torch.ones(2)))


@pytest.mark.falls_back("a weak proxy")
def test_a_proxy_of_what_is_gone() -> None:
    gone = weakref.proxy(Owner())

    def asked() -> int:
        try:
            return gone.n
        except ReferenceError:
            return 3

    def asks(x: Tensor) -> Any:
        y = x * 2
        return y * asked()

    graphs = CountedGraphs()
    assert torch.equal(graphs(asks)(torch.ones(2)), torch.ones(2) * 6)
    assert graphs.number
