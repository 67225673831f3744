"""Whether the rounds of a loop do nothing for the numbers that nobody chose, so that a loop over those that somebody did is one over all numbers.

    mask = one_hot(chosen, num_classes=E).permute(2, 1, 0)
    for number in (mask.sum(dim=(-1, -2)) > 0).nonzero():      # ascending; a part of the mask has an element other than 0, or its number is left out
        rank, token = torch.where(mask[number])
        result.index_add_(0, token, f(x[token], weights[number]))

In: nodes of a graph, each round's among them, traced for every number. Out: `Hits`, what the loop goes over; whether `rounds` do nothing where their part of
the mask is all 0. `torch.where` finds nothing there, so that all that is computed of its places has no element (which no operation of `_PURE` refuses), and adding
no rows changes nothing. Of gradients that is so where all rounds lead to the same tensors, and at least one is not idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import setitem
from typing import Any

import torch
from attrs import frozen
from torch.fx import Node
from torch.utils import _pytree as pytree

from .refusals import is_write, name_of

#: Operations that compute nothing but a result, of no elements too: views and parts, conversions, functions of each element, products, normalised rows.
_PURE = frozenset((
    *("getitem", "getattr", "select", "index_select", "chunk", "split", "unbind", "narrow", "view", "reshape", "flatten", "squeeze", "unsqueeze"),
    *("transpose", "permute", "t", "contiguous", "clone", "detach", "expand", "expand_as", "size", "dim", "numel", "nonzero", "where", "full", "one_hot"),
    *("to", "type_as", "float", "half", "bfloat16", "double", "long", "int", "bool"),
    *("add", "sub", "mul", "truediv", "div", "neg", "pow", "square", "sqrt", "rsqrt", "exp", "log", "abs", "clamp", "minimum", "maximum"),
    *("eq", "ne", "lt", "le", "gt", "ge", "greater", "less", "logical_and", "logical_or", "logical_not"),
    *("sigmoid", "tanh", "silu", "gelu", "relu", "relu6", "leaky_relu", "elu", "mish", "hardswish", "hardsigmoid", "softplus", "logsigmoid"),
    *("linear", "matmul", "mm", "addmm", "bmm", "layer_norm", "rms_norm", "mean", "sum"),
))  # fmt: skip
#: What says how a graph is computed, and what it assumes.
_SETTINGS = frozenset(("_set_grad_enabled", "_check", "sym_constrain_range", "sym_constrain_range_for_size"))
_SHAPES = ("view", "reshape")


@frozen
class Hits:
    """What a loop goes over: the numbers below `count` of the parts of `mask` (numbers, ranks, tokens) that have an element other than 0. No other part has one."""

    mask: Node
    count: int


@frozen
class Round:
    """The nodes of one round, in order."""

    number: int
    nodes: tuple[Node, ...]


def hits_of(found: Node) -> Hits | None:
    """What `found` names, if it is what `nonzero` gives of such a mask: (hits, 1), or (hits) by one more `squeeze`."""
    node = found
    if _name(node) == "squeeze" and node.args[1:] in ((-1,), (1,)):
        node = node.args[0]
    if _name(node) != "nonzero" or len(node.args) != 1 or node.kwargs.get("as_tuple"):
        return None
    condition: Any = node.args[0]
    if _name(condition) not in ("gt", "greater", "ne") or tuple(condition.args[1:]) != (0,) or condition.kwargs:
        return None
    sums: Any = condition.args[0]
    mask: Any = sums.args[0] if _name(sums) == "sum" else None
    if not isinstance(mask, Node) or mask.meta["val"].dim() != 3 or not _is_natural(mask):
        return None
    dims = sums.kwargs.get("dim", sums.args[1:])
    while len(dims) == 1 and isinstance(dims[0], list | tuple):
        dims = dims[0]
    count = mask.meta["val"].shape[0]
    known = set(sums.kwargs) <= {"dim"} and sorted(dim % 3 for dim in dims) == [1, 2] and type(count) is int
    return Hits(mask, min(count, _choices_among(mask) or count)) if known else None


def are_idle(hits: Hits, rounds: Sequence[Round], *, differentiated: bool) -> bool:
    """Whether each round does nothing where its part of the mask is 0, with gradients where something is `differentiated`."""
    nodes = list(hits.mask.graph.nodes)
    since = nodes[nodes.index(_root_of(hits.mask)) :]
    held = _memory(hits.mask)
    if not all(_leaves_alone(node, held) for node in since if node.op.startswith("call_")):
        return False
    active = [each for each in rounds if any(_writes(node) for node in each.nodes)]
    if not all(_is_idle(hits, each) for each in rounds):
        return False
    if not differentiated or not active:
        return True
    led_to = [_differentiable(each) for each in active]
    return all(nodes == led_to[0] for nodes in led_to) and (not led_to[0] or _is_one_hit(hits, active))


def rows_of(hits: Hits, each: Round) -> set[Any]:
    """The numbers of rows that a round has found for its number, as symbols: 0 where it is idle, and more where it is not."""
    return {symbol for node in each.nodes for symbol in _found(hits, node, each.number)}


# -- what a mask is ------------------------------------------------------------------------------------------------------


def _is_natural(node: Any) -> bool:
    """Whether all elements are 0 or more."""
    if not isinstance(node, Node):
        return False
    if _name(node) in ("permute", "transpose", "contiguous", "movedim", "to", "long", "int"):
        return _is_natural(node.args[0])
    return _name(node) == "one_hot"


def _root_of(mask: Node) -> Node:
    while _name(mask) != "one_hot":
        mask = mask.args[0]
    return mask


def _choices_among(mask: Node) -> int | None:
    """How many numbers there are of which the places in a `topk` are some; None where the mask is not of these."""
    chosen: Any = _root_of(mask).args[0]
    whole = chosen.args[0] if _name(chosen) == "getitem" and chosen.args[1] == 1 else None
    if whole is None or _name(whole) != "topk":
        return None
    dim = whole.kwargs.get("dim", whole.args[2] if len(whole.args) > 2 else -1)
    count = whole.args[0].meta["val"].shape[dim] if type(dim) is int else None
    return count if type(count) is int else None


def _is_one_hit(hits: Hits, active: Sequence[Round]) -> bool:
    """Whether some round is not idle, and so does something: each does, and there are choices."""
    sizes = _root_of(hits.mask).args[0].meta["val"].shape
    return len(active) == hits.count and not any(_is_open(size) or (type(size) is int and size == 0) for size in sizes)


def _is_open(size: Any) -> bool:
    """Whether no example stands for a size."""
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


# -- what a round does -------------------------------------------------------------------------------------------------------


def _leaves_alone(node: Node, held: Any) -> bool:
    """Whether an operation does not change the memory of the mask."""
    reads = any(_memory(operand) == held for operand in node.all_input_nodes)
    return not reads or (_name(node) in _PURE and not _is_in_place(node))


def _is_idle(hits: Hits, each: Round) -> bool:
    zero: set[Any] = set()
    rows: set[Node] = set()
    for node in each.nodes:
        if node.op == "get_attr":
            continue
        name = _name(node)
        if found := _found(hits, node, each.number):
            zero |= found
            rows.add(node)
        elif _writes(node):
            if not _writes_nothing(node, zero):
                return False
            rows.update([node] if not rows.isdisjoint(node.all_input_nodes) else ())
        elif not _computes(node, name) or not _stays_empty(node, rows, zero):
            return False
    return True


def _found(hits: Hits, node: Node, number: int) -> set[Any]:
    """How many elements other than 0 a node finds in the part of the mask that has this number; nothing where it does not look for them."""
    is_search = _name(node) == "nonzero" or (_name(node) == "where" and len(node.args) == 1)
    if not is_search or not _is_part(hits.mask, node.args[0], number):
        return set()
    return {size.node.expr for part in _parts(node) for size in part.shape if _is_open(size)}


def _computes(node: Node, name: str) -> bool:
    """Whether an operation has a result and no effect, and takes operands of no elements."""
    if name in _SETTINGS:
        return True
    if not node.op.startswith("call_") or name not in _PURE:
        return False
    # Torch cannot tell what -1 stands for beside a size of 0.
    return not (name in _SHAPES and _is_inferred(node.args[1:]))


def _is_inferred(sizes: Any) -> bool:
    leaves = pytree.tree_leaves(list(sizes))
    return any(leaf == -1 for leaf in leaves if type(leaf) is int) and any(isinstance(leaf, Node) for leaf in leaves)


def _stays_empty(node: Node, rows: set[Node], zero: set[Any]) -> bool:
    """Whether what is computed of a round's rows has no elements either."""
    if rows.isdisjoint(node.all_input_nodes):
        return True
    rows.add(node)
    return all(_is_empty(part, zero) for part in _parts(node))


def _writes(node: Node) -> bool:
    return is_write(node.op, node.target) or node.target is setitem or "out" in node.kwargs or _is_in_place(node)


def _is_in_place(node: Node) -> bool:
    """Whether a function of torch is told to write to its operand, as activations can be."""
    return _name(node) not in _SETTINGS and (
        node.kwargs.get("inplace") is True or any(arg is True for arg in node.args)
    )


def _writes_nothing(node: Node, zero: set[Any]) -> bool:
    """Whether what an operation writes are the elements of a tensor that has none, or no rows."""
    target: Any = node.args[0]
    if "out" in node.kwargs or not isinstance(target, Node):
        return False
    if _is_empty(target.meta["val"], zero):
        return True
    if _name(node) == "index_add_":
        place: Any = node.args[2] if len(node.args) == 4 else None
        return isinstance(place, Node) and _is_empty(place.meta["val"], zero)
    if node.target is setitem:
        parts = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        return any(isinstance(part, Node) and _is_empty(part.meta["val"], zero) for part in parts)
    return False


def _is_part(mask: Node, node: Any, number: int) -> bool:
    """Whether `node` is the part of the mask that has this number."""
    while isinstance(node, Node) and _name(node) == "squeeze" and node.args[1:] == (0,):
        node = node.args[0]
    if not isinstance(node, Node) or not node.args or node.args[0] is not mask:
        return False
    return (_name(node), *node.args[1:]) in (("getitem", number), ("getitem", [number]), ("select", 0, number))


def _is_empty(value: Any, zero: set[Any]) -> bool:
    """Whether a tensor has no elements where these sizes are 0."""
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, torch.SymInt) and size.node.expr in zero for size in value.shape)


def _differentiable(each: Round) -> set[Node]:
    """What a round computes with and did not make, and has a gradient; parts of the same tensor are that tensor."""
    own = set(each.nodes)
    operands = (operand for node in each.nodes for operand in node.all_input_nodes if operand not in own)
    return {operand for operand in operands if any(part.requires_grad for part in _parts(operand))}


def _parts(node: Node) -> Iterator[torch.Tensor]:
    leaves: Iterable[Any] = pytree.tree_leaves(node.meta.get("val"))
    return (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _memory(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _name(node: Any) -> str:
    return name_of(node.op, node.target) if isinstance(node, Node) and node.op.startswith("call_") else ""
