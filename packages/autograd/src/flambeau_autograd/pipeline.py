"""The stages from a captured graph to a callable, top to bottom.

`prepare` traces, tidies and partitions; two compilers turn its graphs into callables; `assemble` joins those to the
caller. A cache that holds a `Signature` and the compiled halves can start at `assemble`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils import _pytree as pytree

from . import log
from .config import Config
from .decompose.registry import merged
from .errors import AutogradError, InternalError, UnsupportedGraph
from .joint.build import build_joint
from .joint.control import error_without_us, is_torchs_own
from .joint.layouts import gradient_layouts, may_follow, may_hand_on
from .joint.record import Joint
from .joint.rewriting import Rewrite, rewrite_joint
from .lifetimes import lifetimes
from .partition.min_cut import min_cut
from .partition.simple import default as save_all
from .partition.split import Halves, split
from .passes.definitions import decide_sizes, definitions, must_be_known
from .passes.facts import bodies, draws, is_late, is_size, may_fail
from .passes.linear import not_linear
from .passes.runner import disabled_passes, run_passes
from .passes.told import read_by_gradients, to_be_told
from .records import Layout, Lying, Prepared, Signature
from .wrappers.assemble import assemble
from .wrappers.border import Flattened, flatten
from .wrappers.recovery import Trace
from .wrappers.workspaces import with_workspaces

Partitioner = Callable[[Joint, Config], set[Node]]
Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]

__all__ = ["Flattened", "assemble", "compile_joint", "flatten", "layouts", "prepare", "retrace"]


def prepare(
    gm: GraphModule,
    inputs: list[Any],
    *,
    partitioner: Partitioner = min_cut,
    decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
    config: Config | None = None,
    rewrite: Rewrite | None = None,
    rewrite_body: Rewrite | None = None,
    plain: GraphModule | None = None,
) -> Prepared:
    """Trace `gm` on `inputs` (fakes, symbolic numbers, numbers) into forward and backward ATen graphs.

    `rewrite(graph, kept)` may edit the graph of forward and backward before it is cut in two; it answers with what stands
    for those of the nodes `kept` (results, written values, gradients) that it replaced, and for all others that are gone. A nested graph that
    it adds is a `get_attr` node that carries it as `meta["body"]`. `rewrite_body` does the same of the bodies of `invoke_subgraph`. `plain`: the same graph with the bodies of `invoke_subgraph`
    in the place of their calls, which is what a second derivative is taken of.
    Grad mode and autocast are taken from the caller's state. Raises `UnsupportedGraph` for what is not modelled and for what fails in eager too: the
    caller then runs the graph in eager, which raises its own error. Anything else that goes wrong is ours, an `InternalError`.
    """
    config = config or Config.from_environment()
    start = time.perf_counter()
    joint = _traced(gm, inputs, merged(decompositions), config, rewrite_body)
    traced = time.perf_counter()
    if gm.meta.get("wrappers"):
        gm.meta["eager_saves"] = _saved_by_eager(joint)
    _refuse_late_draws(joint)
    follows, hands_on, bent = may_follow(joint), may_hand_on(joint), not_linear(joint)
    log.logger.debug(log.LIFETIMES, values=log.Text(partial(lifetimes, joint)))
    _tidy(joint, config)
    # Of the program's calls: a rewrite may make others of what torch differentiates twice.
    double_backward = _double_backward(joint, inlined=plain is not None)
    with log.logger.stage("partition"):
        halves = _cut(joint, partitioner, config, rewrite)
    failing = [node for node in halves.forward.graph.nodes if may_fail(node)]
    for node in failing:
        # The backend writes to inputs after it; of a GPU nobody knows when it raises.
        if _is_on_cpu(node):
            node.meta["raises"] = True
    signature = Signature(
        inputs=len(joint.inputs),
        results=len(joint.results),
        extras=halves.extras,
        outputs=tuple(joint.analysis.outputs),
        mutations=tuple(joint.analysis.mutations),
        differentiable=tuple(joint.differentiable) if joint.grads else (),
        tangent_orders=tuple(joint.tangent_orders) if joint.grads else (),
        grad_inputs=tuple(joint.grad_inputs),
        reached_by=tuple(joint.reached_by),
        led_by=tuple(joint.led_by),
        saved=halves.saved,
        flagged=tuple(joint.flagged) if joint.grads else (),
        follows=follows,
        hands_on=hands_on,
        watched=halves.watched,
        frees=tuple(joint.frees) if joint.grads else (),
        double_backward=double_backward,
        not_linear=bent,
        decisive=tuple(_decisive(joint)) if joint.grads else (),
        draws=any(draws(node) and _is_on_cpu(node) for node in halves.forward.graph.nodes),
        raises=bool(failing),
    )
    if config.log_passes:
        log.logger.info(
            log.TRACED,
            nodes=len(joint.graph.nodes),
            trace_seconds=traced - start,
            seconds=time.perf_counter() - start,
            saved=len(halves.saved),
        )
    forward_inputs = [t.node.meta["val"] for t in joint.inputs]
    return Prepared(signature, halves.forward, halves.backward, forward_inputs, halves.backward_inputs, plain or gm)


def _traced(
    gm: GraphModule,
    inputs: list[Any],
    decompositions: dict[Any, Callable[..., Any]],
    config: Config,
    rewrite_body: Rewrite | None,
) -> Joint:
    """The joint graph; what goes wrong on the way is refused, or ours."""
    try:
        with log.logger.stage("joint graph"):
            return build_joint(gm, inputs, decompositions, config, rewrite_body=rewrite_body)
    except AutogradError:
        raise
    except Exception as error:
        raise _judged(error, gm, inputs) from error


def _saved_by_eager(joint: Joint) -> tuple[frozenset[int], frozenset[int]]:
    """Inputs and outputs of the graph that eager's nodes save."""
    saved = {(spec.kind, spec.index) for spec in joint.watched}
    outputs = {
        at for at, out in enumerate(joint.analysis.outputs) if out.kind == "graph" and ("output", out.index) in saved
    }
    return frozenset(index for kind, index in saved if kind != "output"), frozenset(outputs)


def _tidy(joint: Joint, config: Config) -> None:
    with _ours("a pass"):
        joint.told = to_be_told(joint)
        run_passes(joint, config)


def _cut(joint: Joint, partitioner: Partitioner, config: Config, rewrite: Rewrite | None) -> Halves:
    """From the trace, tidied, to the two graphs."""
    if rewrite is not None and joint.grads:
        rewrite_joint(joint, rewrite)
    if joint.grads:
        log.logger.debug(log.JOINT_GRAPH, artifact="aot_joint_graph", graph=log.Text(lambda: _joint_text(joint)))
    if "min_cut" in disabled_passes(config):
        partitioner = save_all
    saved = partitioner(joint, config) if joint.grads else set()
    with _ours("cutting the graph in two"):
        return split(joint, saved)


def retrace(
    gm: GraphModule,
    inputs: list[Any],
    *,
    partitioner: Partitioner = min_cut,
    decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
    config: Config | None = None,
    rewrite: Rewrite | None = None,
    rewrite_body: Rewrite | None = None,
) -> Trace:
    """As `prepare` with the same arguments; what is asked for is how the values that eager would save follow from those that are saved."""
    packed: list[Node | None] = []
    config = config or Config.from_environment()
    with _ours("tracing again"):
        joint = build_joint(gm, inputs, merged(decompositions), config, packed, rewrite_body)
        first, defined = definitions(joint)
        read = frozenset(first[node] for node in read_by_gradients(joint))
        fixed = frozenset(first[operand] for node in first for operand in must_be_known(node))
        sizing = frozenset(first[operand] for node in first for operand in decide_sizes(node))
    places = tuple(item.node for item in joint.inputs)
    _tidy(joint, config)
    halves = _cut(joint, partitioner, config, rewrite)
    return Trace(
        first=first,
        definitions=defined,
        inputs=places,
        packed=tuple(packed),
        held=tuple(joint.held),
        specs=halves.saved,
        saved=tuple(joint.stands_for.get(node, node) for node in halves.nodes),
        sized=frozenset(filter(is_size, defined)),
        drawn=frozenset(filter(draws, defined)),
        fixed=fixed,
        sizing=sizing,
        read=read,
        constants=joint.constants,
    )


def layouts(
    gm: GraphModule,
    inputs: list[Any],
    lying: Sequence[Lying],
    *,
    decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
) -> Mapping[int, Layout]:
    """How eager lays out the gradients of `gm`, prepared from such inputs, for tangents that lie so: see `gradient_layouts`."""
    with _ours("tracing for other tangents"):
        return gradient_layouts(gm, inputs, merged(decompositions), lying)


def _is_on_cpu(node: Node) -> bool:
    tensors = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    return any(tensor.device.type == "cpu" for tensor in tensors)


def compile_joint(
    gm: GraphModule,
    inputs: list[Any],
    *,
    forward_compiler: Compiler,
    backward_compiler: Compiler | None = None,
    partitioner: Partitioner = min_cut,
    decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
    config: Config | None = None,
    inference_compiler: Compiler | None = None,
) -> Callable[..., Any]:
    """`prepare`, compile both halves, `assemble`. The backward is compiled when it first runs."""
    config = config or Config.from_environment()
    flattened = flatten(gm, inputs)
    if flattened is not None:

        def compiled(graph: GraphModule, fakes: list[Any]) -> Callable[..., Any]:
            return compile_joint(
                graph,
                fakes,
                forward_compiler=forward_compiler,
                backward_compiler=backward_compiler,
                partitioner=partitioner,
                decompositions=decompositions,
                config=config,
                inference_compiler=inference_compiler,
            )

        return flattened.compiled_with(compiled)
    trace = partial(prepare, gm, inputs, partitioner=partitioner, decompositions=decompositions, config=config)
    prepared = trace()
    for half in filter(None, (prepared.forward, prepared.backward)):
        _LazyGraphModule.force_recompile(half)
    if prepared.backward is None:
        forward = (inference_compiler or forward_compiler)(prepared.forward, prepared.forward_inputs)
        forward = with_workspaces(prepared.forward.graph, forward)
        isolate = any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
        return assemble(prepared.signature, forward, None, replay=gm, config=config, isolate=isolate)
    forward = forward_compiler(prepared.forward, prepared.forward_inputs)
    backward = LazyCompiled(backward_compiler or forward_compiler, prepared.backward, prepared.backward_inputs)
    again = partial(retrace, *trace.args, **trace.keywords)
    laid = partial(layouts, gm, decompositions=decompositions)
    return assemble(prepared.signature, forward, backward, replay=gm, retrace=again, layouts=laid, config=config)


class LazyCompiled:
    """A graph compiled at its first call, once, whichever thread comes first.

    The call arrives below autograd; the compiler runs in the dispatch state in which the graph was prepared.
    """

    def __init__(self, compiler: Compiler, gm: GraphModule, inputs: list[Any]) -> None:
        self._pending: tuple[Compiler, GraphModule, list[Any]] | None = (compiler, gm, inputs)
        self._compiled: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        self._state = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())

    def __call__(self, *args: Any) -> Any:
        compiled = self._compiled or self.compile()
        return compiled(list(args)) if getattr(compiled, "_boxed_call", False) else compiled(*args)

    def compile(self) -> Callable[..., Any]:
        """Compile now if that has not happened. What the compiler raises goes to the caller; the next call tries again."""
        with self._lock:
            if self._compiled is None and self._pending is not None:
                compiler, gm, inputs = self._pending
                with torch._C._ForceDispatchKeyGuard(*self._state), torch._C._DisableAutocast(), torch.no_grad():
                    self._compiled = compiler(gm, inputs)
                self._pending = None
        if self._compiled is None:
            raise TypeError("the backward's compiler returned None")
        return self._compiled


def _judged(error: Exception, gm: GraphModule, inputs: list[Any]) -> AutogradError:
    """A refusal when torch fails on the graph without us, else the report of a fault of ours."""
    words = f"tracing failed: {type(error).__name__}: {error}"
    # A value decides: capture may know a constant's contents, the trace has constants by their shapes only.
    found = error if is_torchs_own(error) else error_without_us(gm, inputs)
    if found is not None and not isinstance(found, InternalError):
        return UnsupportedGraph(words)
    return InternalError(words)


@contextmanager
def _ours(stage: str) -> Iterator[None]:
    """What goes wrong inside is a fault of this package."""
    try:
        yield
    except AutogradError:
        raise
    except Exception as error:
        raise InternalError(f"{stage} failed: {type(error).__name__}: {error}") from error


def _joint_text(joint: Joint) -> str:
    """The nodes of forward and backward, then what leaves them."""
    writes = [f"{target} <- {value}" for target, value in joint.writes]
    leaving = {"results": joint.results, "gradients": joint.grads, "writes": writes}
    ends = [f"{name}: {', '.join(map(str, nodes))}" for name, nodes in leaving.items() if nodes]
    return "\n".join([str(joint.graph).strip(), *ends])


def _decisive(joint: Joint) -> list[int]:
    """Inputs whose contents reach a gradient, or something that may raise for them: a backward of the backward cannot do without."""
    ends = [grad for grad in joint.grads if isinstance(grad, Node)]
    reached = {*ends, *(node for node in joint.graph.nodes if may_fail(node))}
    for node in reversed(joint.graph.nodes):
        if node in reached and not is_size(node):
            reached.update(node.all_input_nodes)
    return [item.index for item in joint.inputs if item.is_tensor and item.node in reached]


def _refuse_late_draws(joint: Joint) -> None:
    """Raise `UnsupportedGraph` where a function's own backward draws: once in eager, or not at all where no gradient comes, and what it drew is kept for the
    next derivative."""
    for node in joint.graph.nodes:
        if draws(node) and is_late(node):
            raise UnsupportedGraph(f"the backward draws random numbers ({node.target})")


def _double_backward(joint: Joint, *, inlined: bool) -> str:
    """Why the forward computes other values when it is run again, or has operators that torch does not differentiate twice; or "". `inlined`: what is
    run again has no calls of `invoke_subgraph`."""
    left_out = torch.ops.higher_order.invoke_subgraph if inlined else None
    calling = next((node for node in joint.graph.nodes if node.target is not left_out and bodies(node)), None)
    if calling is not None:
        return f"the graph calls the higher-order operator {calling.target}"
    drawing = next(filter(draws, joint.graph.nodes), None)
    return "" if drawing is None else f"the graph draws random numbers ({drawing.target})"
