"""Attention as programs write it out, of operands that tests make."""

from __future__ import annotations

import math

import torch
from nesting import lowered
from tracing import traced

from flambeau_inductor import rewrite_joint
from flambeau_inductor.ir.loops import Template

aten = torch.ops.aten

TRITON = {"cpu_backend": "triton"}


def operands(*shape, keys=None, dtype=torch.float16, heads=None):
    """Queries, keys and values."""
    torch.manual_seed(0)
    batch, h, m, d = shape
    others = (batch, heads or h, keys or m, d)
    return [(torch.randn(s) * 1.5).to(dtype) for s in (shape, others, others)]


def distances(q, k):
    """Key less query, by position."""
    return torch.arange(k.shape[-2], device=q.device) - torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)


def plain(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def causal(q, k, v):
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return torch.softmax((q @ k.mT * 0.2).masked_fill(mask.logical_not(), -math.inf), -1) @ v


def additive(q, k, v):
    """A mask of the least numbers, in float32, as models of transformers write it."""
    mask = torch.full((q.shape[-2], k.shape[-2]), torch.finfo(q.dtype).min, device=q.device, dtype=q.dtype).triu(1)
    return torch.softmax(q @ k.mT * 0.2 + mask, -1, dtype=torch.float32).to(q.dtype) @ v


def sliding(q, k, v):
    d = distances(q, k)
    return torch.softmax(torch.where((d <= 0) & (d > -20), (q * 0.25) @ k.mT, -math.inf), -1) @ v


def band(q, k, v):
    return (
        torch.softmax(
            (q @ k.mT * 0.2).masked_fill(distances(q, k).abs() >= 9, -1e4 if q.dtype is torch.float16 else -1e9), -1
        )
        @ v
    )


def einsum(q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.25
    return torch.einsum("bhij,bhjd->bihd", torch.softmax(scores.float(), -1).to(q.dtype), v)


def slopes(q, k, v):
    """Distances with a slope for each head, under a causal mask."""
    d = distances(q, k)
    slope = torch.exp2(-torch.arange(1, q.shape[1] + 1, device=q.device)).view(1, -1, 1, 1)
    scores = q @ k.mT * 0.3 + (d * slope).to(q.dtype)
    return torch.softmax(scores.masked_fill(d > 0, -math.inf), -1) @ v


def documents(q, k, v):
    number = torch.arange(k.shape[-2], device=q.device) // 7
    same = (number.unsqueeze(-1) == number) & (distances(q, k) <= 0)
    return torch.softmax((q @ k.mT).masked_fill(same.logical_not(), -math.inf), -1) @ v


def grouped(q, k, v):
    """Heads of keys that several heads of queries share."""
    k, v = (x.unsqueeze(2).expand(-1, -1, 2, -1, -1).reshape(q.shape[0], q.shape[1], *x.shape[2:]) for x in (k, v))
    return torch.softmax(q @ k.transpose(2, 3) * 0.2, -1) @ v


def empty_rows(q, k, v):
    """The first queries see nothing."""
    return torch.softmax((q @ k.mT).masked_fill(distances(q, k) > -5, -math.inf), -1) @ v


def capped(q, k, v):
    """A soft cap under a causal mask."""
    scores = 4 * torch.tanh(q @ k.mT / 4)
    return torch.softmax(torch.where(distances(q, k) <= 0, scores, -math.inf), -1) @ v


def padded(q, k, v):
    """Rows that keep nothing of a mask of numbers weigh all keys alike."""
    scores = (q @ k.mT).float().masked_fill(distances(q, k) > -5, torch.finfo(torch.float32).min)
    return torch.softmax(scores, -1).to(q.dtype) @ v


def joint(function, *inputs):
    """Forward and backward in one graph, whose nodes say which half they belong to; the last input is the gradient of the first result."""

    def both(*values):
        leaves, tangent = [value.detach().requires_grad_() for value in values[:-1]], values[-1]
        with torch.enable_grad():
            results = function(*leaves)
            first, *others = results if isinstance(results, tuple) else (results,)
            grads = torch.autograd.grad(first, leaves, tangent)
            return first.detach(), *(other.detach() for other in others), *grads

    gm = traced(both, *inputs)
    for node in gm.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])
    gm.graph.eliminate_dead_code()
    return marked(gm)


def marked(gm):
    """What comes after the first that reads the gradient is of the backward."""
    tangent = gm.graph.find_nodes(op="placeholder")[-1]
    for node in gm.graph.nodes:
        if node.op == "call_function" and node >= min(tangent.users):
            node.meta["backward"] = True
    return gm


def rewritten(gm, **options):
    """``gm`` after what is done to joint graphs."""
    (output,) = gm.graph.find_nodes(op="output")
    results = output.args[0]
    # As autograd calls it: no node reads what leaves the graph.
    gm.graph.erase_node(output)
    replaced = rewrite_joint(gm.graph, list(dict.fromkeys(results)), {**TRITON, **options})
    gm.graph.output(tuple(replaced.get(result, result) for result in results))
    for node in gm.graph.find_nodes(op="get_attr"):
        gm.add_module(str(node.target), node.meta["body"])
    gm.recompile()
    return gm


def gradients(function, inputs, tangent, dtype=None):
    """Result and gradients, computed in ``dtype``."""
    leaves = [x.to(dtype or x.dtype).requires_grad_() for x in inputs]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, tangent.to(out.dtype))]


def kinds(gm):
    graph = lowered(gm, rewritten=True, **TRITON)
    return [operation.kind for operation in graph.operations if isinstance(operation, Template)]


def as_near_as_eager(got, eager, exact):
    """Results and gradients lie as eager's, and are about as far from float64's."""
    for ours, low, high in zip(got, eager, exact, strict=True):
        assert ours.dtype is low.dtype and ours.stride() == low.stride()
        scale, error, least = (x.abs().max().item() for x in (high, ours.double() - high, low.double() - high))
        allowed = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5}[low.dtype]
        assert error <= max(2 * least, allowed * scale)
