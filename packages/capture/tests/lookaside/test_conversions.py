"""Builtins that ask an object to be a number: the program's special methods are traced, and held to what Python takes."""

from __future__ import annotations

import math
import operator

import pytest
import torch


class Number:
    """Answers everything, with tensors where Python takes them."""

    def __init__(self, x):
        self.x = x

    def __abs__(self):
        return self.x.abs()

    def __divmod__(self, other):
        return self.x * 2, other

    def __rdivmod__(self, other):
        return NotImplemented

    def __round__(self, digits=None):
        return self.x.round(), digits

    def __int__(self):
        return self.x.ndim

    def __float__(self):
        return 2.25

    def __complex__(self):
        return 1j

    def __hash__(self):
        return 7

    def __floor__(self):
        return self.x.floor()


class Index:
    def __index__(self):
        return 3


class Reflected:
    def __rdivmod__(self, other):
        return "reflected", other


class Text(str):
    __slots__ = ()


class Wrong:
    def __int__(self):
        return 1.5

    def __float__(self):
        return "text"

    def __complex__(self):
        return 1

    def __hash__(self):
        return "no"  # noqa: PLE0309 - what Python says of it is compared


class Bare:
    pass


CALLS = {
    "abs": abs,
    "operator.abs": operator.abs,
    "divmod": lambda n: divmod(n, 5),
    "divmod, right": lambda n: divmod(5, n),
    "divmod of two": lambda n: divmod(n, Reflected())[0],
    "round": round,
    "round to none": lambda n: round(n, None),
    "round to two": lambda n: round(n, 2),
    "int": int,
    "float": float,
    "hash": lambda n: hash(n) if type(n) in (Number, Wrong) else 0,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "isnan": math.isnan,
}


@pytest.mark.parametrize("cls", [Number, Index, Reflected, Wrong, Bare], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_object_is_asked_as_python_asks(call, cls, check):
    """In one graph: what its methods give, or the error that Python has for an object without them, or for what they gave."""

    def program(x):
        made = Number(x) if cls is Number else cls()
        try:
            return call(made), x + 1
        except (TypeError, ValueError) as error:
            return type(error), str(error), x + 1

    check(program)


def test_a_complex_number_is_given_by_an_object_or_left_to_python(check, broken):
    """What another special method gives for it, and what is no complex number, Python judges."""
    check(lambda x: (complex(Number(x)), x + 1))
    for cls in (Index, Wrong, Bare):
        assert broken(lambda x, cls=cls: (x + 1, complex(cls()))) == {"unsupported-call"}


def test_a_subclass_on_the_right_is_left_to_python(broken):
    """Which of the two is asked first depends on whose methods they are."""

    class Below(Number):
        def __rdivmod__(self, other):
            return "below"

    assert broken(lambda x: (divmod(Number(x), Below(x)), x + 1)) == {"unsupported-call"}


def test_a_number_of_a_subclass_warns(broken):
    """Python takes it for `int()`, and says so each time."""

    class Mine(int):
        pass

    class Gives:
        def __int__(self):
            return Mine(4)

    def program(x):
        with pytest.warns(DeprecationWarning):
            return int(Gives()), x + 1

    assert "unsupported-call" in broken(program)


def test_a_method_that_changes_is_asked_anew(check):
    """The method is guarded as any other is."""

    class Changing:
        def __abs__(self):
            return 1

    made = Changing()

    def program(x):
        return x * abs(made)

    check(program)
    Changing.__abs__ = lambda self: 2
    check(program)


def test_the_hash_of_a_tuple_of_constants_is_computed(check):
    """And that of what holds a list is Python's error."""

    def program(x):
        try:
            return x + hash((1, "a")) % 3, hash(([],))
        except TypeError as error:
            return x, str(error)

    check(program)
    check(lambda x: x + torch.ones(hash((1, 2)) % 4))
