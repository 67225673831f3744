"""Objects that a call brings: one under two names in one call and two equal ones in another, in either order, of every kind."""

from __future__ import annotations

import array
import collections
import copy
import decimal
import enum
import functools
import operator
import types

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region


class Thing:
    pass


class OwnList(list):
    pass


class OwnInteger(int):
    pass


Named = collections.namedtuple("Named", "a b")

#: Each makes another object at each call, equal to the one before where the kind has equality.
KINDS = {
    "list": lambda: [1],
    "tuple": lambda: tuple([1, "a"]),
    "tuple_of_tensors": lambda: (torch.ones(1),),
    "named": lambda: Named(1, 2),
    "dict": lambda: {1: 2},
    "ordered_dict": lambda: collections.OrderedDict(a=1),
    "set": lambda: {1},
    "frozenset": lambda: frozenset([1, "a"]),
    "deque": lambda: collections.deque([1]),
    "own_list": lambda: OwnList([1]),
    "own_integer": lambda: OwnInteger(5),
    "object": Thing,
    "function": lambda: lambda: 1,
    "closure": lambda: (lambda number: lambda: number)(1),
    "method": lambda: types.MethodType(operator.neg, Thing()),
    "partial": lambda: functools.partial(operator.neg, 1),
    "module": lambda: torch.nn.ReLU(),
    "tensor": lambda: torch.ones(2),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "size": lambda: torch.Size([1, 2]),
    "device": lambda: torch.device("cpu"),
    "text": lambda: "".join(["a b", "!"]),
    "bytes": lambda: bytes(bytearray(b"a b")),
    "integer": lambda: int("100000"),
    "float": lambda: float("1.5"),
    "nan": lambda: float("nan"),
    "complex": lambda: complex("1+2j"),
    "range": lambda: range(3),
    "slice": lambda: slice(1, 2),
    "iterator": lambda: iter([1]),
    "view": lambda: {1: 2}.keys(),
    "class": lambda: type("Made", (), {}),
    "exception": lambda: ValueError(1),
}


def _holder(value):
    made = Thing()
    made.value = value
    return made


PROGRAMS = {
    "arguments": (lambda t, a, b: (t + 1, a is b, a is not b), lambda a, b: (a, b)),
    "elements": (lambda t, items, place: (t + 1, items[0] is items[place]), lambda a, b: ([a, b], 1)),
    "attributes": (
        lambda t, a, b: (t + 1, a.value is b.value, a.value is a.value),
        lambda a, b: (_holder(a), _holder(b)),
    ),
    "by_function": (lambda t, a, b: (t + 1, operator.is_(a, b)), lambda a, b: (a, b)),
}


def _add(container):
    match container:
        case list() | collections.deque():
            container.append(3)
        case dict():
            container[3] = 3
        case set():
            container.add(3)
        case _:
            container.added = 3


def _assert_same_in_either_order(program, make, arguments=lambda a, b: (a, b)):
    """As plain Python, where a call brings one object under two names, and where it brings two; whichever came first."""
    for order in ((False, True, False), (True, False, True)):
        region = make_region(program, eager)
        for is_one in order:
            told = []
            for function in (program, region):
                first = make()
                given = arguments(first, first if is_one else make())
                told.append(function(torch.ones(2), *given)[1:])
            assert told[0] == told[1], (order, is_one)


@pytest.mark.parametrize("way", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_object_or_two_that_are_equal(kind, way):
    program, arguments = PROGRAMS[way]
    _assert_same_in_either_order(program, KINDS[kind], arguments)


UNHASHABLE = ("list", "dict", "ordered_dict", "set", "deque", "own_list", "slice", "view")
#: What asks which objects two keys or members are.
HASHED = {
    "dicts": (lambda t, a, b: (t + 1, {a: 1}.get(b), b in {a: 1}, {a: 1} == {b: 1}, len({a: 1, b: 2})), lambda a, b: (a, b)),
    "sets": (
        lambda t, a, b: (t + 1, b in {a}, {a} == {b}, {a} <= {b}, len({a, b}), len({a} | {b}), len({a} & {b}), len({a} ^ {b})),
        lambda a, b: (a, b),
    ),
    "methods of sets": (
        lambda t, a, b: (t + 1, {a}.isdisjoint({b}), {a}.issubset({b}), len({a}.union([b])), len({a}.difference([b], {a}))),
        lambda a, b: (a, b),
    ),
    "parts": (
        lambda t, a, b: (t + 1, (a, 1) in {(b, 1)}, {(a, 1): 1} == {(b, 1): 1}, frozenset([a]) in {frozenset([b])}),
        lambda a, b: (a, b),
    ),
    "views": (
        lambda t, a, b: (t + 1, {a: 1}.keys() == {b: 1}.keys(), len({a: 1}.keys() & {b}), {a: 1}.items() == {b: 1}.items()),
        lambda a, b: (a, b),
    ),
    "a dict that is brought": (
        lambda t, held, b: (t + 1, b in held, held.get(b), held == {b: 1}, len({**held, b: 2}), held.pop(b, 0), len(held)),
        lambda a, b: ({a: 1}, b),
    ),
    "a set that is brought": (
        lambda t, held, b: (t + 1, b in held, held == {b}, len(held | {b}), held.isdisjoint([b]), held.discard(b), len(held)),
        lambda a, b: ({a}, b),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", HASHED)
@pytest.mark.parametrize("kind", [kind for kind, make in KINDS.items() if kind not in UNHASHABLE])
def test_what_is_hashed_by_identity(kind, way):
    program, arguments = HASHED[way]
    _assert_same_in_either_order(program, KINDS[kind], arguments)


def test_what_has_no_hash():
    def program(t, value):
        try:
            return t + 1, {value: 1}
        except TypeError as error:
            return t + 1, str(error)

    for value in (torch.finfo(torch.float32), slice(1, 2), [1]):
        given = value, program(torch.ones(2), value)[1]
        assert make_region(program, eager)(torch.ones(2), given[0])[1] == given[1]


def test_a_cell_in_a_variable_that_has_a_cell():
    def argument(t, a):
        return t + 1, [item for item in (a, 1) if item is a][0] is a, (lambda: a)()

    def assigned(t, held):
        a = held[0]
        return t + 1, (lambda: a)() is held[0], (lambda: a)()

    for program, given in ((argument, types.CellType(1)), (assigned, [types.CellType(1)])):
        region = make_region(program, eager)
        for _ in range(2):
            cell = given if program is argument else given[0]
            told = region(torch.ones(2), given)
            assert told[1] and told[2] is cell


@pytest.mark.parametrize(
    "kind", ["integer", "float", "nan", "complex", "text", "bytes", "tuple", "range", "size", "device"]
)
def test_a_constant_that_is_given_back_is_the_one_that_came(kind):
    """Beside a break, too, and as an item of a tuple."""

    def program(t, value, pair):
        first, second = pair
        print(end="")
        return t + 1, value, [value], first, second, pair[0] is pair[1]

    region = make_region(program, eager)
    for is_one in (True, False, True):
        value, other = KINDS[kind](), KINDS[kind]()
        told = region(torch.ones(2), value, (value, value if is_one else other))
        assert told[1] is value and told[2][0] is value
        assert told[3] is value and told[4] is (value if is_one else other) and told[5] is is_one


def test_equal_methods_are_one_key():
    def program(t, thing, items):
        return t + 1, {thing.__init__: 1}.get(thing.__init__), {items.append: 1}.get(items.append)

    for _ in range(2):
        assert make_region(program, eager)(torch.ones(2), Thing(), [])[1:] == (1, 1)


#: Equal to itself it is not, or in another way than by `is`.
UNLIKE_ITSELF = {
    "cell": lambda: types.CellType(float("nan")),
    "cell_of_one": lambda: types.CellType(1),
    "array": lambda: array.array("d", [float("nan")]),
    "view": lambda: memoryview(array.array("d", [float("nan")])),
    "decimal": lambda: decimal.Decimal("nan"),
    "namespace": lambda: types.SimpleNamespace(a=float("nan")),
    "nan": lambda: float("nan"),
    "complex": lambda: complex("nan"),
    "tuple": lambda: (float("nan"), 1),
}


@pytest.mark.parametrize("kind", UNLIKE_ITSELF)
def test_equality_of_an_object_with_itself(kind):
    def program(t, a, b):
        return (
            t + 1,
            a == b,
            a != b,
            a in [b],
            a in (b,),
            [b].count(a),
            (b, 1).index(a) if a in (b, 1) else 2,
            (a, 1) == (b, 1),
            {1: a} == {1: b},
        )

    _assert_same_in_either_order(program, UNLIKE_ITSELF[kind])


def test_equality_of_ordered_dicts_that_hold_nan():
    def program(t, a, b):
        return t + 1, collections.OrderedDict(k=a) == collections.OrderedDict(k=b)

    _assert_same_in_either_order(program, KINDS["nan"])


class Shown:
    def __str__(self):
        return str(vars(self))


MUTABLE = {name: KINDS[name] for name in ("list", "dict", "ordered_dict", "set", "deque")} | {"object": Shown}


@pytest.mark.parametrize("kind", MUTABLE)
def test_what_is_copied_twice_is_copied_once(kind):
    def program(t, a, b):
        made = copy.deepcopy([a, b, a])
        _add(made[0])
        return t + 1, made[0] is made[1], made[0] is made[2], str(made[1])

    _assert_same_in_either_order(program, MUTABLE[kind])


@pytest.mark.parametrize("kind", MUTABLE)
def test_what_is_changed_by_one_name_is_so_by_the_other(kind):
    def program(t, a, b):
        _add(a)
        return t + 1, str(a), str(b)

    _assert_same_in_either_order(program, MUTABLE[kind])


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "kind", ["tuple", "named", "size", "device", "integer", "float", "text", "bytes", "range", "slice", "frozenset"]
)
def test_whether_a_copy_is_another_object(kind, copier):
    def program(t, value):
        made = copier(value)
        return t + 1, made is value, made == value

    for _ in range(2):
        given = KINDS[kind]()
        assert make_region(program, eager)(torch.ones(2), given)[1:] == program(torch.ones(2), given)[1:]


def test_identity_asks_no_method_of_the_program():
    asked = []

    class Asked(enum.IntEnum):
        ONE = 1

        def __eq__(self, other):
            asked.append(other)
            return int(self) == other

        __hash__ = enum.IntEnum.__hash__

    def program(t, a, b):
        return t + 1, a is b

    region = make_region(program, eager)
    for given in ((1, Asked.ONE), (Asked.ONE, 1), ((Asked.ONE,), (Asked.ONE,))):
        assert region(torch.ones(2), *given)[1] is False
    assert asked == []


def test_which_objects_the_tuples_of_a_set_hold():
    """Members are equal where their parts are the same objects."""

    class Plain:
        pass

    one = Plain()
    region = make_region(lambda x, a, b: (x + 1, (a, 1) in {(b, 1)}, len({(a,), (b,)})), eager)
    for a, b, same in ((Plain(), Plain(), False), (one, one, True), (Plain(), Plain(), False), (one, one, True)):
        assert region(torch.ones(2), a, b)[1:] == (same, 1 if same else 2)
