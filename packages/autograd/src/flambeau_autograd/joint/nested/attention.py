"""`flex_attention`: attention whose scores a body changes, and a second body masks.

In: query, key, value, the body of the scores, what is known of blocks with the body of the mask, tensors that the bodies read. Out: `flex_attention`
over functional bodies. Its gradient is `flex_attention_backward` with the body of the scores and that of its gradient, as torch hands them to
backends: `(score, b, h, m, n, tangent, *buffers) -> (gradient, None, ...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch._higher_order_ops.flex_attention import _permute_strides
from torch.fx import GraphModule, Node

from ...errors import UnsupportedGraph
from ...functional.recorder import Recorder
from . import calls
from .cut import Graphed, Key, cut, recomputing, rewired
from .dense_attention import dense_attention, refuse_more_than_elements
from .trace import Replays, trace

_FLEX, _FLEX_BACKWARD = torch.ops.higher_order.flex_attention, torch.ops.higher_order.flex_attention_backward
#: A score and where it stands: batch, head, query, key.
_SCORE, _PLACES = 1, 4


@frozen(eq=False)
class _Bodies:
    """`joint` is None without a gradient."""

    score: Graphed
    mask: Graphed
    joint: Graphed | None


def flex_attention(
    replay: Replays,
    query: Any,
    key: Any,
    value: Any,
    score_mod: GraphModule,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> Any:
    """Record one `flex_attention`."""
    recorder = replay.recorder
    projected = [_cast(calls.resolved(part)) for part in (query, key, value)]
    scored, masked = list(score_mod_other_buffers), list(mask_mod_other_buffers)
    if any(map(calls.is_wanted, masked)):
        raise UnsupportedGraph("a tensor that the mask of flex_attention reads has a gradient")
    apart = any(map(calls.is_wanted, scored))
    wanted = any(map(calls.is_wanted, projected)) and not apart
    if wanted and block_mask[7] is None:
        raise UnsupportedGraph("the block mask of flex_attention has no blocks of queries, which its gradient needs")
    score, *places = _examples(recorder, projected[0])
    traced = trace(replay, score_mod, [score, *places, *scored], [0] if wanted else [], by_tensors=True)
    asked = trace(replay, block_mask[-1], [*places, *masked], by_tensors=True)
    if apart:
        refuse_more_than_elements(traced)
        refuse_more_than_elements(asked)
        return dense_attention(replay, projected, score_mod, block_mask[-1], scale, scored, masked)
    known = recorder.bodies
    name = ("flex_attention", traced, asked)
    if name not in known:
        with calls.apart(recorder):
            made = recomputing(traced) if wanted else cut(traced)
            joint = None if made.backward is None else _joint(made.forward, made.backward)
            known[name] = _Bodies(_of_one(made.forward), _of_one(cut(asked).forward), joint)
    call = _Flex(recorder, known[name], block_mask, scale, kernel_options, len(scored))
    operands = [*projected, *block_mask[:-1], *scored, *masked]
    return tuple(calls.run(call, operands))


def _cast(tensor: torch.Tensor) -> torch.Tensor:
    """As torch's autocast casts operands of the operator."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype is torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def _examples(recorder: Recorder, query: torch.Tensor) -> list[torch.Tensor]:
    """A score, in the type in which scores are computed, and its places."""
    with calls.apart(recorder):
        score = torch.empty((), dtype=_precision(query), device=query.device)
        return [score, *(torch.empty((), dtype=torch.int, device=query.device) for _ in range(_PLACES))]


def _precision(query: torch.Tensor) -> torch.dtype:
    return torch.float64 if query.dtype is torch.float64 else torch.float32


def _of_one(graphed: Graphed) -> Graphed:
    """The same graph, which gives its one result and no tuple."""
    (output,) = graphed.module.graph.find_nodes(op="output")
    (result,) = output.args[0]
    if not isinstance(result, Node) or result.meta["val"].dim():
        raise UnsupportedGraph("a body of flex_attention gives no single number")
    output.args = (result,)
    graphed.module.recompile()
    return graphed


def _joint(forward: Graphed, backward: Graphed) -> Graphed:
    """The gradient of a score, in torch's schema."""
    first, rest = forward.takes[: _SCORE + _PLACES], forward.takes[_SCORE + _PLACES :]
    takes = (*first, Key("tangent", 0), *rest)
    gives = (Key("input", 0), *forward.takes[1:])
    examples = {**forward.values(), **backward.values()}
    if Key("tangent", 0) not in examples:
        examples[Key("tangent", 0)] = examples[Key("input", 0)]
    joint = rewired(backward, takes, gives, examples)
    (output,) = joint.module.graph.find_nodes(op="output")
    # Eager's kernel batches the graph, and looks for a list.
    output.args = (list(output.args[0]),)
    joint.module.recompile()
    return joint


class _Flex:
    """One call; see `calls.Call`. Operands: query, key, value, what is known of blocks, buffers of the score, buffers of the mask."""

    def __init__(
        self,
        recorder: Recorder,
        bodies: _Bodies,
        block_mask: tuple[Any, ...],
        scale: float,
        kernel_options: dict[str, Any],
        scored: int,
    ) -> None:
        self.recorder, self.bodies, self.scale, self.kernel_options = recorder, bodies, scale, kernel_options
        self.blocks, self.scored = len(block_mask) - 1, scored
        self.differentiable = (0, 1) if bodies.joint is not None else ()

    def _parts(self, operands: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Query, key and value; the block mask with its body; buffers of both bodies, with the sizes that they use."""
        recorder, bodies = self.recorder, self.bodies
        first = 3 + self.blocks
        blocks = (*operands[3:first], bodies.mask.module)
        scored, masked = operands[first : first + self.scored], operands[first + self.scored :]
        sizes = [
            [calls.operand_of(recorder, key, ()) for key in body.takes if key.kind == "number"]
            for body in (bodies.score, bodies.mask)
        ]
        return list(operands[:3]), blocks, (*scored, *sizes[0]), (*masked, *sizes[1])

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As `Call` defines it."""
        projected, blocks, scored, masked = self._parts(operands)
        args = (*projected, self.bodies.score.module, blocks, self.scale, self.kernel_options, scored, masked)
        results = calls.record(self.recorder, _FLEX, args, self._results(*projected))
        return results, [*operands, *results[:2]] if self.differentiable else []

    def _results(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> list[torch.Tensor]:
        with calls.apart(self.recorder):
            batch, heads, length, _ = query.shape
            out = _dense_as(query, (batch, heads, length, value.shape[3]), query.dtype)
            rows = [torch.empty((batch, heads, length), dtype=_precision(query), device=query.device) for _ in range(2)]
        return [out, *rows]

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Call` defines it."""
        *operands, out, logsumexp = kept
        projected, blocks, scored, masked = self._parts(operands)
        given = [calls.tangent_of(self.recorder, tangents[i], like) for i, like in enumerate((out, logsumexp))]
        assert self.bodies.joint is not None
        graphs = (self.bodies.score.module, self.bodies.joint.module)
        args = (*projected, out, logsumexp, *given, *graphs, blocks, self.scale, self.kernel_options, scored, masked)
        with calls.apart(self.recorder):
            fakes = [_dense_as(part, part.shape, part.dtype) for part in projected]
        grads = calls.record(self.recorder, _FLEX_BACKWARD, args, fakes)
        return [*grads, *(None for _ in operands[3:])]


def _dense_as(like: torch.Tensor, shape: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """An empty tensor with the dimensions in the order of another's, as torch's own kernel lays it out."""
    made = torch.empty(shape, dtype=dtype, device=like.device)
    return _permute_strides(made, like.stride())
