"""Patterns of calls, as values, and what matches them.

In: a pattern and a node (or an argument). Out: every way to match it, as ``Bindings``: the captured arguments by name, and the calls
that were matched. Nothing here edits a graph, and nothing looks at the value of a symbolic size, so that no guard is added.

=================  ========================================================================================================
pattern            what it matches
=================  ========================================================================================================
``Operand``        any node, if its result is as asked (``Like``)
``Constant``       an argument that is no node, if it holds what is asked
``Anything``       whatever stands there
``call(ops, …)``   a call of one of the ops, argument by argument
``Through``        a pattern behind a chain of at most so many calls of one operand (views)
``Either``         one of several patterns, in turn
a plain value      an argument equal to it: a number, a list of numbers, a dtype, None
=================  ========================================================================================================

Arguments are those of the op's schema, wherever they were written: by position, by name or left out. Those that a pattern does not
mention must have their defaults, unless it says ``others=True``: a rule never overlooks a factor that it did not think of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from attrs import field, frozen
from torch import fx
from torch._ops import OpOverload

from ..devices import Libraries, device_of

aten = torch.ops.aten

#: Numbers whose value is not to be asked.
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _dtypes(values: Iterable[torch.dtype] | None) -> frozenset[torch.dtype] | None:
    return None if values is None else frozenset(values)


def _ranks(values: Iterable[int] | None) -> frozenset[int] | None:
    return None if values is None else frozenset(values)


def _ops(values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values)


_NONE_KNOWN = Libraries()


@frozen
class Like:
    """What the fake result of a node is asked to be; what is None is not asked. Only a tensor is like anything but ``Like()``.

    ``libraries`` names what has to be true of the libraries of its device: a field of ``devices.Libraries`` that is a truth value.
    """

    libraries: str | None = field(default=None)
    dtypes: frozenset[torch.dtype] | None = field(default=None, converter=_dtypes)
    ranks: frozenset[int] | None = field(default=None, converter=_ranks)

    @libraries.validator
    def _check_libraries(self, attribute: object, value: str | None) -> None:
        if value is not None and not isinstance(getattr(_NONE_KNOWN, value, None), bool):
            raise ValueError(f"nothing called {value!r} is said of a device's libraries")

    def accepts(self, node: fx.Node) -> bool:
        """Whether the result of ``node`` is so."""
        if self.libraries is None and self.dtypes is None and self.ranks is None:
            return True
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor):
            return False
        if self.libraries is not None and not getattr(device_of(val.device).libraries, self.libraries):
            return False
        if self.dtypes is not None and val.dtype not in self.dtypes:
            return False
        return self.ranks is None or val.dim() in self.ranks


_ANY = Like()


@frozen
class Operand:
    """Any node whose result is ``like`` that; ``only_user``: nothing but the call that it is an operand of reads it."""

    name: str = ""
    like: Like = _ANY
    only_user: bool = False


@frozen
class Constant:
    """An argument that is no node, and of which ``holds`` is true. Symbolic numbers are none."""

    name: str = ""
    holds: Callable[[Any], bool] = field(default=lambda value: True, repr=False)


@frozen
class Anything:
    """A node, a constant, or nothing."""

    name: str = ""


@frozen
class Call:
    """A call of one of ``ops``; made by ``call``."""

    ops: frozenset[Any]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(factory=dict)
    name: str = ""
    like: Like = _ANY
    only_user: bool = False
    commutes: bool = False
    others: bool = False


@frozen
class Through:
    """``inner``, itself or behind at most ``most`` calls of ``ops``, of which each is read by the next only.

    Bound to ``name``: the calls passed through, the outermost first.
    """

    ops: frozenset[Any] = field(converter=_ops)
    inner: Any
    name: str = ""
    most: int = 4


@frozen
class Either:
    """One of ``patterns``; each that matches is a way to match this."""

    patterns: tuple[Any, ...]


def call(
    ops: Any | Iterable[Any],
    *args: Any,
    name: str = "",
    like: Like = _ANY,
    only_user: bool = False,
    commutes: bool = False,
    others: bool = False,
    **named: Any,
) -> Call:
    """A call of ``ops`` (one, or several) with these arguments, patterns or plain values, by their places or names in the schema.

    Args:
        name: what the call itself is bound to.
        like: what its result has to be.
        only_user: nothing but the call that it is an operand of reads it, and that once.
        commutes: the first two arguments may stand in either order. Of two nodes, the one that comes earlier in the graph is tried
            first in the place of the first pattern, so that a match does not depend on how the operands were written.
        others: arguments that are not mentioned may be anything; otherwise they must have their defaults.
    """
    found = frozenset(ops) if isinstance(ops, Iterable) else frozenset((ops,))
    if commutes and len(args) < 2:
        raise ValueError("two operands are needed to commute")
    return Call(found, args, named, name, like, only_user, commutes, others)


@frozen
class Bindings:
    """``values`` by the names of what captured them, and the ``nodes`` that were matched as calls, the outermost first."""

    values: Mapping[str, Any] = field(factory=dict)
    nodes: tuple[fx.Node, ...] = ()

    def bound(self, name: str, value: Any) -> Bindings | None:
        """With ``value`` under ``name``; None where that name stands for another one. No name: as it is."""
        if not name:
            return self
        if name in self.values:
            known = self.values[name]
            same = known is value or (not isinstance(value, fx.Node) and _equal(known, value))
            return self if same else None
        return Bindings({**self.values, name: value}, self.nodes)


def products(like: Like, bias: Any) -> dict[str, Call]:
    """Products of two matrices, ``left`` and ``right``, by what they are called in rules' names: with a bias that matches ``bias``, and without."""
    left, right = Operand("left"), Operand("right")
    return {
        "biased_product": call(aten.addmm.default, bias, left, right, like=like),
        "product": call(aten.mm.default, left, right, like=like),
    }


def match(pattern: Any, value: Any, bound: Bindings | None = None) -> Iterator[Bindings]:
    """All ways to match ``value``, a node or an argument of one, in a fixed order."""
    bound = bound or Bindings()
    if isinstance(pattern, Call):
        if isinstance(value, fx.Node):
            yield from _match_call(pattern, value, bound)
    elif isinstance(pattern, Operand):
        if isinstance(value, fx.Node) and pattern.like.accepts(value) and _is_private(pattern, value):
            yield from _some(bound.bound(pattern.name, value))
    elif isinstance(pattern, Constant):
        if _is_constant(value) and pattern.holds(value):
            yield from _some(bound.bound(pattern.name, value))
    elif isinstance(pattern, Anything):
        yield from _some(bound.bound(pattern.name, value))
    elif isinstance(pattern, Through):
        yield from _match_through(pattern, value, bound)
    elif isinstance(pattern, Either):
        for each in pattern.patterns:
            yield from match(each, value, bound)
    elif _equal(pattern, value):
        yield bound


def reach(pattern: Any) -> int:
    """How many calls, one an operand of the next, a match may hold: a change of one may let that many more match."""
    if isinstance(pattern, Call):
        return 1 + max(map(reach, (*pattern.args, *pattern.named.values())), default=0)
    if isinstance(pattern, Through):
        return pattern.most + reach(pattern.inner)
    if isinstance(pattern, Either):
        return max(map(reach, pattern.patterns), default=0)
    return 1 if isinstance(pattern, Operand) and pattern.only_user else 0


def argument(node: fx.Node, name: str) -> Any:
    """The argument ``name`` of a call of an op, as it was given or by default."""
    names, _ = _signature(node.target)
    values = arguments(node)
    assert values is not None
    return values[names.index(name)]


def with_argument(node: fx.Node, name: str, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of a call like ``node`` with ``value`` as its argument ``name``."""
    names, _ = _signature(node.target)
    position = names.index(name)
    if position < len(node.args):
        return (*node.args[:position], value, *node.args[position + 1 :]), dict(node.kwargs)
    return node.args, {**node.kwargs, name: value}


def arguments(node: fx.Node) -> tuple[Any, ...] | None:
    """All arguments of a call in the order of the op's schema; None for a call that does not fit it."""
    target: Any = node.target
    if not isinstance(target, OpOverload):
        return None if node.kwargs else node.args
    names, defaults = _signature(target)
    if not node.kwargs:
        return (*node.args, *defaults[len(node.args) :])
    values = (*node.args, *(node.kwargs.get(n, d) for n, d in zip(names[len(node.args) :], defaults[len(node.args) :], strict=True)))  # fmt: skip
    return values if all(name in names for name in node.kwargs) else None


@functools.cache
def _signature(op: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    parameters = op._schema.arguments
    return tuple(p.name for p in parameters), tuple(p.default_value if p.has_default_value() else None for p in parameters)  # fmt: skip


def _match_call(pattern: Call, node: fx.Node, bound: Bindings) -> Iterator[Bindings]:
    if node.op != "call_function" or node.target not in pattern.ops or not _is_private(pattern, node):
        return
    if not pattern.like.accepts(node):
        return
    pairs = _pairs(pattern, node)
    named = bound.bound(pattern.name, node)
    if pairs is None or named is None:
        return
    start = Bindings(named.values, (*named.nodes, node))
    yield from _match_all(pairs, start)
    if pattern.commutes:
        (first, a), (second, b), *rest = pairs
        yield from _match_all([(first, b), (second, a), *rest], start)


def _pairs(pattern: Call, node: fx.Node) -> list[tuple[Any, Any]] | None:
    """Patterns and the arguments that they are to match; None where an argument that is not mentioned is given."""
    values = arguments(node)
    if values is None or len(pattern.args) > len(values):
        return None
    given = len(pattern.args)
    pairs = list(zip(pattern.args, values[:given], strict=True))
    if pattern.commutes:
        (first, a), (second, b), *rest = pairs
        if isinstance(a, fx.Node) and isinstance(b, fx.Node) and b < a:
            pairs = [(first, b), (second, a), *rest]
    if not isinstance(node.target, OpOverload):
        return pairs if given == len(values) and not pattern.named else None
    names, defaults = _signature(node.target)
    for name, default, value in zip(names[given:], defaults[given:], values[given:], strict=True):
        if name in pattern.named:
            pairs.append((pattern.named[name], value))
        elif not pattern.others and not _equal(default, value):
            return None
    return pairs if all(name in names for name in pattern.named) else None


def _match_all(pairs: list[tuple[Any, Any]], bound: Bindings) -> Iterator[Bindings]:
    if not pairs:
        yield bound
        return
    (pattern, value), *rest = pairs
    for found in match(pattern, value, bound):
        yield from _match_all(rest, found)


def _match_through(pattern: Through, value: Any, bound: Bindings) -> Iterator[Bindings]:
    passed: list[fx.Node] = []
    while True:
        found = bound.bound(pattern.name, tuple(passed))
        if found is not None:
            yield from match(pattern.inner, value, Bindings(found.values, (*found.nodes, *passed)))
        if not isinstance(value, fx.Node) or value.target not in pattern.ops or len(passed) == pattern.most:
            return
        if value.op != "call_function" or len(value.users) != 1:
            return
        passed.append(value)
        value = value.args[0]


def _is_private(pattern: Call | Operand, node: fx.Node) -> bool:
    if not pattern.only_user:
        return True
    # A call that takes it twice is one user.
    return len(node.users) == 1 and sum(source is node for source in _sources(next(iter(node.users)))) == 1


def _sources(node: fx.Node) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


def _some(bound: Bindings | None) -> Iterator[Bindings]:
    if bound is not None:
        yield bound


def _is_constant(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_constant, value))
    return not isinstance(value, (fx.Node, *_SYMBOLIC))


def _equal(wanted: Any, value: Any) -> bool:
    """Whether a constant argument is a plain value; lists and tuples are alike."""
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        return len(wanted) == len(value) and all(map(_equal, wanted, value))
    if not _is_constant(value) or not _is_constant(wanted) or (wanted is None) is not (value is None):
        return False
    return bool(wanted == value)
