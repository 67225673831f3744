"""From a function to what the stages take: traced with the published decompositions, then lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.decomposition_table import decompositions
from flambeau_inductor.ir.graph import Graph
from flambeau_inductor.lowering.run import lower_graph

#: The published table; its ``None`` entries are ops that stay whole.
TABLE = {op: rule for op, rule in decompositions().items() if rule is not None}


def traced(function: Callable[..., Any], *inputs: Any, mode: str = "fake") -> fx.GraphModule:
    """An ATen graph in inductor's op set; ``mode`` "symbolic" takes sizes as symbols."""
    return make_fx(function, decomposition_table=TABLE, tracing_mode=mode, _allow_non_fake_inputs=True)(*inputs)


def traced_on_cuda(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The graph for CUDA tensors like ``inputs``, on fakes: no GPU is needed."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs]
    with mode:
        return make_fx(function, decomposition_table=TABLE, _allow_non_fake_inputs=True)(*fakes)


def convolved_on_cuda(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The same with images channels-last: a torch built without CUDA takes it that convolutions answer by rows there."""
    gm = traced_on_cuda(function, *inputs)
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        if node.op == "call_function" and isinstance(val, FakeTensor) and val.dim() == 4:
            with val.fake_mode:
                node.meta["val"] = torch.empty_like(val, memory_format=torch.channels_last)
    return gm


def lowered(gm: fx.GraphModule) -> Graph:
    """The loop IR of a traced graph."""
    return lower_graph(gm, [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"])


def adamw(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One step of AdamW; parameters, gradients and both moments are a quarter of the arguments each."""
    quarter = len(tensors) // 4
    sets: list[Sequence[torch.Tensor]] = [tensors[k * quarter : (k + 1) * quarter] for k in range(4)]
    out = []
    for p, g, m, v in zip(*sets, strict=True):
        m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        out += [p * 0.99 - 1e-3 * m / (v.sqrt() + 1e-8), m, v]
    return tuple(out)
