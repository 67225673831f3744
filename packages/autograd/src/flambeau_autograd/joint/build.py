"""Forward and backward of a captured graph as one functional ATen graph.

In: the torch-level graph, its inputs and a decomposition table. Out: a `Joint`: nodes of the forward, and, when
something needs grad, tangent placeholders and the nodes of the backward, recorded while autograd runs its own formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from attrs import frozen
from torch._ops import OpOverload
from torch.autograd.function import BackwardCFunction
from torch.fx import GraphModule, Node

from ..analysis.signature import Analysis, analyse
from ..config import Config
from ..errors import UnsupportedGraph, WrappedGradient
from ..functional.origins import UNKNOWN
from ..functional.recorder import Recorder
from ..functional.wrapped import recorder_of
from ..wrappers.forms import is_wrapper
from .dispatch import dispatch_kept
from .inputs import TracedInput, find_fake_mode, trace_inputs
from .kept import kept_by_eager
from .packed import held_values, packed_values, without_saved_hooks
from .reach import Reach
from .record import Joint, detach_values
from .replay import Replay
from .rewriting import Rewrite
from .sums import Sums
from .tangents import dense_like, dense_order


@frozen(eq=False)
class Forward:
    """The forward half of a trace; `saved_by_lists`: what nodes of list ops save; `told_absent`: nodes of functions that are told which gradients are."""

    inputs: list[TracedInput]
    analysis: Analysis
    saved_by_lists: dict[Any, list[torch.Tensor]]
    told_absent: set[Any]

    @property
    def wanted(self) -> list[TracedInput]:
        """The inputs that need a gradient."""
        return [t for t in self.inputs if t.is_tensor and t.leaf.requires_grad]

    @property
    def differentiable(self) -> list[int]:
        """The results that have a history."""
        results = enumerate(self.analysis.results)
        return [i for i, r in results if isinstance(r, torch.Tensor) and r.requires_grad]


def trace_forward(
    recorder: Recorder,
    gm: GraphModule,
    inputs: list[Any],
    config: Config,
    packed: list[Node | None] | None = None,
    rewrite_body: Rewrite | None = None,
) -> Forward:
    """Run the graph under `recorder`, outside of torch functions and of hooks on saved tensors."""
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    if len(names) != len(inputs):
        raise UnsupportedGraph(f"the graph has {len(names)} placeholders and {len(inputs)} inputs were given")
    traced = trace_inputs(recorder, inputs, names)
    recorder.differentiates = any(t.is_tensor and t.leaf.requires_grad for t in traced)
    with recorder.fake_mode, recorder:
        replay = Replay(recorder, config, rewrite_body)
        with nullcontext() if packed is None else packed_values(recorder, packed):
            outputs = replay.run(gm, [t.seen for t in traced])
    recorder.origins.enter(UNKNOWN)
    recorder.checkpoint = None
    if not isinstance(outputs, (list, tuple)):
        raise UnsupportedGraph("the graph must return a tuple")
    return Forward(traced, analyse(recorder, traced, list(outputs)), replay.saved_by_lists, replay.told_absent)


def build_joint(
    gm: GraphModule,
    inputs: list[Any],
    table: dict[OpOverload, Callable[..., Any]],
    config: Config,
    packed: list[Node | None] | None = None,
    rewrite_body: Rewrite | None = None,
) -> Joint:
    """Trace once. `packed` gets what eager's nodes save (see `packed_values`). Raises `UnsupportedGraph` when the graph holds what cannot be traced."""
    recorder, functions = recorder_of(gm, find_fake_mode(inputs), table)
    with functions, without_saved_hooks(), dispatch_kept():
        forward = trace_forward(recorder, gm, inputs, config, packed, rewrite_body)
        analysis, traced = forward.analysis, forward.inputs
        joint = Joint(recorder.graph, recorder.constants, traced, analysis, [], [])
        joint.policies = {n.meta["checkpoint"]: n.meta["policy"] for n in gm.graph.nodes if "policy" in n.meta}
        joint.results = [
            recorder.laid_out(r) if isinstance(r, torch.Tensor) else recorder.operands(r) for r in analysis.results
        ]
        for mutation in analysis.mutations:
            item = traced[mutation.index]
            if mutation.mode != "wrapper":
                joint.writes.append((item.node, recorder.node_of(item.seen)))
        _backward(joint, recorder, forward)
    placeholders = gm.graph.find_nodes(op="placeholder")
    if any(w.kind == "input" and placeholders[w.index].meta.get("inference") for w in joint.watched):
        raise UnsupportedGraph("eager refuses to save an inference tensor for the backward")
    detach_values(joint.graph)
    return joint


def _backward(joint: Joint, recorder: Recorder, forward: Forward) -> None:
    results, wanted = forward.analysis.results, forward.wanted
    joint.differentiable = forward.differentiable
    if not wanted or not joint.differentiable:
        if joint.differentiable:
            raise UnsupportedGraph("a result requires grad, and no input does")
        return
    recorder.backward = True
    outputs = [results[i] for i in joint.differentiable]
    joint.held = held_values(recorder, outputs)
    tangents = []
    with recorder.fake_mode, torch.no_grad():
        for i, out in enumerate(outputs):
            order = dense_order(out)
            tangent = dense_like(out, order)
            node = recorder.graph.placeholder(f"tangent_{i}")
            node.meta.update(val=tangent, stack=(), backward=True)
            recorder.bind_input(tangent, node, -1)
            joint.tangents.append(node)
            joint.tangent_orders.append(order)
            tangents.append(tangent)
    # Backward formulas run in the dtypes that the forward chose.
    no_autocast = torch._C._DisableAutocast()
    with torch.autograd.set_multithreading_enabled(False), no_autocast, recorder.fake_mode, recorder:
        reach = Reach(outputs, forward.saved_by_lists)
        _refuse_unchecked_writes(recorder, reach)
        if reach.is_apart(forward.told_absent):
            raise UnsupportedGraph(
                "what the backward of an autograd.Function does may be decided by which of its results have a gradient"
            )
        kept = kept_by_eager(recorder, reach, forward.inputs, joint.analysis)
        with Sums(recorder, reach, joint.tangents) as sums:
            grads = torch.autograd.grad(
                outputs, [t.leaf for t in wanted], tangents, retain_graph=True, allow_unused=True
            )
    if reach.ends_beside([t.leaf for t in wanted]):
        _try_whole(recorder, outputs, tangents)
    joint.watched, joint.frees = list(kept.watched), list(kept.frees)
    joint.eagers = kept.nodes.union(filter(None, joint.held))
    joint.functions = any(isinstance(node, BackwardCFunction) for node in reach.nodes)
    joint.flagged = list(sums.flags)
    joint.tangents += [recorder.node_of(flag) for flag in sums.flags.values()]
    for item, grad in zip(wanted, grads):
        # Eager's engine comes to what an output leads to, gradient or not: what was written since it was saved is an error there.
        if leading := reach.leading_to(item.leaf):
            joint.reached_by.append(reach.outputs_of(item.leaf))
            joint.led_by.append(leading)
            joint.grad_inputs.append(item.index)
            if is_wrapper(grad):
                raise WrappedGradient(item.index, grad)
            joint.grads.append(None if grad is None else recorder.node_of(grad))
    if not joint.grads:
        # The results have a history all the same, that of an operator whose other operands needed one.
        joint.reached_by, joint.led_by = [()], [()]
        joint.grad_inputs, joint.grads = [wanted[0].index], [None]


def _refuse_unchecked_writes(recorder: Recorder, reach: Reach) -> None:
    """Raise `UnsupportedGraph` where a gradient would read what was written since, unseen by autograd (through `data`, or beside an unsafe view): eager
    divides the product that it saved by elements as they are then."""
    written = tuple({formula for formula, cell, version in recorder.unchecked if cell.version != version})
    for node in reach.nodes if written else ():
        if (name := type(node).__name__).startswith(written):
            raise UnsupportedGraph(f"memory that a gradient reads, unchecked, is written: {name}")


def _try_whole(recorder: Recorder, outputs: list[torch.Tensor], tangents: list[torch.Tensor]) -> None:
    """Differentiate once more, past the parts of the history that lead to no input, which eager runs as well. Raises `UnsupportedGraph` where it raises."""
    try:
        with torch.autograd.set_multithreading_enabled(False), torch._C._DisableAutocast(), recorder.fake_mode:
            torch.autograd.backward(outputs, tangents)
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise UnsupportedGraph(f"eager's backward raises on its way to a tensor that is no input: {error}") from error
