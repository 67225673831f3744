"""What saving or recomputing a node costs.

In: a node of a functional graph. Out: whether the backward may compute it again, and the bytes that saving it takes.
"""

from __future__ import annotations

from operator import getitem

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from ..functional.ops import short_name
from ..passes.facts import byte_size, is_pinned, is_view_node

# Cheap and fusible although torch does not tag them as pointwise.
_CHEAP = frozenset(
    {
        "clone", "_to_copy", "copy", "full", "full_like", "scalar_tensor", "arange", "iota", "empty", "empty_like",
        "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "new_zeros", "new_ones", "new_full", "new_empty",
        "zero", "fill", "where", "masked_fill", "constant_pad_nd", "slice_scatter", "select_scatter", "one_hot",
        "cat", "stack", "tril", "triu", "flip", "roll", "eye", "expand", "repeat", "convert_element_type",
        "lift_fresh_copy", "split_with_sizes_copy", "_unsafe_view", "sym_size", "sym_stride", "sym_numel", "gelu",
        "silu", "hardswish", "mish", "elu", "hardtanh", "leaky_relu", "softplus", "threshold", "as_strided_scatter",
    }
)  # fmt: skip


_REDUCTIONS = frozenset(
    [
        "sum",
        "mean",
        "prod",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "any",
        "all",
        "var",
        "std",
        "var_mean",
        "std_mean",
        "norm",
        "linalg_vector_norm",
        "logsumexp",
    ]
)


def is_fusible(node: Node) -> bool:
    """True for pointwise ops, views, factories and integer arithmetic: what a compiler fuses into its reader."""
    if node.op == "get_attr":
        return True
    if node.op != "call_function":
        return False
    if is_pinned(node):
        return False
    target = node.target
    if not isinstance(target, OpOverload):
        return not isinstance(target, HigherOrderOperator)
    if is_view_node(node) or torch.Tag.pointwise in target.tags:
        return True
    return short_name(target) in _CHEAP


def is_reduction(node: Node) -> bool:
    """True for ops that give one value of many."""
    return isinstance(node.target, OpOverload) and short_name(node.target) in _REDUCTIONS


def is_free(node: Node) -> bool:
    """True when recomputing moves no bytes: views, items of a list, sizes."""
    if node.op != "call_function":
        return False
    return node.target is getitem or is_view_node(node) or not isinstance(node.meta.get("val"), torch.Tensor)


def saved_bytes(node: Node) -> int:
    """Bytes kept from the forward to the backward when the node is saved; at least one."""
    return max(byte_size(node.meta.get("val")), 1)
