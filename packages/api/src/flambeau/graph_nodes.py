"""What the nodes of a captured graph are, and what masks and positions are computed from.

In: nodes of torch-level calls, whose `meta["val"]` tells what they give. Out: names and facts. Read by `repeats.py`, `attention_masks.py` and `ddp.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload

NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
_ROOTS = frozenset(("torch", "_operator", "operator", "math", "builtins"))
#: What masks and positions are made of: of the same sizes it gives the same again, in any place.
_OF_MASKS = frozenset((
    "arange", "full", "zeros", "ones", "new_full", "new_zeros", "new_ones", "full_like", "zeros_like", "ones_like",
    "add", "sub", "mul", "neg", "floordiv", "mod", "abs", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "invert",
    "logical_and", "logical_or", "logical_not", "logical_xor", "where", "masked_fill", "tril", "triu", "cumsum", "diff",
    "expand", "view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "getitem", "contiguous", "to", "bool",
))  # fmt: skip
#: A longer chain is not computed in a body.
_MOST_OF_A_MASK = 64


def is_plain(node: fx.Node) -> bool:
    """Whether a call computes, by torch's functions alone, as it would in any graph."""
    target: Any = node.target
    if node.op == "call_function" and not isinstance(target, OpOverload):
        module = getattr(target, "__module__", None) or getattr(
            getattr(target, "__objclass__", None), "__module__", None
        )
        if isinstance(target, HigherOrderOperator) or (module or "torch").partition(".")[0] not in _ROOTS:
            return False
    elif node.op not in ("call_function", "call_method"):
        return False
    if "checkpoint" in node.meta or node.kwargs.get("out") is not None or "conv" in name_of(node):
        return False  # how convolutions lie is decided for all of a graph at once
    return all(is_value(value) for value in _parts(node.meta.get("val")))


def name_of(node: fx.Node) -> str:
    """Of what is called."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return str(name).partition(".")[0]


def is_value(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.layout is torch.strided and not value.is_conj() and not value.is_neg()
    return isinstance(value, NUMBERS)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def mask_chain(
    end: fx.Node, gone: Set[fx.Node] = frozenset(), *, with_inputs: bool = False
) -> tuple[set[fx.Node], list[fx.Node]]:
    """All that `end` is computed from, and the sizes among it; nothing where that is more than masks are made of, or `gone`. `with_inputs`: what inputs on a GPU
    say of each key (padding, documents) may be read too, and counts as sizes do."""
    chain: set[fx.Node] = set()
    sizes: dict[fx.Node, None] = {}
    reached = [end]
    while reached:
        node = reached.pop()
        if node in chain:
            continue
        if node in gone:
            return set(), []
        value = node.meta.get("val")
        if isinstance(value, NUMBERS) or (with_inputs and _says_of_keys(node, end)):
            sizes[node] = None
            continue
        if len(chain) == _MOST_OF_A_MASK or not is_of_a_mask(node):
            return set(), []
        chain.add(node)
        reached += node.all_input_nodes
    return chain, list(sizes)


def _says_of_keys(node: fx.Node, mask: fx.Node) -> bool:
    """Whether an input is of whole numbers or truth values, fewer than a mask has, that nobody writes to. On a CPU the library reads the mask, which is made once then."""
    value = node.meta.get("val")
    if node is mask or node.op != "placeholder" or not isinstance(value, Tensor) or value.device.type == "cpu":
        return False
    return (
        not (value.is_floating_point() or value.is_complex() or value._version) and value.dim() < mask.meta["val"].dim()
    )


def is_of_a_mask(node: fx.Node) -> bool:
    """Whether a node gives the same in any place, given the same. Sums of floats do not: autocast changes their dtype."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value._version:
        return False  # a version: somebody writes to it
    sums_floats = name_of(node) == "cumsum" and value.is_floating_point()
    return is_plain(node) and name_of(node) in _OF_MASKS and not sums_floats
