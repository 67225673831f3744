"""Attention with score and mask functions that no template computes, block by block of the keys: memory grows with the length, not with its square.

In: ``flex_attention`` and ``flex_attention_backward``, in torch's schema. Out: those that become templates stay; of the others, ``scan``s over blocks of keys and values that keep a running maximum, a
running sum and the running result (forward), or the query's gradient (backward); only a block of scores exists at a time. Where templates multiply float32 as it is (in C++), a forward that
nobody differentiates is written out instead, for ``written_attention.py`` to find.

The mask function alone decides what takes part, as in eager: the block mask says the same of whole blocks, and is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ..context import CompileContext
from ..decomposition_table import decompositions
from ..devices import device_of
from ..errors import UnsupportedGraphError
from ..ir.templates import MOST_KEPT_KEYS, WIDEST_HEAD
from ..lowering.trial import declined
from ..ops.costs import FUNCTIONS
from .fakes import fake_mode_of, quietly
from .splice import splice
from .written_attention import fits, is_of_points

aten, hop = torch.ops.aten, torch.ops.higher_order

#: Keys of one step.
BLOCK = 128
_LN2 = math.log(2)
#: The arguments before those that functions read.
_FIRST_READ = 7
#: Keys that a softmax is taken over.
_FEWEST_KEYS = 2


def blocked_attention(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite both operators where they need it."""
    rules: dict[Any, Callable[..., Any]] = {hop.flex_attention: _forward, hop.flex_attention_backward: _backward}
    found = [node for node in gm.graph.nodes if node.op == "call_function" and node.target in rules]
    rewritten = [node for node in found if declined(gm, node, context)]
    for node in rewritten:
        _rewrite(gm, node, _written_out if _is_written(gm, node, context) else rules[node.target])
    return bool(rewritten)


def _is_written(gm: fx.GraphModule, node: fx.Node, context: CompileContext) -> bool:
    """Whether ``node`` can be written out as attention of which a template is certain: of the results nothing but the first is read."""
    if node.target is not hop.flex_attention or len(node.args) < _FIRST_READ or node.kwargs:
        return False
    alone = all(user.target is getitem and (user.args[1] == 0 or not user.users) for user in node.users)
    operands: Any = node.args
    q, k, v = (operand.meta["val"] for operand in operands[:3])
    language = device_of(q.device).language(context.config)
    bodies = [operands[3], operands[4][-1]]
    sizes = (*q.shape, *k.shape, *v.shape)
    if not alone or not language.exact_products or not all(isinstance(size, int) for size in sizes):
        return False
    single = q.dtype is k.dtype is v.dtype is torch.float32 and k.shape[2] <= MOST_KEPT_KEYS
    wide = max(q.shape[-1], v.shape[-1]) > WIDEST_HEAD or 0 in sizes or k.shape[2] < _FEWEST_KEYS
    lanes = q.shape[0] * q.shape[1]
    if not single or wide or not fits(q.device, lanes, q.shape[2], k.shape[2], context):
        return False
    return all(_is_short(gm.get_submodule(str(body.target))) for body in bodies)


def _is_short(body: Any) -> bool:
    """Whether a function has nothing but operations that templates take, of a few instructions each."""
    if not isinstance(body, fx.GraphModule):
        return False
    calls: list[Any] = [node.target for node in body.graph.nodes if node.op == "call_function"]
    slow = FUNCTIONS - {"tanh"}
    return all(call is aten.index.Tensor or (is_of_points(call) and call._opname not in slow) for call in calls)


def _rewrite(gm: fx.GraphModule, node: fx.Node, rule: Callable[..., Any]) -> None:
    leaves, spec = pytree.tree_flatten(node.args)
    modules = {leaf: gm.get_submodule(str(leaf.target)) for leaf in leaves if _is_body(leaf)}
    operands = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, fx.Node) and leaf not in modules))
    vals = node.meta["val"]

    def flat(*values: Any) -> Any:
        known = {**modules, **dict(zip(operands, values, strict=True))}
        args = pytree.tree_unflatten(
            [known.get(leaf, leaf) if isinstance(leaf, fx.Node) else leaf for leaf in leaves], spec
        )
        # Who records the gradients of query, key and value alone leaves out the last result, those of tensors that the score reads.
        return pytree.tree_map(_lying_as, rule(*args)[: len(vals)], vals)

    mode = fake_mode_of(gm.graph)
    assert mode is not None
    table = {op: rule for op, rule in decompositions().items() if rule is not None}
    with quietly(mode):
        traced = make_fx(flat, decomposition_table=table)(*(operand.meta["val"] for operand in operands))
    for module in traced.modules():
        _numbers_as_tensors(module)
    splice(gm, node, traced, operands)


def _numbers_as_tensors(module: Any) -> None:
    """``vmap`` converts the numbers among a function's operands as if they were tensors."""
    nodes = module.graph.nodes if isinstance(module, fx.GraphModule) else ()
    for node in nodes:
        if node.target is aten._to_copy.default and not isinstance(node.args[0], fx.Node):
            val = node.meta["val"]
            node.target, node.args = aten.full.default, ([], node.args[0])
            node.kwargs = {"dtype": val.dtype, "device": val.device}


def _is_body(leaf: Any) -> bool:
    return isinstance(leaf, fx.Node) and leaf.op == "get_attr" and not isinstance(leaf.meta.get("val"), torch.Tensor)


def _lying_as(result: Any, val: Any) -> Any:
    """A result in the memory order that was promised for it."""
    if not isinstance(val, torch.Tensor):
        return None
    order = sorted(range(val.dim()), key=lambda d: -val.stride(d))
    inverse = sorted(range(val.dim()), key=order.__getitem__)
    return result.to(val.dtype).permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)


class _Blocks:
    """Keys and values in blocks along a new first dimension, with the positions of the keys and whether these exist."""

    def __init__(self, k: Any, v: Any) -> None:
        keys = k.shape[2]
        size = min(BLOCK, keys) if isinstance(keys, int) and keys else BLOCK
        count = (keys + size - 1) // size
        places = torch.arange(count * size, device=k.device).view(count, size)
        self.keys, self.padded = keys, count * size

        def cut(x: Any) -> Any:
            padded = torch.cat([x, x.new_zeros((*x.shape[:2], self.padded - keys, x.shape[-1]))], 2)
            return padded.view(*x.shape[:2], count, size, x.shape[-1]).permute(2, 0, 1, 3, 4)

        # A key that does not exist stands where the last one does: functions of positions look things up by them.
        self.xs = [cut(k), cut(v), places.clamp(max=keys - 1), places < keys]

    def joined(self, x: Any, batch: int) -> Any:
        """What belongs to keys, from blocks; of a key that the whole batch shares it is added up."""
        whole = x.permute(1, 2, 0, 3, 4).reshape(x.shape[1], x.shape[2], self.padded, x.shape[-1])[:, :, : self.keys]
        return whole if batch == x.shape[1] else whole.sum(0, keepdim=True)


@frozen
class _Scores:
    """The functions of one block's scores."""

    score: Any
    mask: Any
    scale: float
    #: How many of the values that a step gets besides are the score function's; the rest is the mask's.
    read: int

    def of(self, q: Any, key: Any, n: Any, exists: Any, rest: Sequence[Any]) -> tuple[Any, Any, Any, tuple[Any, ...]]:
        """A block's scores before and after their function, which of them take part, and the positions that functions get."""
        for_score, for_mask = rest[: self.read], rest[self.read :]
        at = (*(torch.arange(size, device=q.device) for size in q.shape[:3]), n)
        plain = _single(_grouped(q, key) @ key.transpose(-2, -1), q) * self.scale
        keep = _mapped(self.mask, 0, len(for_mask))(*at, *for_mask) & exists
        after = _mapped(self.score, 1, len(for_score))(plain, *at, *for_score).to(q.dtype)
        return plain, torch.where(keep, after, -math.inf), keep, at


def _grouped(x: Any, key: Any) -> Any:
    """Heads that share a key as one with more rows."""
    return x.reshape(x.shape[0], key.shape[1], x.shape[1] // key.shape[1] * x.shape[2], x.shape[3])


def _single(x: Any, q: Any) -> Any:
    """The inverse."""
    return x.reshape(*q.shape[:3], x.shape[-1])


def _spread(block: Any, q: Any) -> Any:
    """A block of keys or values for every entry of the batch, in the type that is computed in."""
    return block.to(q.dtype).expand(q.shape[0], *block.shape[1:])


def _work(q: Any) -> torch.dtype:
    return torch.float64 if q.dtype is torch.float64 else torch.float32


def _mapped(function: Any, before: int, after: int, gradients: int = 0) -> Any:
    """``function`` of one score as one of all scores of a block."""
    for place in (3, 2, 1, 0):
        dims = [0 if place == d else None for d in range(4)]
        function = torch.vmap(function, in_dims=(*(0,) * before, *dims, *(0,) * gradients, *(None,) * after))
    return function


def _forward(
    q: Any,
    k: Any,
    v: Any,
    score: Any,
    block_mask: Any,
    scale: float,
    _options: Any,
    score_with: Any = (),
    mask_with: Any = (),
) -> tuple[Any, Any, Any]:
    functions = _Scores(score, block_mask[-1], scale, len(score_with))
    rows = torch.zeros_like(q[..., 0], dtype=_work(q))

    def step(
        peak: Any, total: Any, result: Any, key: Any, value: Any, n: Any, exists: Any, q: Any, *rest: Any
    ) -> tuple[Any, ...]:
        key, value = _spread(key, q), _spread(value, q)
        _, scores, _, _ = functions.of(q, key, n, exists, rest)
        higher = torch.maximum(peak, scores.amax(-1))
        # Rows of which nothing takes part yet have no maximum to subtract.
        base = torch.where(higher == -math.inf, 0.0, higher)
        shares = torch.exp(scores - base.unsqueeze(-1))
        fade = torch.exp(peak - base)
        added = _single(_grouped(shares, key) @ value, q)
        return higher, total * fade + shares.sum(-1), result * fade.unsqueeze(-1) + added

    start = [rows - math.inf, rows, rows.unsqueeze(-1).repeat(1, 1, 1, v.shape[-1])]
    peak, total, result = hop.scan(step, start, _Blocks(k, v).xs, (q.to(_work(q)), *score_with, *mask_with))
    out = result / torch.where(total == 0, 1.0, total).unsqueeze(-1)
    return out, (peak + torch.log(total)) / _LN2, peak / _LN2


def _written_out(
    q: Any,
    k: Any,
    v: Any,
    score: Any,
    block_mask: Any,
    scale: float,
    _options: Any,
    score_with: Any = (),
    mask_with: Any = (),
) -> tuple[Any, Any, Any]:
    """All scores at once, as a program would write them. Nobody reads the other two results."""
    functions = _Scores(score, block_mask[-1], scale, len(score_with))
    batch, heads = q.shape[:2]

    def spread(x: Any) -> Any:
        few, rows, width = x.shape[1:]
        several = x.unsqueeze(2).expand(batch, few, heads // few, rows, width)
        return several.reshape(batch, heads, rows, width)

    n = torch.arange(k.shape[2], device=q.device)
    _, scores, _, _ = functions.of(q, spread(k), n, torch.ones_like(n, dtype=torch.bool), (*score_with, *mask_with))
    shares = torch.softmax(scores, -1)
    # A row of which nothing takes part is 0.
    empty = (scores == -math.inf).all(-1, keepdim=True)
    out = torch.where(empty, torch.zeros_like(shares), shares) @ spread(v)
    rows = torch.zeros_like(q[..., 0])
    return out, rows, rows


def _backward(
    q: Any, k: Any, v: Any, out: Any, lse: Any, grad_out: Any, grad_lse: Any, score: Any, joint: Any, block_mask: Any, scale: float, _options: Any,
    score_with: Any = (), mask_with: Any = (),
) -> tuple[Any, Any, Any, tuple[Any, ...]]:  # fmt: skip
    if any(value is not None for value in joint.graph.output_node().args[0][5:]):
        raise UnsupportedGraphError("flex_attention's gradient of what its score function reads")
    functions = _Scores(score, block_mask[-1], scale, len(score_with))
    work = _work(q)
    grad = (torch.zeros_like(out) if grad_out is None else grad_out).to(work)
    less = -(out.to(work) * grad).sum(-1)
    less = less if grad_lse is None else less + grad_lse / _LN2

    def step(
        dq: Any, key: Any, value: Any, n: Any, exists: Any, q: Any, lse: Any, less: Any, grad: Any, *rest: Any
    ) -> tuple[Any, ...]:
        key, value = _spread(key, q), _spread(value, q)
        plain, scores, keep, at = functions.of(q, key, n, exists, rest)
        natural = lse.unsqueeze(-1) * _LN2
        shares = torch.where(natural == -math.inf, 0.0, torch.exp(scores - natural))
        slope = shares * (_single(_grouped(grad, key) @ value.transpose(-2, -1), q) + less.unsqueeze(-1))
        first = _mapped(lambda *args: joint(*args)[0], 1, functions.read, gradients=1)
        slope = first(plain, *at, slope, *rest[: functions.read]).to(q.dtype)
        slope = _grouped(torch.where(keep, slope * functions.scale, 0.0), key)
        dk = slope.transpose(-2, -1) @ _grouped(q, key)
        dv = _grouped(shares, key).transpose(-2, -1) @ _grouped(grad, key)
        return dq + _single(slope @ key, q), dk, dv

    blocks = _Blocks(k, v)
    same = (q.to(work), lse.to(work), less, grad, *score_with, *mask_with)
    dq, dk, dv = hop.scan(step, [torch.zeros_like(q, dtype=work)], blocks.xs, same)
    return dq, blocks.joined(dk, k.shape[0]), blocks.joined(dv, v.shape[0]), (None,) * len(score_with)
