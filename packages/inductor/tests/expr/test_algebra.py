"""The index algebra: whatever it simplifies to has the value plain Python arithmetic has."""

import operator
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau_inductor.expr import (
    ONE,
    UNBOUNDED,
    ZERO,
    Int,
    Symbol,
    coefficient,
    divide_exactly,
    evaluate,
    free_symbols,
    hint,
    known_le,
    known_lt,
    maximum,
    minimum,
    render,
    select,
    substitute,
    truth,
)

SIZES = (Symbol("s0", 2, 40), Symbol("s1", 1, 9))
AXES = (
    Symbol("i0", bound=Int(8)),
    Symbol("i1", bound=Int(12)),
    Symbol("j0", bound=SIZES[0]),
    Symbol("j1", bound=SIZES[1]),
)
FREE = (Symbol("n", -30, 30),)


ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
OURS = {**ARITHMETIC, "min": minimum, "max": maximum, **{n: getattr(truth, n) for n in ("lt", "le", "eq", "ne")}}
PYTHONS = {**ARITHMETIC, "min": min, "max": max, **{n: getattr(operator, n) for n in ("lt", "le", "eq", "ne")}}


def fold(tree, number, names, operations):
    """What a nested tuple of operators, names and numbers comes to."""
    if isinstance(tree, int):
        return number(tree)
    if isinstance(tree, str):
        return names[tree]
    op, a, b = tree
    return operations[op](fold(a, number, names, operations), fold(b, number, names, operations))


def build(tree, symbols):
    """An expression."""
    return fold(tree, Int, symbols, OURS)


def plain(tree, values):
    """The same in Python's own integers."""
    return int(fold(tree, int, values, PYTHONS))


NAMES = {s.name: s for s in (*SIZES, *AXES, *FREE)}
leaves = st.one_of(st.integers(-20, 20), st.sampled_from(sorted(NAMES)))
divisors = st.one_of(st.integers(1, 24), st.sampled_from(["s0", "s1"]))


def grow(children):
    plain_ops = st.tuples(st.sampled_from(["+", "-", "*", "min", "max", "lt", "le", "eq", "ne"]), children, children)
    divisions = st.tuples(st.sampled_from(["//", "%"]), children, divisors)
    return st.one_of(plain_ops, divisions)


trees = st.recursive(leaves, grow, max_leaves=9)


@st.composite
def values(draw):
    s0, s1 = draw(st.integers(2, 40)), draw(st.integers(1, 9))
    return {
        "s0": s0,
        "s1": s1,
        "i0": draw(st.integers(0, 7)),
        "i1": draw(st.integers(0, 11)),
        "j0": draw(st.integers(0, s0 - 1)),
        "j1": draw(st.integers(0, s1 - 1)),
        "n": draw(st.integers(-30, 30)),
    }


@settings(max_examples=400, deadline=None)
@given(trees, values())
def test_simplified_equals_plain_arithmetic(tree, given_values):
    """Simplification never changes a value, and ranges hold it."""
    e = build(tree, NAMES)
    wanted = plain(tree, given_values)
    assert evaluate(e, lambda s: given_values[s.name]) == wanted
    assert e.lo <= wanted <= e.hi


@settings(max_examples=200, deadline=None)
@given(trees, values())
def test_python_text_evaluates_to_the_same(tree, given_values):
    """The rendered Python text is the expression."""
    e = build(tree, NAMES)
    assert int(eval(render(e), {**given_values, "min": min, "max": max})) == plain(tree, given_values)


@settings(max_examples=200, deadline=None)
@given(trees, trees, values())
def test_known_comparisons_hold(a, b, given_values):
    """A comparison that is claimed to hold always does."""
    x, y = build(a, NAMES), build(b, NAMES)
    if known_le(x, y):
        assert plain(a, given_values) <= plain(b, given_values)
    if known_lt(x, y):
        assert plain(a, given_values) < plain(b, given_values)


@settings(max_examples=100, deadline=None)
@given(trees, values())
def test_substitution_by_values_gives_an_integer(tree, given_values):
    """Replacing every symbol by a number folds to the number."""
    e = build(tree, NAMES)
    folded = substitute(e, {NAMES[name]: value for name, value in given_values.items()})
    assert folded is Int(plain(tree, given_values))


def test_equal_expressions_are_one_object():
    """Hash-consing: order of construction does not matter."""
    a, b = AXES[0], AXES[1]
    assert (a + b) * 3 is 3 * b + a * 3
    assert (a * 4 + b) - b is a * 4


@pytest.mark.parametrize(
    ("e", "simple"),
    [
        (lambda i, j: (i * 12 + j) // 12, lambda i, j: i),
        (lambda i, j: (i * 12 + j) % 12, lambda i, j: j),
        (lambda i, j: (i * 24 + j * 2) % 24, lambda i, j: j * 2),
        (lambda i, j: (i * 12 + j) // 4 // 3, lambda i, j: i),
        (lambda i, j: (i * 12 + j) // 3 * 3 + (i * 12 + j) % 3, lambda i, j: i * 12 + j),
        (lambda i, j: (i * 12 + j) // 4 % 3 * 4 + (i * 12 + j) % 4, lambda i, j: j),
        (lambda i, j: i % 8, lambda i, j: i),
        (lambda i, j: (i + 16) // 8, lambda i, j: Int(2)),
    ],
)
def test_static_division_rules(e, simple):
    """Split and merged indices come back to where they started."""
    i, j = AXES[0], AXES[1]
    assert e(i, j) is simple(i, j)


def test_symbolic_division_rules():
    """Symbolic sizes split and merge as numbers do."""
    s0, s1 = Symbol("s0", 2), Symbol("s1", 2)
    a, b = Symbol("a", bound=s0), Symbol("b", bound=s1)
    flat = a * s1 + b
    assert flat // s1 is a
    assert flat % s1 is b
    assert flat % (s0 * s1) is flat
    assert (s0 * s1) // s1 is s0
    assert (s0 * s1 + s0) // (s1 + 1) is s0
    assert divide_exactly(s0 * s1 * 6, s1 * 2) is s0 * 3


def test_coefficient_is_the_stride():
    """Linear symbols have a stride; others have none."""
    s = Symbol("s", 1)
    i, j = AXES[0], AXES[1]
    e = i * s * 4 + j + 7
    assert coefficient(e, i) is s * 4
    assert coefficient(e, j) is ONE
    assert coefficient(e, Symbol("other")) is ZERO
    assert coefficient((i + j) // 3, i) is None


def test_truths_decide_where_they_can():
    """Comparisons fold by range, and select follows."""
    i = AXES[0]
    assert truth.lt(i, Int(8)) is ONE
    assert truth.lt(i, Int(0)) is ZERO
    assert truth.le(i, Int(7)) is ONE and truth.le(i, Int(-1)) is ZERO and truth.ne(i, Int(8)) is ONE
    assert truth.le(i, Int(3)) is not i and evaluate(truth.le(i, Int(3)), {i: 3}) == 1 != evaluate(
        truth.le(i, Int(3)), {i: 4}
    )
    assert select(truth.lt(i, Int(8)), i, ZERO) is i
    assert select(truth.lt(i, Int(4)), i, i) is i


def test_pickle_keeps_identity():
    """An expression read back is the same object."""
    e = (AXES[0] * SIZES[0] + AXES[1]) // 5
    assert pickle.loads(pickle.dumps(e)) is e


def test_hint_never_fails():
    """Hints use given values, bounds, and a guess for the rest."""
    assert hint(Symbol("s", 2, hint=17) * 2) == 34
    assert hint(Symbol("u", 0)) > 0
    assert Symbol("u").hi == UNBOUNDED
    assert free_symbols(SIZES[0] + AXES[0]) == {SIZES[0], AXES[0]}


def test_an_expression_has_no_truth():
    """Using one as a condition is an error instead of a silent True."""
    with pytest.raises(TypeError):
        bool(AXES[0])


def test_truth_is_pythons():
    """Connectives of every pair of truth values, of symbols and of constants."""
    p, q = Symbol("p", bound=Int(2)), Symbol("q", bound=Int(2))
    x, y = truth.eq(p, ONE), truth.eq(q, ONE)
    for a in (0, 1):
        for b in (0, 1):
            values = {p: a, q: b}
            for left, right in ((x, y), (Int(a), y), (x, Int(b)), (Int(a), Int(b))):
                assert evaluate(truth.both(left, right), values) == (a and b)
                assert evaluate(truth.either(left, right), values) == (a or b)
                assert evaluate(select(left, Int(5), Int(7)), values) == (5 if a else 7)
            assert evaluate(truth.negate(x), values) == 1 - a


def test_a_division_taken_apart_is_put_together_beside_other_terms():
    """The parts of a remainder meet in one; what else is in the sum stays."""
    x, y = Symbol("x", bound=Int(60)), Symbol("y", bound=Int(9))
    whole = (x // 3 % 5) * 6 + (x % 3) * 2 + y * 7 + 1
    assert repr(whole) == repr((x % 15) * 2 + y * 7 + 1)
    for a in range(60):
        assert evaluate(whole, {x: a, y: a % 9}) == a % 15 * 2 + a % 9 * 7 + 1


def test_text_of_a_target():
    """C++ has no int that is wider than 32 bits unless it is told; a target that is unknown is told."""
    assert [render(Int(n), "cpp") for n in (2**31 - 1, 2**31)] == ["2147483647", "2147483648LL"]
    assert render(Int(2**31), "triton") == "2147483648"
    with pytest.raises(ValueError, match="unknown target 'java'"):
        render(Int(1), "java")
