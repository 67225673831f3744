"""Which of the library's attentions a `flex_attention` is, or attention that is written out: of all pairs, or of each query with the keys that do not come after it.

In: the operator's operands, as lowering has them, or those of ``ATTEND``. Out: a ``LibraryCase``. ``Decline`` says why no library has it: a mask that does not follow from
positions alone, a score that is more than a multiple of the product, blocks of which nobody knows that they say what the mask says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..ir import scalar as sc
from ..ir.scalar import Scalar
from ..ops.dtypes import HALVES
from . import written_attention, written_gradients
from .attention import problem_of, read
from .builder import Builder
from .distances import Window, window_of
from .registry import Decline
from .values import TensorValue

#: What capture says among the operator's options, where it looked at the arrays of the block mask and guards them: they call for what the mask of this kind does.
ALLOW_ALL, ALLOW_CAUSAL = "BLOCKS_ALLOW_ALL", "BLOCKS_ALLOW_CAUSAL"


@frozen
class LibraryCase:
    """``softmax(q @ k * scale) @ v``; heads may share keys. ``causal``: a query has those up to its own position, and there are as many of both.

    ``sizes`` are batches, heads, queries and keys, ``width`` is that of a head.
    """

    scale: float
    causal: bool
    sizes: tuple[int, int, int, int]
    width: int

    @property
    def products(self) -> float:
        """Multiplications of both products, without the pairs that are left out."""
        return math.prod(self.sizes) * 2 * self.width / (1 + self.causal)


def case_of(
    g: Builder,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    score: fx.GraphModule,
    block_mask: Sequence[Any],
    scale: float,
    options: Mapping[str, Any],
    score_with: Sequence[Any] = (),
    mask_with: Sequence[Any] = (),
    *,
    joint: fx.GraphModule | None = None,
) -> LibraryCase:
    """What a ``flex_attention`` is; given the ``joint`` of its gradient, also what ``flex_attention_backward`` is."""
    if options.get("BACKEND", "AUTO") != "AUTO":
        raise Decline("kernels in Triton are asked for")
    problem = problem_of(g, q, k, v, block_mask, scale, ())
    batch, heads, queries, keys = problem.sizes()
    width = int(problem.q.sizes[3])
    if int(problem.k.sizes[0]) != batch or int(problem.v.sizes[3]) != width:
        raise Decline("keys that a whole batch shares, or values of another width")
    found = read(g, score_with)
    changed = problem.body(score, ["score"], found, torch.float32)
    kept = problem.body(block_mask[-1], [], read(g, mask_with), torch.bool)
    row, column = (axis.symbol for axis in problem.axes[2:])
    masked = sc.op("where", kept, changed, sc.constant(-math.inf, torch.float32))
    within = window_of(masked, row, column, (queries, keys))
    factor = _factor(within.inner, "score")
    if joint is not None:
        slope = problem.body(joint, ["score", "slope"], found, torch.float32)
        if _factor(within.inside(slope), "slope") != factor:
            raise Decline("a gradient that the library does not have")
    causal = _is_causal(within, queries, keys)
    if not options.get(ALLOW_CAUSAL if causal else ALLOW_ALL):
        raise Decline("a block mask that is not known to say what its mask says")
    return LibraryCase(problem.scale * factor, causal, (batch, heads, queries, keys), width)


def written_case(
    g: Builder,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    heads: int,
    before: fx.GraphModule,
    after: fx.GraphModule,
    dim: int,
    reads: Sequence[Any],
    inward: fx.GraphModule | None = None,
    slope: fx.GraphModule | None = None,
    more: Sequence[Any] = (),
) -> LibraryCase:
    """What attention is that is written out, but for the roundings in its midst; given the graphs of its gradient and what they read, also what this is."""
    problem, place = written_attention.problem_of(g, q, k, v, heads, before, after, dim, reads)
    batch, _, queries, keys = (int(axis.size) for axis in problem.points.axes)
    width = int(problem.operands["q"].sizes[3])
    if q.dtype not in HALVES or int(problem.operands["v"].sizes[3]) != width:
        raise Decline("float32, or values of another width")
    factor = _factor(problem.within.inner, "score", rounded=True)
    if inward is not None and slope is not None:
        written_gradients.check_places(g, problem, inward, place)
        body = written_gradients.slope_of(g, problem, q, slope, place, more)
        if not math.isclose(_factor(problem.within.inside(body), "slope", rounded=True), factor, rel_tol=1e-6):
            raise Decline("a gradient that the library does not have")
    causal = _is_causal(problem.within, queries, keys)
    return LibraryCase(factor, causal, (batch, heads, queries, keys), width)


def _is_causal(within: Window, queries: int, keys: int) -> bool:
    """Whether a window is that of a causal mask, of which there are several where lengths differ; if not, it has no ends."""
    ends = (within.low, within.high)
    causal = ends == (None, 0) and queries == keys
    if not (causal or ends == (None, None)):
        raise Decline("a mask that the library does not have")
    return causal


def _factor(value: Scalar, name: str, *, rounded: bool = False) -> float:
    """The positive number by which ``value``, but for its roundings if it is ``rounded``, is a multiple of what a template knows as ``name``."""
    factor, node = 1.0, value
    while True:
        if rounded and node.op == "to_dtype":
            node = node.children[0]
        elif rounded and node.op == "add" and any(map(_is_zero, node.children)):
            node = node.children[_is_zero(node.children[0])]
        elif node.op in ("mul", "truediv") and (split := _split(node)) is not None:
            by, node = split
            factor *= by
        else:
            break
    if node is not sc.reduced(name, torch.float32) or not 0 < factor < math.inf:
        raise Decline("a score that the library does not have")
    return factor


def _is_zero(value: Scalar) -> bool:
    """What a mask adds to the scores that it keeps."""
    while value.op == "to_dtype":
        value = value.children[0]
    return value.kind == "constant" and value.args[0] == 0


def _split(node: Scalar) -> tuple[float, Scalar] | None:
    """A product or quotient as a positive number and what that is multiplied by."""
    first, second = node.children
    if node.op == "mul" and first.kind == "constant":
        first, second = second, first
    if second.kind != "constant" or not 0 < second.args[0] < math.inf:
        return None
    by = float(second.args[0])
    return (by if node.op == "mul" else 1 / by), first
