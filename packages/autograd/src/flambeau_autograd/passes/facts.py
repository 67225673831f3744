"""Questions that passes and the partitioner ask about a node of a functional graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from operator import getitem
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from ..functional.ops import is_foreign, is_impure, is_random, is_view, raises, short_name, writes

#: Ops that take strides and an offset in the storage of their argument.
_AS_STRIDED = frozenset({"as_strided", "as_strided_copy", "as_strided_scatter"})

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_STRIDES = frozenset({"sym_stride", "sym_storage_offset"})
_SIZES = _STRIDES | {"sym_size", "sym_numel"}

#: Arguments that say how often an op draws: at a constant 0 it does not.
_RATES = ("dropout_p", "dropout")
#: Arguments that say where in the random numbers a forward was: what takes them computes its mask again, and draws nothing.
_DRAWN = frozenset({"philox_seed", "philox_offset", "rng_state"})

#: What was found out about the calls in a body.
_OF_BODIES: weakref.WeakKeyDictionary[GraphModule, dict[Callable[[Node], bool], bool]] = weakref.WeakKeyDictionary()


def bodies(node: Node) -> list[GraphModule]:
    """The functional graphs that a higher-order operator is called with; none of any other call, nor of an operator that is not traced through."""
    if node.op != "call_function" or not isinstance(node.target, HigherOrderOperator):
        return []
    return [a.meta["body"] for a in node.all_input_nodes if "body" in a.meta]


def _any_inside(node: Node, fact: Callable[[Node], bool]) -> bool:
    """Whether a call in its bodies is so. A body is looked at once for all of its calls: it is not changed when it has one."""
    found = False
    for body in bodies(node):
        known = _OF_BODIES.setdefault(body, {})
        if fact not in known:
            known[fact] = any(fact(inner) for inner in body.graph.nodes if inner.op == "call_function")
        found = found or known[fact]
    return found


def draws(node: Node) -> bool:
    """True when the call draws random numbers; attention without dropout has an op that could and does not, and that of its gradient never does."""
    if bodies(node):
        return _any_inside(node, draws)
    if node.op != "call_function" or not is_random(node.target):
        return False
    if any(argument.name in _DRAWN for argument in node.target._schema.arguments):
        return False
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name in _RATES:
            rate = (
                node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            )
            return not (isinstance(rate, (int, float)) and rate == 0)
    return True


def is_pinned(node: Node) -> bool:
    """True when the node must stay although nobody reads it: it draws random numbers, writes, checks, or is not known."""
    if node.op in ("placeholder", "output"):
        return True
    if bodies(node):
        return "checks" in node.meta or _any_inside(node, is_pinned)
    return node.op == "call_function" and (draws(node) or is_impure(node.target) or "checks" in node.meta)


def symbols_made(node: Node) -> set[Any]:
    """The symbols of sizes and numbers that come of the values of the operands: what is computed with those is told by their symbols."""
    made = _open_symbols(node)
    return made - {symbol for operand in node.all_input_nodes for symbol in _open_symbols(operand)} if made else made


def _open_symbols(node: Node) -> set[Any]:
    found = (number for value in tree_leaves(node.meta.get("val")) for number in _numbers(value))
    return {symbol for number in found if not number.node.has_hint() for symbol in number.node.expr.free_symbols}


def _numbers(value: Any) -> Iterator[Any]:
    yield from (n for n in (value.shape if isinstance(value, torch.Tensor) else (value,)) if isinstance(n, _SYMBOLS))


def may_raise(node: Node) -> bool:
    """True for what the program computes and eager may refuse for the values of its operands."""
    if node.op != "call_function" or node.meta.get("backward"):
        return False
    if bodies(node):
        return _any_inside(node, may_raise)
    if short_name_of(node.target) == "select":
        # At a number that is read out of a tensor, of which nobody knows whether the dimension has it.
        return isinstance(node.args[2], Node) and bool(_open_symbols(node.args[2]))
    value = node.meta.get("val")
    integers = isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
    return raises(node.target, integers)


def may_fail(node: Node) -> bool:
    """True for what may raise when the graph runs: the same, a check, and what is not known."""
    if node.op != "call_function":
        return False
    if bodies(node):
        return "checks" in node.meta or _any_inside(node, may_fail)
    known_write = isinstance(node.target, OpOverload) and writes(node.target) and not is_foreign(node.target)
    return may_raise(node) or "checks" in node.meta or (is_impure(node.target) and not known_write)


def runs_once(node: Node) -> bool:
    """True when a checkpointed region must not run the node again: another draw, a second call of an op that writes."""
    if node.op in ("placeholder", "output"):
        return True
    if bodies(node):
        return _any_inside(node, runs_once)
    return node.op == "call_function" and (draws(node) or isinstance(node.target, HigherOrderOperator))


def is_late(node: Node) -> bool:
    """True for what the backward does besides its gradients: a check, a draw or an unknown op that its formulas call, one that raises; and for what a
    rewrite wants to be computed there and not before."""
    if node.op != "call_function" or not node.meta.get("backward"):
        return False
    return is_pinned(node) or "refused" in node.meta or "recomputed" in node.meta


def counts_in_memory(node: Node) -> bool:
    """True for an op that counts from the beginning of its argument's storage, whatever that tensor shows of it."""
    return node.op == "call_function" and short_name_of(node.target) in _AS_STRIDED


def feeds_strided(node: Node) -> bool:
    """True when such an op reads the node: another tensor may start elsewhere in its own storage."""
    return any(map(counts_in_memory, node.users))


def short_name_of(target: Any) -> str:
    """The op's name, or nothing."""
    return short_name(target) if isinstance(target, OpOverload) else ""


def is_view_node(node: Node) -> bool:
    """True when the node's tensor shares the storage of its first argument."""
    if node.op != "call_function":
        return False
    if node.target is getitem:
        source = node.args[0]
        return isinstance(source, Node) and source.op == "call_function" and is_view(source.target)
    return is_view(node.target)


def alias_root(node: Node) -> Node:
    """The node that owns the storage which `node` shows."""
    while is_view_node(node) or node.target is torch.ops.aten._unsafe_view.default:  # whose schema does not tell
        if node.target is getitem:
            node = node.args[0]
        node = node.args[0]
    return node


def is_size(node: Node) -> bool:
    """True when the node tells how its argument lies in memory, whatever that holds."""
    return short_name_of(node.target) in _SIZES


def tells_strides(node: Node) -> bool:
    """True for a size, as above, that a copy in other strides does not have."""
    return short_name_of(node.target) in _STRIDES


def is_tensor(node: Node) -> bool:
    """True when the node's value is one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def byte_size(value: Any) -> int:
    """Bytes of a tensor (hints for symbolic sizes; 4096 where there is none), 8 for a number, sum for lists."""
    if isinstance(value, torch.Tensor):
        count = 1
        for size in value.shape:
            count *= size if isinstance(size, int) else _hint(size)
        return int(count * value.element_size())
    if isinstance(value, (list, tuple)):
        return sum(byte_size(v) for v in value)
    return 8


def _hint(size: Any) -> int:
    hint = size.node.hint
    return int(hint) if hint is not None else 4096
