"""What a class itself decides, by its metaclass or how it is made, is what Python says, also after what it reads has changed.

In: operators and functions applied to classes, constructions, `except` and `match` with unusual classes. Each runs in plain Python and compiled, several
times, with a class attribute changed in between.
"""

from __future__ import annotations

import abc
import collections.abc
import operator
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

from .counted_graphs import CountedGraphs

#: What the metaclass has, and what a program does with the class.
DECIDED: dict[str, tuple[str, Any, Callable[[Any], Any]]] = {
    "subscript": ("__getitem__", lambda cls, key: (cls.n, key), lambda cls: cls[3]),
    "length": ("__len__", lambda cls: cls.n, len),
    "membership": ("__contains__", lambda cls, item: cls.n == item, lambda cls: 1 in cls),
    "iteration": ("__iter__", lambda cls: iter([cls.n]), list),
    "sum": ("__add__", lambda cls, other: (cls.n, other), lambda cls: cls + 1),
    "sum from the right": ("__radd__", lambda cls, other: (cls.n, other), lambda cls: 1 + cls),
    "product": ("__matmul__", lambda cls, other: cls.n, lambda cls: cls @ 2),
    "union": ("__or__", lambda cls, other: cls.n, lambda cls: cls | int),
    "truth": ("__bool__", lambda cls: cls.n == 1, lambda cls: "yes" if cls else "no"),
    "order": ("__lt__", lambda cls, other: cls.n < other, lambda cls: cls < 2),
    "sign": ("__neg__", lambda cls: -cls.n, operator.neg),
    "text": ("__repr__", lambda cls: f"A{cls.n}", str),
    "format": ("__repr__", lambda cls: f"A{cls.n}", lambda cls: f"{cls}"),
    "number": ("__float__", lambda cls: float(cls.n), float),
    "rounding": ("__round__", lambda cls: cls.n, round),
    "property": ("twice", property(lambda cls: cls.n * 2), lambda cls: cls.twice),
    "call": ("__call__", lambda cls, *args: (cls.n, args), lambda cls: cls(4)),
    "instance": ("__instancecheck__", lambda cls, found: cls.n == 1, lambda cls: isinstance(3, cls)),
    "subclass": ("__subclasscheck__", lambda cls, found: cls.n == 1, lambda cls: issubclass(int, cls)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_a_metaclass_decides(name: str) -> None:
    attribute, member, use = DECIDED[name]
    cls: Any = type("Meta", (type,), {attribute: member})("A", (), {"n": 1})
    graphs = CountedGraphs()
    compiled = graphs(lambda x: (x + 1, use(cls)))
    x = torch.ones(2)
    for n in (1, 1, 2, 3):
        cls.n = n
        assert compiled(x)[1] == use(cls)
    assert graphs.number


class Abstract(abc.ABC):
    @abc.abstractmethod
    def area(self) -> int: ...


class Keyed(dict, abc.ABC):
    @abc.abstractmethod
    def area(self) -> int: ...


class Subscripted:
    n = 1

    def __class_getitem__(cls, key: Any) -> Any:
        return cls.n, key


class Typed(typing.TypedDict):
    a: int


class Returns:
    def __init__(self) -> None:
        return 5  # noqa: PLE0101 - Python's error for it is what is tested


class NamesAnother:
    @property
    def __class__(self) -> Any:
        return int


class Registers(Exception, metaclass=abc.ABCMeta):
    pass


@Registers.register
class Registered(Exception):
    pass


def abstract(x: Tensor) -> Any:
    try:
        return x * 2, type(Abstract()).__name__
    except TypeError as error:
        return x, str(error)


def abstract_with_storage(x: Tensor) -> Any:
    return x * 2, type(Keyed()).__name__


def subscripted(x: Tensor) -> Any:
    return x * 2, Subscripted[3], list[int]


def typed_dict(x: Tensor) -> Any:
    made = Typed(a=1)
    try:
        return x * 2, isinstance(made, Typed)
    except TypeError as error:
        return x * 2, made, type(made).__name__, str(error)


def returns_from_init(x: Tensor) -> Any:
    try:
        return x, Returns()
    except TypeError as error:
        return x * 2, str(error)


def another_class(x: Tensor) -> Any:
    print(end="")
    found = NamesAnother()
    print(end="")
    return x * 2, type(found).__name__


def registered_exception(x: Tensor) -> Any:
    try:
        raise Registered(1)
    except Registers:
        return x
    except Registered as error:
        return x * 2, error.args


def no_exception(x: Tensor) -> Any:
    try:
        try:
            raise ValueError(1)
        except (KeyError, 3):  # noqa: B030 - likewise
            return x
    except TypeError as error:
        return x * 2, str(error)


def matched_class(x: Tensor) -> Any:
    match [1]:
        case collections.abc.Mapping():
            return x
        case collections.abc.Sized():
            return x * 2
    return x * 3


PROGRAMS = (
    abstract, abstract_with_storage, subscripted, typed_dict, returns_from_init, another_class, registered_exception, no_exception, matched_class,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_how_classes_are_used(program: Callable[[Tensor], Any]) -> None:
    graphs = CountedGraphs()
    compiled = graphs(program)
    for _ in range(2):
        found, expected = compiled(torch.ones(2)), program(torch.ones(2))
        found, expected = (part if isinstance(part, tuple) else (part,) for part in (found, expected))
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]


def test_a_class_that_is_made_concrete(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = flambeau.compile(abstract, backend="eager")
    assert compiled(torch.ones(2))[1] == abstract(torch.ones(2))[1]
    monkeypatch.setattr(Abstract, "__abstractmethods__", frozenset())
    assert compiled(torch.ones(2))[1] == "Abstract"


def test_a_subscript_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = flambeau.compile(subscripted, backend="eager")
    assert compiled(torch.ones(2))[1] == (1, 3)
    monkeypatch.setattr(Subscripted, "n", 5)
    assert compiled(torch.ones(2))[1] == (5, 3)


class _Int:
    def __get__(self, instance: Any, owner: type) -> Any:
        return type(owner) if instance is None else int

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError


class _NamesByDescriptor:
    __class__: Any = _Int()


class _NamesByProperty:
    __class__: Any = property(lambda self: int)


@pytest.mark.parametrize("cls", [_NamesByDescriptor, _NamesByProperty])
def test_an_object_may_name_another_class(cls: type) -> None:
    """`object.__class__` is not asked where the class has its own."""

    def f(x: Tensor, named: Any) -> Tensor:
        return x + 1 if named.__class__ is int else x - 1

    x, named = torch.zeros(2), cls()
    torch.testing.assert_close(flambeau.compile(f, backend="eager")(x, named), f(x, named))
