"""torch's control-flow operators that can be written out.

In: calls met while tracing. Out: `associative_scan` becomes the slices and combinations it stands for (their number grows with the
logarithm of the length); `cond` on a predicate that is no tensor becomes the branch it takes. All others break the graph, with the reason
`control-flow-operator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops import associative_scan as scans
from torch.utils import _pytree as pytree

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


@replaces(torch.cond)
def cond(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.cond`: a predicate that is no tensor is decided now."""
    names = ("pred", "true_fn", "false_fn", "operands")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if isinstance(given["pred"], TensorValue):
        raise GraphBreak("control-flow-operator", "torch.cond on a tensor")
    chosen = given["true_fn"] if given["pred"].truth(t) else given["false_fn"]
    return t.caller.call(chosen, list(t.operators.iterate_all(given["operands"])) if "operands" in given else [], {})


_ASSOCIATIVE: Any = getattr(scans, "associative_scan", scans)


@replaces(_ASSOCIATIVE)
def associative_scan(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`associative_scan(combine_fn, xs, dim)`."""
    return t.caller.call(t.wrapper.wrap_pinned(_scan), args, kwargs)


def _scan(combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    leaves, spec = pytree.tree_flatten(xs)
    count, dim = len(leaves), dim % leaves[0].ndim
    if reverse:
        leaves = [torch.flip(leaf, [dim]) for leaf in leaves]

    def combine(*flat: Any) -> Any:
        left, right = pytree.tree_unflatten(flat[:count], spec), pytree.tree_unflatten(flat[count:], spec)
        return pytree.tree_leaves(combine_fn(left, right))

    done = _prefixes(combine, leaves, dim)
    if reverse:
        done = [torch.flip(leaf, [dim]) for leaf in done]
    return pytree.tree_unflatten(done, spec)


def _prefixes(combine: Any, leaves: list[Any], dim: int) -> list[Any]:
    """Combine neighbours, scan the half as many results, and put the elements between them in."""
    size = leaves[0].shape[dim]
    if size < 2:
        return leaves
    even = [leaf.narrow(dim, 0, size - size % 2).unflatten(dim, (size // 2, 2)) for leaf in leaves]
    pairs = combine(*[e.select(dim + 1, 0) for e in even], *[e.select(dim + 1, 1) for e in even])
    odd = _prefixes(combine, pairs, dim)
    if size == 2:
        return [torch.cat([leaf.narrow(dim, 0, 1), o], dim) for leaf, o in zip(leaves, odd, strict=True)]
    rest = (size - 1) // 2
    before = [o.narrow(dim, 0, rest) for o in odd]
    between = combine(*before, *[_every_other(leaf, dim, rest) for leaf in leaves])
    return [_merged(leaf, o, b, dim, size) for leaf, o, b in zip(leaves, odd, between, strict=True)]


def _every_other(leaf: Any, dim: int, count: int) -> Any:
    """The elements 2, 4, 6…, `count` of them."""
    return leaf.index_select(dim, torch.arange(2, 2 + 2 * count, 2, device=leaf.device))


def _merged(leaf: Any, odd: Any, between: Any, dim: int, size: int) -> Any:
    """Element 0, then odd and even places in turn."""
    first = torch.cat([leaf.narrow(dim, 0, 1), between], dim)
    pairs = min(first.shape[dim], odd.shape[dim])
    woven = torch.stack([first.narrow(dim, 0, pairs), odd.narrow(dim, 0, pairs)], dim + 1).flatten(dim, dim + 1)
    return torch.cat([woven, first.narrow(dim, pairs, size - 2 * pairs)], dim)
