"""Attention with score and mask functions as graphs made by hand, with the block mask's arrays, and its formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from nesting import Outer
from torch import fx
from torch.nn.attention.flex_attention import _create_empty_block_mask, create_block_mask

hop = torch.ops.higher_order


class Attention:
    """Operands of one attention, of the head widths (of keys, of values); ``few`` heads of keys, ``shared`` by the whole batch.

    ``block`` is the size of the mask's blocks, None where one block is all. ``device`` is what the graphs are for, ``options`` are the operator's. ``score`` and ``mask`` are functions as users write them, ``joint`` is the score's with its gradient; ``buffers`` is what the score reads.
    """

    def __init__(
        self,
        batch: int,
        heads: int,
        few: int,
        lengths: tuple[int, int],
        widths: tuple[int, int],
        score: Callable[..., Any],
        mask: Callable[..., Any],
        joint: Callable[..., Any] | None = None,
        *,
        buffers: Sequence[torch.Tensor] = (),
        shared: bool = False,
        block: Any = 128,
        dtype: torch.dtype = torch.float16,
        symbolic: bool = False,
        device: str = "cpu",
        options: dict[str, Any] | None = None,
    ) -> None:
        torch.manual_seed(sum(lengths))
        (queries, keys), (width, of_values), rows = lengths, widths, 1 if shared else batch
        shapes = [(batch, heads, queries, width), (rows, few, keys, width), (rows, few, keys, of_values)]
        self.qkv = [torch.randn(shape).to(dtype) for shape in shapes]
        self.score, self.mask, self.joint, self.buffers = score, mask, joint, list(buffers)
        self.scale, self.dtype, self.symbolic = 1 / math.sqrt(width), dtype, symbolic
        self.device, self.options = device, options or {}
        blocks = (
            _create_empty_block_mask(*self.qkv[:2])
            if block is None
            else create_block_mask(mask, None, None, queries, keys, device="cpu", BLOCK_SIZE=block)
        )
        self.table = blocks.as_tuple()[:-1]
        self.arrays = [part for part in self.table if isinstance(part, torch.Tensor)]

    def wanted(self, *more: torch.Tensor) -> list[torch.Tensor]:
        """Results, sums and maxima in float64; given the gradients of results and sums, those of queries, keys and values."""
        q, k, v = (x.double().requires_grad_() for x in self.qkv)
        keys, values = (x.expand(len(q), -1, -1, -1).repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        sizes = (*q.shape[:3], k.shape[2])
        at = [torch.arange(n).view([-1 if d == place else 1 for d in range(4)]) for place, n in enumerate(sizes)]
        scores = self.score(q @ keys.mT * self.scale, *at, *self.buffers)
        scores = scores.masked_fill(~self.mask(*at), -math.inf)
        lse = scores.logsumexp(-1)
        out = (scores - lse.masked_fill(lse == -math.inf, 0).unsqueeze(-1)).exp() @ values
        if not more:
            return [x.detach() for x in (out, lse / math.log(2), scores.amax(-1) / math.log(2))]
        return list(torch.autograd.grad([out, lse / math.log(2)], [q, k, v], [x.double() for x in more]))

    def forward(self) -> tuple[fx.GraphModule, list[torch.Tensor]]:
        """The graph, and what it takes."""
        given = [*self.qkv, *self.buffers, *self.arrays]
        o, nodes, table, score, mask, _ = self._begun(given)
        q, value = self.qkv[0], self.qkv[2]
        with o.mode:
            shape = (*q.shape[:3], value.shape[-1])
            vals = (
                torch.empty(shape, dtype=self.dtype, device=self.device),
                *(torch.empty(q.shape[:3], device=self.device) for _ in range(2)),
            )
        args = (
            *nodes[:3],
            score,
            (*table, mask),
            self.scale,
            self.options,
            tuple(nodes[3 : 3 + len(self.buffers)]),
            (),
        )
        return o.finish(*o.parts(o.call(hop.flex_attention, *args, val=vals))), given

    def both(self) -> fx.GraphModule:
        """The joint graph, which takes the result's gradient behind what the forward takes and gives the result and the gradients of queries, keys and values."""
        q, value = self.qkv[0], self.qkv[2]
        like = q if q.shape[-1] == value.shape[-1] else q.new_empty((*q.shape[:3], value.shape[-1]))
        given = [*self.qkv, *self.buffers, *self.arrays, torch.empty_like(like)]
        o, nodes, table, score, mask, joint = self._begun(given)
        read, tail = tuple(nodes[3 : 3 + len(self.buffers)]), ((*table, mask), self.scale, self.options)
        with o.mode:
            rows = [torch.empty(q.shape[:3], device=self.device) for _ in range(2)]
        node = o.call(hop.flex_attention, *nodes[:3], score, *tail, read, (), val=(nodes[-1].meta["val"], *rows))
        out, lse, _ = o.parts(node)
        zero = o.op(torch.ops.aten.full.default, list(q.shape[:3]), 0)
        vals = (*(part.meta["val"] for part in nodes[:3]), (None,) * len(self.buffers))
        args = (*nodes[:3], out, lse, nodes[-1], zero, score, joint, *tail, read, ())
        return o.finish(out, *o.parts(o.call(hop.flex_attention_backward, *args, val=vals))[:3])

    def backward(self) -> tuple[fx.GraphModule, list[torch.Tensor], list[torch.Tensor]]:
        """The graph, what it takes, and the gradients of the results among that."""
        out, lse, _ = self.wanted()
        grads = [torch.randn_like(out).to(self.dtype), torch.randn_like(lse).float().masked_fill(lse == -math.inf, 0)]
        given = [*self.qkv, *self.buffers, *self.arrays, out.to(self.dtype), lse.float(), *grads]
        o, nodes, table, score, mask, joint = self._begun(given)
        vals = (*(node.meta["val"] for node in nodes[:3]), (None,) * len(self.buffers))
        read = tuple(nodes[3 : 3 + len(self.buffers)])
        args = (*nodes[:3], *nodes[-4:], score, joint, (*table, mask), self.scale, self.options, read, ())
        return o.finish(*o.parts(o.call(hop.flex_attention_backward, *args, val=vals))[:3]), given, grads

    def _begun(self, given: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        o = Outer(self.symbolic)
        nodes = [o.input(x, self.device) for x in given]
        first = 3 + len(self.buffers)
        arrays, read = iter(nodes[first:]), nodes[3:first]
        table = [next(arrays) if isinstance(part, torch.Tensor) else part for part in self.table]
        with o.mode:
            score, slope, *places = [
                torch.zeros(()),
                torch.zeros(()),
                *(torch.zeros((), dtype=torch.int32) for _ in range(4)),
            ]
        bodies = [o.body(self.score, score, *places, *read), o.body(self.mask, *places)]
        bodies += [] if self.joint is None else [o.body(self.joint, score, *places, slope, *read)]
        return o, nodes, table, *map(o.attribute, bodies), *([None] if self.joint is None else [])


def plain(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    """The score as it is."""
    return s


def plain_gradient(s: Any, b: Any, h: Any, m: Any, n: Any, g: Any) -> list[Any]:
    """Its gradient."""
    return [g, None, None, None, None]


def causal(b: Any, h: Any, m: Any, n: Any) -> Any:
    """A mask."""
    return m >= n
