"""Hash-consed integer expressions: sizes, strides, loop indices.

In: Python integers, named symbols with value ranges, and the operators ``+ - * // %`` with Python's meaning.
Out: ``Expr`` nodes in a normal form; two equal expressions of that form are the same object, so ``is`` decides equality
and memo tables are dicts keyed by the node.

    >>> i, j = Symbol("i", bound=Int(8)), Symbol("j", bound=Int(4))
    >>> (i * 4 + j) // 4 is i, (i * 4 + j) % 4 is j
    (True, True)

A sum is held as a polynomial: ``("add", constant, ((term, coefficient), ...))`` where no term is itself a sum or an
integer; a product of symbols is ``("mul", factor, factor, ...)`` in a fixed order. Division rules are in
``division.py``. Values are bounded by 2**62 in magnitude; a bound that large means "unknown".
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

UNBOUNDED = 1 << 62

Linear = tuple[int, tuple[tuple["Expr", int], ...]]


class Expr:
    """One interned integer term: ``op`` names the kind, ``args`` its parts, ``[lo, hi]`` (inclusive) its value range.

    ``key`` is a structural hash that does not change between processes; it orders terms.
    Kinds: ``int(n)``, ``symbol(name, bound, definition, hint)``, ``add``, ``mul``, ``floordiv``, ``mod``, ``min``,
    ``max``, and the truth values (0 or 1) ``eq ne lt le and or not``, and ``select(cond, a, b)``.
    """

    __slots__ = ("__weakref__", "args", "hi", "key", "lo", "op")

    op: str
    args: tuple[Any, ...]
    lo: int
    hi: int
    key: int

    def __add__(self, other: Expr | int) -> Expr:
        return add(self, as_expr(other))

    def __radd__(self, other: int) -> Expr:
        return add(self, as_expr(other))

    def __sub__(self, other: Expr | int) -> Expr:
        return add(self, multiply(MINUS_ONE, as_expr(other)))

    def __rsub__(self, other: int) -> Expr:
        return add(as_expr(other), multiply(MINUS_ONE, self))

    def __mul__(self, other: Expr | int) -> Expr:
        return multiply(self, as_expr(other))

    def __rmul__(self, other: int) -> Expr:
        return multiply(self, as_expr(other))

    def __neg__(self) -> Expr:
        return multiply(MINUS_ONE, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _BINARY["floordiv"](self, as_expr(other))

    def __rfloordiv__(self, other: int) -> Expr:
        return _BINARY["floordiv"](as_expr(other), self)

    def __mod__(self, other: Expr | int) -> Expr:
        return _BINARY["mod"](self, as_expr(other))

    def __rmod__(self, other: int) -> Expr:
        return _BINARY["mod"](as_expr(other), self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is an expression; ask is_zero(), known_lt() and the like instead of its truth")

    def __index__(self) -> int:
        if self.op != "int":
            raise TypeError(f"{self} is not a known integer")
        return int(self.args[0])

    def __repr__(self) -> str:
        return _BINARY["text"](self, self)  # type: ignore[return-value]

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.op, self.args, self.lo, self.hi))

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    @property
    def is_int(self) -> bool:
        """True when the value is a known integer."""
        return self.op == "int"

    @property
    def is_symbol(self) -> bool:
        """True for a named symbol."""
        return self.op == "symbol"

    @property
    def name(self) -> str:
        """A symbol's name."""
        if self.op != "symbol":
            raise TypeError(f"{self} is not a symbol")
        return str(self.args[0])

    @property
    def bound(self) -> Expr | None:
        """A symbol's exclusive upper bound as an expression, where one was given."""
        return self.args[1] if self.op == "symbol" else None

    @property
    def definition(self) -> Any:
        """What an indirect symbol stands for (a scalar node of the IR), else None."""
        return self.args[2] if self.op == "symbol" else None

    @property
    def children(self) -> tuple[Expr, ...]:
        """The sub-expressions, left to right (a symbol and an integer have none)."""
        if self.op in ("int", "symbol"):
            return ()
        if self.op == "add":
            return tuple(term for term, _ in self.args[1])
        return self.args


_TABLE: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()
_LOCK = threading.Lock()
_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {}


def register_operation(name: str, function: Callable[[Expr, Expr], Expr]) -> None:
    """Give the operator ``name`` its implementation; each name is registered once."""
    if name in _BINARY:
        raise ValueError(f"operator {name} is registered twice")
    _BINARY[name] = function


def _clamp(value: int) -> int:
    return max(-UNBOUNDED, min(UNBOUNDED, value))


def _part_key(part: Any) -> int:
    if isinstance(part, Expr):
        return part.key
    if isinstance(part, int):
        return part
    if isinstance(part, str):
        return zlib.crc32(part.encode())
    if part is None:
        return 0
    if isinstance(part, tuple):
        return hash(tuple(_part_key(item) for item in part))
    return int(part.key)


def intern_node(op: str, args: tuple[Any, ...], lo: int, hi: int) -> Expr:
    """The unique node of these parts (callers have brought ``args`` into normal form)."""
    identity = (op, *args) if op != "symbol" else (op, *args, lo, hi)
    found = _TABLE.get(identity)
    if found is not None:
        return found
    with _LOCK:
        found = _TABLE.get(identity)
        if found is None:
            found = Expr.__new__(Expr)
            found.op, found.args, found.lo, found.hi = op, args, _clamp(lo), _clamp(hi)
            found.key = hash((zlib.crc32(op.encode()), *(_part_key(part) for part in args)))
            _TABLE[identity] = found
        return found


def _rebuild(op: str, args: tuple[Any, ...], lo: int, hi: int) -> Expr:
    return intern_node(op, args, lo, hi)


@lru_cache(maxsize=4096)
def Int(value: int) -> Expr:
    """The integer ``value`` as an expression."""
    return intern_node("int", (int(value),), int(value), int(value))


ZERO, ONE, MINUS_ONE = Int(0), Int(1), Int(-1)


def Symbol(
    name: str,
    lo: int = 0,
    hi: int = UNBOUNDED,
    *,
    bound: Expr | None = None,
    definition: Any = None,
    hint: int | None = None,
) -> Expr:
    """A named integer in ``[lo, hi]``.

    ``bound`` is an exclusive upper bound as an expression (a loop index below its size); ``definition`` is the scalar
    an indirect index stands for; ``hint`` is a likely value, used for decisions about speed only.
    """
    if bound is not None:
        hi = min(hi, max(bound.hi - 1, lo)) if bound.hi < UNBOUNDED else hi
    return intern_node("symbol", (name, bound, definition, hint), lo, hi)


def as_expr(value: Expr | int) -> Expr:
    """``value`` itself, or the integer as an expression."""
    return value if isinstance(value, Expr) else Int(value)


def linear(e: Expr) -> Linear:
    """``e`` as (constant, ((term, coefficient), ...))."""
    if e.op == "add":
        return e.args[0], e.args[1]
    if e.op == "int":
        return e.args[0], ()
    return 0, ((e, 1),)


def from_linear(constant: int, terms: Iterable[tuple[Expr, int]]) -> Expr:
    """The sum of ``constant`` and ``coefficient * term``; terms are distinct and neither sums nor integers."""
    kept = sorted(((t, c) for t, c in terms if c), key=lambda item: item[0].key)
    if not kept:
        return Int(constant)
    if constant == 0 and len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    lo = hi = constant
    for term, c in kept:
        bounds = (_scaled(term.lo, c), _scaled(term.hi, c))
        lo, hi = _clamp(lo + min(bounds)), _clamp(hi + max(bounds))
    return intern_node("add", (constant, tuple(kept)), lo, hi)


def _scaled(bound: int, factor: int) -> int:
    if abs(bound) >= UNBOUNDED:
        return UNBOUNDED if (bound > 0) == (factor > 0) else -UNBOUNDED
    return bound * factor


@lru_cache(maxsize=1 << 16)
def add(a: Expr, b: Expr) -> Expr:
    """``a + b``."""
    if b is ZERO:
        return a
    if a is ZERO:
        return b
    constant_a, terms_a = linear(a)
    constant_b, terms_b = linear(b)
    merged = dict(terms_a)
    for term, c in terms_b:
        merged[term] = merged.get(term, 0) + c
    constant = constant_a + constant_b
    if any(term.op == "mod" for term in merged):
        recombined = _BINARY["recombine"](from_linear(constant, merged.items()), ZERO)
        return recombined
    return from_linear(constant, merged.items())


def _product(a: Expr, b: Expr) -> Expr:
    """The product of two terms that are neither sums nor integers."""
    factors = (a.args if a.op == "mul" else (a,)) + (b.args if b.op == "mul" else (b,))
    return monomial(factors)


def monomial(factors: Iterable[Expr]) -> Expr:
    """The product of terms that are neither sums, products nor integers."""
    ordered = tuple(sorted(factors, key=lambda f: f.key))
    if not ordered:
        return ONE
    if len(ordered) == 1:
        return ordered[0]
    lo, hi = ordered[0].lo, ordered[0].hi
    for factor in ordered[1:]:
        corners = [_times(x, y) for x in (lo, hi) for y in (factor.lo, factor.hi)]
        lo, hi = _clamp(min(corners)), _clamp(max(corners))
    return intern_node("mul", ordered, lo, hi)


def _times(x: int, y: int) -> int:
    return _clamp(x * y)


@lru_cache(maxsize=1 << 16)
def multiply(a: Expr, b: Expr) -> Expr:
    """``a * b``, multiplied out."""
    if a.op == "int":
        a, b = b, a
    if b.op == "int":
        n = b.args[0]
        if n == 1:
            return a
        if n == 0:
            return ZERO
        constant, terms = linear(a)
        return from_linear(constant * n, ((t, c * n) for t, c in terms))
    constant_a, terms_a = linear(a)
    constant_b, terms_b = linear(b)
    merged: dict[Expr, int] = {}
    for ta, ca in terms_a:
        for tb, cb in terms_b:
            product = _product(ta, tb)
            merged[product] = merged.get(product, 0) + ca * cb
        if constant_b:
            merged[ta] = merged.get(ta, 0) + ca * constant_b
    if constant_a:
        for tb, cb in terms_b:
            merged[tb] = merged.get(tb, 0) + cb * constant_a
    return from_linear(constant_a * constant_b, merged.items())


def walk(e: Expr) -> Iterator[Expr]:
    """Every distinct sub-expression of ``e``, ``e`` first."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(reversed(node.children))


@lru_cache(maxsize=1 << 14)
def free_symbols(e: Expr) -> frozenset[Expr]:
    """The symbols that occur in ``e`` (an indirect symbol counts, the scalar behind it is not looked into)."""
    return frozenset(node for node in walk(e) if node.op == "symbol")
