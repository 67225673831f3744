"""Values stand for Python objects: whatever a program does with one it made is what it does with the object."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types

import numpy
import pytest
import torch
from both_ways import eager

from flambeau_capture import Config, make_region


@dataclasses.dataclass
class Point:
    x: object
    y: object = 2

    def __add__(self, other):
        return Point(self.x + other.x, self.y)


Pair = collections.namedtuple("Pair", "a b")


class Counter(dict):
    """A dict with attributes and a default."""

    def __init__(self, *args):
        super().__init__(*args)
        self.misses = 0

    def __missing__(self, key):
        self.misses += 1
        return 0


class Stack(list):
    """A list with a method."""

    def top(self):
        return self[-1]


def _sequences(x):
    items = [x, 1, "a"]
    items.insert(1, x * 2)
    items.remove("a")
    items.reverse()
    items *= 2
    items[1:4] = [0]
    return items, items[::2], (1, x) + (2,), (0,) * 3, items.pop(0), [1, 2] < [1, 3], (1, 2) == (1, 2), [3, 1].index(1)


def _mappings(x):
    table = {"a": x, 1: "one"}
    table.update({"b": 2}, c=3)
    merged = table | {"a": 0}
    del table["b"]
    return (
        table,
        merged,
        list(table.items())[0][0],
        table.keys() & {"a", 1},
        {**table, "z": x},
        table.get("q"),
        1 in table,
    )


def _sets(x):
    members = {1, 2, 3}
    members.add(4)
    members -= {1}
    members.update([9])
    return (
        sorted(members),
        members & {2, 9},
        members.isdisjoint({7}),
        frozenset((1, 2)) | {3},
        {2} < members,
        len(members),
        x,
    )


def _objects(x):
    point = Point(x) + Point(x, y=5)
    point.z = point.x * 2
    del point.y
    table = vars(point)
    table["w"] = 1
    point.__dict__.update(v=3)
    return point.z, hasattr(point, "y"), point.y, sorted(table), point.v, table.pop("v"), hasattr(point, "v")


def _container_subclasses(x):
    counter, stack = Counter({"a": x}), Stack([1, x])
    missing = counter["nope"] + counter.__getitem__("nor") + counter.__getitem__("a")
    stack.append(x + 1)
    return missing, counter.misses, counter["a"], stack.top(), len(stack), isinstance(stack, list), dict(counter)


def _functions(x):
    def outer(by):
        def inner(y, *rest, plus=1, **more):
            return y * by + plus + len(rest) + len(more)

        inner.tag = "t"
        return inner

    made = outer(3)
    return made(x), made(x, 1, plus=2, other=3), made.tag, made.__name__, outer(2)(x)


def _iterators(x):
    pairs = enumerate([x, 1])
    first = next(pairs)
    rest = list(pairs)
    zipped = zip([1, 2], iter("ab"), strict=False)
    return first, rest, next(zipped), list(zipped), list(map(abs, [-1, 2])), sum(n for n in range(4) if n % 2)


def _generators(x):
    log = []

    def numbers():
        try:
            got = yield x
            log.append(got)
            yield from (y * 2 for y in (1, 2))
            return "end"
        finally:
            log.append("closed")

    def outer():
        result = yield from numbers()
        yield result

    made = numbers()
    first = next(made), made.send("sent"), next(made)
    made.close()
    return first, list(outer()), log


def _exceptions(x):
    log = []
    for error in (KeyError("k"), ValueError("v", 2), TypeError()):
        try:
            raise error
        except (KeyError, ValueError) as caught:
            log.append((type(caught).__name__, caught.args))
        except Exception as caught:
            log.append(repr(caught))
        else:
            log.append("never")
        finally:
            log.append("finally")
    return log, x + 1


def _constants(x):
    return (
        x + 1,
        1 << 3,
        ~5,
        -7 // 2,
        7 % -3,
        2**0.5,
        "a" * 3,
        "abc"[1:],
        b"x" + b"y",
        1j * 1j,
        (1, 2) < (1, 3),
        None,
        ...,
    )


def _symbolic(x):
    n, m = x.shape
    return (
        x.reshape(m, n),
        n * m + 1,
        n // 2,
        n % 2,
        -n,
        min(n, m),
        max(n, 2),
        float(n) / m,
        n == 3,
        n < m,
        f"{n}x{m}",
        [0] * n,
        range(n),
    )


def _named(x):
    pair = Pair(x, 1)
    space = types.SimpleNamespace(a=1)
    space.b = pair.a * 2
    return pair, pair._replace(b=2), pair.a, pair[1:], len(pair), space.a, space.b, sorted(vars(space)), pair._fields


PROGRAMS = [
    _sequences, _mappings, _sets, _objects, _container_subclasses, _functions, _iterators, _generators, _exceptions, _constants, _symbolic, _named,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_values_behave_as_objects(program, dynamic, check):
    """With plain and with symbolic sizes, in one graph (or with the same exception)."""
    check(program, dynamic=dynamic)


def _with_break(function):
    """The same program with a break in the middle: what it has made is rebuilt."""

    def run(x):
        made = function(x)
        print(end="")
        return made, x + 1

    return run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values_outlive_a_break(program, broken):
    """Every kind of object is made again on the other side."""
    assert broken(_with_break(program)) == {"input-output"}


def test_iterators_outlive_a_break(broken):
    """They go on where they were, and share what they shared."""

    def run(x):
        items = [x, x + 1, 3]
        plain, pairs, numbers = iter(items), enumerate([x, 1], 5), iter(range(4))
        zipped = zip(numbers, "ab", strict=False)
        next(plain), next(pairs), next(numbers)
        print(end="")
        items.append(4)
        return [list(plain), list(pairs), next(zipped), list(numbers)], x * 2

    broken(run)


def test_an_unstarted_generator_outlives_a_break(broken):
    """It is made again by the same call."""

    def run(x):
        def numbers(y, *, times):
            for i in range(times):
                yield y * i

        made = numbers(x, times=3)
        print(end="")
        return list(made), x + 1

    broken(run)


def test_opaque_objects_are_passed_on(broken):
    """What is done with an array that torch has no dtype for breaks the graph, carrying it along does not."""
    array = numpy.array(["a", "b"])

    def run(x):
        kept = array
        y = x + 1
        return kept.tolist(), y * 2

    assert "numpy" in broken(run)


def test_native_equality_is_not_identity(broken):
    """Objects of classes that compare in C are compared for real."""
    one, other = types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)
    assert broken(lambda x: (one == other, one != other, x + 1)) == {"unsupported-operation"}


def test_items_compare_without_hashes():
    """As Python's do: what they hold may have none."""

    def run(x):
        first, second = {"a": [x]}.items(), {"a": [x], "b": 1}.items()
        return x + 1, first == second, first <= second, first == {"a": [x]}.items(), first != second

    assert make_region(run, eager)(torch.ones(1)) == run(torch.ones(1))


def test_a_number_that_is_read_twice_is_one_input():
    """The graph takes a changing number once."""
    counts = []

    def backend(graph, inputs):
        counts.append(sum(node.op == "placeholder" for node in graph.graph.nodes))
        return graph.forward

    def run(x, numbers):
        return x * numbers["n"] + numbers["n"]

    region = make_region(run, backend, config=Config(dynamic=True))
    for n in (5, 7):
        assert torch.equal(region(torch.ones(3), {"n": n}), run(torch.ones(3), {"n": n}))
    assert counts == [2]


BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"}  # fmt: skip
REFLECTED = {symbol: f"__r{name}__" for symbol, name in BINARY.items()}
REFLECTED |= {"<": "__gt__", "<=": "__ge__", ">": "__lt__", ">=": "__le__", "==": "__eq__", "!=": "__ne__"}


class Right:
    """Answers where it stands on the right."""


for _name in REFLECTED.values():
    setattr(Right, _name, lambda self, other, name=_name: (name, other))


@pytest.mark.parametrize("symbol", REFLECTED)
def test_the_right_operand_is_asked_where_the_left_has_no_answer(symbol, check):
    """A number, a list, nothing and a class on the left; in one graph."""
    scope = {"Right": Right, "Point": Point}
    exec(
        f"def run(x):\n    return x + 1, 3 {symbol} Right(), [1] {symbol} Right(), None {symbol} Right(), object {symbol} Right()",
        scope,
    )
    check(scope["run"])


def test_operands_that_do_not_compare_are_no_break(check):
    """The error is the program's, caught in the graph."""

    def run(x):
        try:
            return x + 1, [1] < 2
        except TypeError as error:
            return x + 2, str(error)

    check(run)


class Lazy:
    """Computes something once."""

    @functools.cached_property
    def doubled(self):
        return [2]


def test_what_a_cached_property_computed_is_kept():
    """The next look, compiled or not, finds the same object."""

    def run(x, given):
        return x + 1, given.doubled, given.doubled is given.doubled

    given = Lazy()
    found = make_region(run, eager)(torch.ones(1), given)
    assert found[2] and vars(given) == {"doubled": [2]} and found[1] is given.doubled


def test_containers_of_tensors_compare_item_by_item(check):
    """What comes before the tensors may decide."""
    check(lambda x: (x + 1, [1, x] == [2, x], [1, x] != [2, x], (1, x) != (1, x), [x, 1] == [x, 1], (1, x) < (2, x)))


@pytest.mark.parametrize(
    "call", ["(x,).__hash__(1)", "[x].__len__(1)", "{'a': x}.__getitem__()", "[x].__iter__(2)", "(x,).__contains__()"]
)
def test_special_methods_with_other_arguments(call):
    """Python's own error."""
    scope: dict = {}
    exec(
        f"def run(x):\n    try:\n        return x + 1, {call}\n    except TypeError as error:\n        return x + 1, str(error)",
        scope,
    )
    found, wanted = (f(torch.ones(1))[1] for f in (make_region(scope["run"], eager), scope["run"]))
    assert found == wanted and isinstance(found, str)
