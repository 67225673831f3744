"""Which of the library's attentions a `flex_attention` is: of all pairs, or of each query with the keys that do not come after it.

In: the operator's operands, as lowering has them. Out: a ``LibraryCase``. ``Decline`` says why no library has it: a mask that does not follow from
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
from .attention import problem_of, read
from .builder import Builder
from .distances import window_of
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
    ends = (within.low, within.high)
    causal = ends == (None, 0) and queries == keys
    if not (causal or ends == (None, None)):
        raise Decline("a mask that the library does not have")
    if not options.get(ALLOW_CAUSAL if causal else ALLOW_ALL):
        raise Decline("a block mask that is not known to say what its mask says")
    return LibraryCase(problem.scale * factor, causal, (batch, heads, queries, keys), width)


def _factor(value: Scalar, name: str) -> float:
    """The positive number by which ``value`` is a multiple of what a template knows as ``name``."""
    factor, node = 1.0, value
    while node.op in ("mul", "truediv"):
        number, other = node.children[::-1]
        if node.op == "mul" and number.kind != "constant":
            number, other = other, number
        if number.kind != "constant":
            break
        by = float(number.args[0])
        if not (0 < by < math.inf):
            break
        factor, node = (factor * by if node.op == "mul" else factor / by), other
    if node is not sc.reduced(name, torch.float32) or not 0 < factor < math.inf:
        raise Decline("a score that the library does not have")
    return factor
