"""The body of a higher-order operator as a trace of its own.

In: a torch-level body and its operands in the outer trace. Out: a `Trace`: the joint graph of the body, recorded on fresh fakes of the
operands under a recorder of its own, in the same fake mode and with the same decompositions. Nothing outside is seen: a symbol that the body
uses and that no operand tells becomes an operand after the others (`symbols`). A body that writes to its operands is refused, a
result that shares memory with an operand or with another result is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from attrs import frozen
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._python_dispatch import _disable_current_modes

from ...analysis.signature import Analysis
from ...config import Config
from ...errors import UnsupportedGraph
from ...functional.layout import hint
from ...functional.ops import short_name
from ...functional.recorder import Recorder
from ...passes.facts import draws, is_late
from ...passes.runner import run_passes
from ...records import OutputSpec, WatchedSpec
from ..inputs import TracedInput
from ..packed import without_saved_hooks
from ..reach import Reach
from ..record import Joint, detach_values
from ..rewriting import Rewrite, rewrite_joint
from ..summary import Summary, summary_of
from ..sums import Sums
from ..tangents import dense_like, dense_order

#: Besides those that torch tags as pointwise.
_POINTWISE = frozenset({"clone", "_to_copy", "scalar_tensor", "full_like", "zeros_like", "ones_like", "where", "copy"})


class Replays(Protocol):
    """What runs a torch-level graph under a recorder (`joint/replay.py`)."""

    recorder: Recorder
    config: Config
    rewrite_body: Rewrite | None
    told_absent: set[Any]
    saved_by_lists: dict[Any, list[torch.Tensor]]
    index_by_tensors: bool

    def run(self, gm: GraphModule, inputs: list[Any]) -> Any:
        """The graph's outputs on `inputs`."""

    def on(self, recorder: Recorder) -> Replays:
        """Another one for another graph."""


@frozen(eq=False)
class Trace:
    """`results`: fakes, or None for what is no tensor; `symbols`: operands after the others; `differentiable`: places of results with a history.

    `joint` has the gradients of `joint.grad_inputs`; it is tidy, and not cut yet. `summary`: of an `inlined` one with gradients.
    """

    joint: Joint
    config: Config
    results: tuple[torch.Tensor | None, ...]
    symbols: tuple[torch.SymInt, ...]
    differentiable: tuple[int, ...]
    summary: Summary | None = None

    @property
    def is_random(self) -> bool:
        """Whether the body draws random numbers."""
        return any(map(draws, self.joint.graph.nodes))


def trace(
    replay: Replays,
    body: GraphModule,
    operands: Sequence[Any],
    wanted: Collection[int] = (),
    contiguous: Collection[int] = (),
    by_tensors: bool = False,
    inlined: bool = False,
) -> Trace:
    """Trace `body`, with gradients for the operands at the places `wanted`; results at the places `contiguous` are made so.

    A body is traced once for operands that look the same; `by_tensors` as in `Replays.index_by_tensors`. `inlined`: gradients are those of the body's
    operations in the place of the call, with none where no gradient comes; else those of one operator, whose absent tangents are zeros.
    Raises `UnsupportedGraph` for what a body must not do.
    """
    known = replay.recorder.bodies

    def key() -> Any:
        looks = tuple(map(_look, operands))
        return (id(body), looks, frozenset(wanted), frozenset(contiguous), by_tensors, inlined, _ambience())

    if key() not in known:
        with _disable_current_modes(), without_saved_hooks():
            made = _BodyTrace(replay, wanted, contiguous, by_tensors, inlined).run(body, operands)
        # Under the key of now: the body may have found sizes to be equal. It is kept, the key has its identity.
        known[key()] = (body, made)
    found: Trace = known[key()][1]
    return found


def _look(value: Any) -> Any:
    """What a trace depends on of an operand."""
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride())
        return (value.dtype, value.device, tuple(map(_look, sizes)))
    return (type(value), value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value)


def _ambience() -> tuple[Any, ...]:
    casts = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *casts)


class _BodyTrace:
    """One trace under construction."""

    def __init__(
        self,
        replay: Replays,
        wanted: Collection[int],
        contiguous: Collection[int],
        by_tensors: bool,
        inlined: bool,
    ) -> None:
        outer = replay.recorder
        self.recorder = Recorder(outer.fake_mode, outer.table)
        self.recorder.bodies = outer.bodies
        self.recorder.symbols.lift = self._lift
        self.recorder.differentiates = bool(wanted)
        self.replay = replay.on(self.recorder)
        self.replay.index_by_tensors = by_tensors
        self.wanted, self.contiguous, self.inlined = wanted, contiguous, inlined
        self.summary: Summary | None = None
        self.inputs: list[TracedInput] = []
        self.symbols: list[torch.SymInt] = []

    def run(self, body: GraphModule, operands: Sequence[Any]) -> Trace:
        recorder = self.recorder
        for place, operand in enumerate(operands):
            self.inputs.append(self._input(place, operand))
        with recorder.fake_mode, recorder:
            outputs = self.replay.run(body, [item.seen for item in self.inputs])
            self._refuse_writes()
            results = self._on_their_own(outputs if isinstance(outputs, (list, tuple)) else (outputs,))
        self._refuse_unknown_sizes(operands, results)
        analysis = Analysis(list(results), [OutputSpec("graph", i) for i in range(len(results))])
        joint = Joint(recorder.graph, recorder.constants, self.inputs, analysis, [], [])
        joint.results = [None if r is None else recorder.laid_out(r) for r in results]
        joint.differentiable = [i for i, r in enumerate(results) if r is not None and r.requires_grad]
        if joint.differentiable:
            self._differentiate(joint, results)
        every = tuple(range(len(joint.differentiable)))
        # Nobody else writes to what a body is given, nor to what it gives: all of it may be saved as it is.
        joint.watched = [WatchedSpec("input", i, every, False) for i in range(len(self.inputs))]
        joint.watched += [WatchedSpec("output", i, every, False) for i in range(len(results))]
        detach_values(joint.graph)
        run_passes(joint, self.replay.config)
        if self.inlined and joint.grads and self.replay.rewrite_body is not None:
            rewrite_joint(joint, self.replay.rewrite_body)
        return Trace(
            joint,
            self.replay.config,
            tuple(map(_plain, results)),
            tuple(self.symbols),
            tuple(joint.differentiable),
            self.summary,
        )

    def _input(self, place: int, operand: Any) -> TracedInput:
        node = self.recorder.graph.placeholder(f"operand_{place}")
        node.meta["stack"] = ()
        if not isinstance(operand, torch.Tensor):
            node.meta["val"] = operand
            if isinstance(operand, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                self.recorder.symbols.bind(operand, node)
            elif not isinstance(operand, (int, float, bool, type(None))):
                raise UnsupportedGraph(f"an operator is given a {type(operand).__name__}")
            return TracedInput(place, node, operand, operand)
        leaf = seen = self._like(operand)
        if place in self.wanted:
            leaf.requires_grad_()
            with torch.enable_grad(), self.recorder.fake_mode:
                # No leaf, so that a write to it is ours to refuse.
                seen = self._like(operand)
                seen.copy_(leaf)
        node.meta["val"] = seen
        cell = self.recorder.bind_input(seen, node, place)
        return TracedInput(place, node, seen, leaf, cell, seen.grad_fn)

    def _like(self, tensor: torch.Tensor) -> torch.Tensor:
        with self.recorder.fake_mode, torch.no_grad():
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def _lift(self, symbol: torch.SymInt) -> Node:
        graph = self.recorder.graph
        first = next((node for node in graph.nodes if node.op != "placeholder"), None)
        with graph.inserting_before(first):
            node = graph.placeholder(f"size_{symbol}")
        node.meta.update(val=symbol, stack=())
        self.recorder.symbols.bind(symbol, node)
        self.symbols.append(symbol)
        self.inputs.append(TracedInput(len(self.inputs), node, symbol, symbol))
        return node

    def _refuse_writes(self) -> None:
        for item in self.inputs:
            if item.cell is not None and item.cell.version:
                raise UnsupportedGraph(f"the body of an operator writes to its operand {item.index}")
        for node in self.recorder.graph.find_nodes(op="get_attr"):
            value = getattr(node.meta.get("val"), "_flambeau", None)
            if value is not None and value.cell.version:
                raise UnsupportedGraph("the body of an operator writes to a constant")
        if any(cell.version != version for _, cell, version in self.recorder.unchecked):
            raise UnsupportedGraph("memory that a gradient of a body reads, unchecked, is written")

    def _on_their_own(self, outputs: Sequence[Any]) -> list[torch.Tensor | None]:
        """The results, each in memory of its own."""
        taken = {item.cell for item in self.inputs}
        results: list[torch.Tensor | None] = []
        for place, out in enumerate(outputs):
            if out is None:
                results.append(None)
                continue
            if not isinstance(out, torch.Tensor):
                raise UnsupportedGraph(f"the body of an operator gives a {type(out).__name__}")
            value = getattr(out, "_flambeau", None)
            if out.is_conj() or out.is_neg():
                out = out.resolve_conj().resolve_neg()
            if place in self.contiguous:
                out = out.contiguous()
            if value is None or value.owner is not self.recorder or self.recorder.value_of(out).cell in taken:
                out = out.clone()
            if self.recorder.value_of(out).cell.base.op != "call_function":
                out = out.clone()
            taken.add(self.recorder.value_of(out).cell)
            results.append(out)
        return results

    def _refuse_unknown_sizes(self, operands: Sequence[Any], results: Sequence[torch.Tensor | None]) -> None:
        known = {symbol for operand in operands for symbol in _unbacked(operand)}
        for result in results:
            if result is not None and _unbacked(result) - known:
                raise UnsupportedGraph("a size of what a body gives is decided by values in it")

    def _differentiate(self, joint: Joint, results: Sequence[torch.Tensor | None]) -> None:
        recorder = self.recorder
        outputs: list[Any] = [results[i] for i in joint.differentiable]
        if self.replay.told_absent and len(outputs) > 1:
            raise UnsupportedGraph("a body has an autograd.Function that is told which of its results have a gradient")
        recorder.backward = True
        tangents = []
        with recorder.fake_mode, torch.no_grad():
            for place, out in enumerate(outputs):
                tangent = dense_like(out, dense_order(out))
                node = recorder.graph.placeholder(f"tangent_{joint.differentiable[place]}")
                node.meta.update(val=tangent, stack=(), backward=True)
                recorder.bind_input(tangent, node, -1)
                joint.tangents.append(node)
                tangents.append(tangent)
        wanted = [self.inputs[place] for place in sorted(self.wanted)]
        no_autocast = torch._C._DisableAutocast()
        with torch.autograd.set_multithreading_enabled(False), no_autocast, recorder.fake_mode, recorder:
            if self.inlined:
                grads = self._differentiate_inlined(joint, results, [item.leaf for item in wanted], tangents)
            else:
                grads = torch.autograd.grad(outputs, [item.leaf for item in wanted], tangents, allow_unused=True)
        for item, grad in zip(wanted, grads):
            if grad is not None:
                joint.grad_inputs.append(item.index)
                joint.grads.append(recorder.node_of(grad))
        for node in recorder.graph.nodes:
            if isinstance(shown := node.meta.get("val"), torch.Tensor) and shown._is_zerotensor():
                raise UnsupportedGraph("a gradient in a body is zeros without memory, as that of sgn")
            if is_late(node) and draws(node):
                raise UnsupportedGraph(f"the backward of a body draws random numbers ({node.target})")

    def _differentiate_inlined(
        self, joint: Joint, results: Sequence[torch.Tensor | None], leaves: list[torch.Tensor], tangents: list[Any]
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients as the engine would come to them in the graph around the body."""
        outputs: list[Any] = [results[i] for i in joint.differentiable]
        reach = Reach(outputs, self.replay.saved_by_lists)
        if reach.ends_beside(leaves):
            raise UnsupportedGraph("a body has a history that leads to none of its operands")
        self.summary = summary_of(self.recorder, reach, self.inputs, results, joint.differentiable)
        with Sums(self.recorder, reach, joint.tangents) as sums:
            grads = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
        joint.flagged = list(sums.flags)
        joint.tangents += [self.recorder.node_of(flag) for flag in sums.flags.values()]
        return grads


def _unbacked(value: Any) -> set[Any]:
    if isinstance(value, torch.Tensor):
        return {symbol for size in value.shape for symbol in _unbacked(size)}
    return set(free_unbacked_symbols(value)) if isinstance(value, torch.SymInt) else set()


def _plain(result: torch.Tensor | None) -> torch.Tensor | None:
    return None if result is None else result.detach()


def same_strides(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two fakes of one shape lie the same way, as far as hints tell."""
    return list(map(hint, one.stride())) == list(map(hint, other.stride()))


def same_kind(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two results have one shape, type and device; equal sizes are guarded on where they are symbolic."""
    if one is None or other is None:
        return one is other
    if one.dtype != other.dtype or one.device != other.device or one.dim() != other.dim():
        return False
    return all(bool(size == wanted) for size, wanted in zip(one.shape, other.shape))


def is_pointwise(node: Node) -> bool:
    """Whether a call computes each element from those at the same place."""
    return isinstance(node.target, OpOverload) and (
        torch.Tag.pointwise in node.target.tags or short_name(node.target) in _POINTWISE
    )
