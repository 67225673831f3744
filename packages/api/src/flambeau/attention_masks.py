"""Attention under a mask that is the same at every call: one that leaves nothing out, or what comes after each query alone.

In: a captured graph. Out: its calls of `scaled_dot_product_attention` take no mask where they need none, and `is_causal` where that says the same.
Libraries then skip the blocks that a causal mask leaves out, and read no mask; models that are captured make one where eager would have asked
its values. A mask is known that follows from plain sizes alone: it is computed while compiling, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from .graph_nodes import mask_chain

_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
#: The most bytes that a tensor may take which is computed here.
_MOST_BYTES = 256 << 20


def drop_known_masks(gm: fx.GraphModule) -> int:
    """Edit `gm` in place; how many calls go without their mask now. With dropout they keep it: other kernels draw other numbers."""
    known: dict[fx.Node, str] = {}  # a mask fits one pair of lengths alone
    changed = 0
    for node, given in _masked_calls(gm):
        mask, query = given["attn_mask"], given["query"].meta["val"]
        lengths = [query.shape[-2], given["key"].meta["val"].shape[-2]]
        # Torch refuses masks of other types, and those of one dimension.
        if not all(isinstance(n, int) for n in lengths) or not _fits(mask.meta["val"], query):
            continue
        if mask not in known:
            known[mask] = _kind(mask, *lengths)
        if known[mask]:
            kept = {name: value for name, value in node.kwargs.items() if name not in _PARAMETERS}
            node.args = tuple(given[name] for name in _PARAMETERS[:3])
            node.kwargs = {**kept, "is_causal": known[mask] == "causal"}
            changed += 1
    if changed:
        gm.recompile()
    return changed


def _masked_calls(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, dict[str, Any]]]:
    """Calls with a mask and no dropout, and their arguments by name."""
    for node in gm.graph.find_nodes(op="call_function", target=scaled_dot_product_attention):
        given = {**dict(zip(_PARAMETERS, node.args)), **node.kwargs}
        plain = given.get("dropout_p", 0.0) == 0.0 and given.get("is_causal", False) is False
        if plain and isinstance(given.get("attn_mask"), fx.Node):
            yield node, given


def _kind(mask: fx.Node, queries: int, keys: int) -> str:
    """What is known of a mask: `all`, `causal`, or nothing."""
    value = _computed(mask)
    if value is None:
        return ""
    allowed = value if value.dtype is torch.bool else value == 0
    if not _only_excludes(value, allowed):
        return ""
    if bool(allowed.all()):
        return "all"
    if queries == keys and value.shape[-2:] == (queries, keys):
        return "causal" if bool((allowed == torch.ones(queries, keys, dtype=torch.bool).tril()).all()) else ""
    return ""


def _only_excludes(value: Tensor, allowed: Tensor) -> bool:
    """Whether a mask of numbers, which are added, leaves pairs as they are or out: what the least number of the wider types is added to has no weight
    beside any pair that is left as it is."""
    if value.dtype is torch.bool:
        return True
    out = value == -torch.inf
    if value.dtype in (torch.float32, torch.float64, torch.bfloat16):
        out |= value == torch.finfo(value.dtype).min
    return bool((allowed | out).all())


def _computed(mask: fx.Node) -> Tensor | None:
    """The value of a mask that follows from plain sizes; None where there is none, or where it is too large."""
    chain, sizes = mask_chain(mask)
    found: dict[fx.Node, Any] = {size: size.meta["val"] for size in sizes}
    if not chain or not all(isinstance(value, int | float | bool) for value in found.values()):
        return None
    if any(_bytes(node.meta["val"]) > _MOST_BYTES for node in chain):
        return None
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast():
        for node in mask.graph.nodes:
            if node in chain:
                args, kwargs = map_aggregate((node.args, node.kwargs), lambda part: _operand(part, found))
                function = getattr(args[0], node.target) if isinstance(node.target, str) else node.target
                try:
                    found[node] = function(*(args[1:] if isinstance(node.target, str) else args), **kwargs)
                except (RuntimeError, IndexError):
                    return None  # the program raises it where eager does
    return found[mask] if isinstance(found[mask], Tensor) else None


def _operand(part: Any, found: dict[fx.Node, Any]) -> Any:
    """An argument where everything lies on the CPU. Texts among those of masks name devices."""
    if isinstance(part, fx.Node):
        return found[part]
    return torch.device("cpu") if isinstance(part, (torch.device, str)) else part


def _bytes(value: Tensor) -> float:
    """Infinite where a size is known at run time only."""
    sizes = value.shape
    return value.numel() * value.dtype.itemsize if all(isinstance(size, int) for size in sizes) else float("inf")


def _fits(mask: Tensor, query: Tensor) -> bool:
    return mask.dtype in (torch.bool, query.dtype) and mask.dim() > 1
