"""The stages of a compilation, top to bottom: ``compile_graph(gm, inputs, options) -> Artifact``.

In: a functional ATen graph whose nodes carry ``meta["val"]``. Out: an artifact that ``flambeau_runtime.load`` turns into a callable.

==========  ==============================================================  ===========================================
stage       what it makes                                                   where
==========  ==============================================================  ===========================================
passes      the graph with fewer, better operations                         ``passes/order.py``, ``rewrite/``
lowering    loops and library calls: the loop IR (``ir/graph.py``)          ``lowering/run.py``
splitting   large reductions as two, so that all cores have work            ``schedule/split.py``
fusion      a schedule: kernels of several loops, in running order          ``schedule/plan.py``
measuring   which of the measured choices of the next stages count          ``autotune/whole.py``
products    matrix products as kernels that do what follows them            ``schedule/gemms.py``, ``autotune/``
memory      results that are written over what dies there                   ``program/memory.py``
combining   small kernels that are launched as one                          ``schedule/combine.py``
launches    blocks and warps of kernels, where those were measured          ``autotune/kernels.py``
text        kernels in C++ and Triton, the latter from the kernel IR        ``codegen/generate.py``, ``kernel_ir/``
program     allocations, launches and calls as an artifact                  ``program/build.py``
==========  ==============================================================  ===========================================

Each is timed, logged and (with the option ``dump``) written to a file of its name; ``text`` has a second file, ``kernels``: the kernel IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from torch import fx

from flambeau_runtime import Artifact

from .autotune.asked import start_measuring
from .autotune.kernels import ChooseLaunches
from .autotune.whole import Way, choose_way
from .codegen.errors import UnsupportedKernel
from .codegen.generate import generate
from .config import Config
from .context import CompileContext
from .devices import device_of
from .ir.evaluate import run_graph
from .ir.graph import Graph
from .ir.kernel import Gemm
from .ir.text import graph_text
from .ir.verify import verify
from .ir.verify_gemm import verify_gemm
from .log import ORIGINS, POSITIONS, SCHEDULE, Text, logger
from .lowering.refused import widen
from .lowering.row_by_row import check_rows
from .lowering.run import lower_graph
from .passes.custom import custom_pass, run_custom
from .passes.fold_constants import fold
from .passes.order import OPENING, PASSES, TABLES
from .passes.runner import bodies_of, graphs_text, run_passes
from .program.build import BuiltProgram, build
from .program.failures import writes_inputs_last
from .program.memory import share_memory
from .provenance import origins_of, positions_of, steps_of
from .rewrite.blocked_losses import block_losses
from .rewrite.channels_last import make_channels_last
from .rewrite.constants import freeze
from .rewrite.library_attention import use_library
from .rewrite.masked_attention import fuse_masked
from .rewrite.open_softmax import open_softmaxes
from .rewrite.trained_attention import fuse_attention
from .schedule import Schedule, schedule
from .schedule.combine import combine
from .schedule.gemms import form_gemms
from .schedule.split import split_reductions
from .schedule.steps import check_order
from .schedule.text import dependencies_text, launches_text, running_order_text, schedule_text
from .switches import STAGES
from .switches import check as check_names

if TYPE_CHECKING:
    from .autotune.choice import ChooseGemm


def rewrite_joint(
    graph: fx.Graph,
    results: Sequence[fx.Node],
    options: Mapping[str, Any] | Config | None = None,
    *,
    nested: bool = False,
    context: CompileContext | None = None,
) -> dict[fx.Node, fx.Node]:
    """Rewrites that have to see forward and backward at once: to be called on the joint graph before it is cut in two.

    ``results`` are the nodes whose layout the caller will see. Edits ``graph`` in place and returns what stands for results that
    were replaced, and for other nodes that are gone. ``nested``: of the body of an operator, of which attention alone is rewritten. Nodes of nested graphs that it makes carry these as ``meta["body"]``.
    """
    context = context or CompileContext(_config(options))
    config = context.config
    _check_switches(config)
    with context.stage("joint"):
        first = run_custom("joint_custom_pre_pass", config.joint_custom_pre_pass, graph, results)
        now = {node: first.get(node, node) for node in results}
        ours = _rewrite_joint(graph, list(now.values()), context, nested=nested)
        found = {**ours, **{node: ours.get(at, at) for node, at in now.items()}}
        leaving = [found[node] for node in results]
        last = run_custom("joint_custom_post_pass", config.joint_custom_post_pass, graph, leaving)
    found = {node: last.get(at, at) for node, at in found.items()}
    return {node: at for node, at in found.items() if at is not node}


def run_joint_passes(gm: fx.GraphModule, options: Mapping[str, Any] | Config | None = None) -> None:
    """The user's joint passes on a graph without a backward, which is handed to nobody as a joint one."""
    config = _config(options)
    for name in ("joint_custom_pre_pass", "joint_custom_post_pass"):
        run_custom(name, getattr(config, name), gm.graph)


def _rewrite_joint(
    graph: fx.Graph, results: Sequence[fx.Node], context: CompileContext, *, nested: bool
) -> dict[fx.Node, fx.Node]:
    """Our own rewrites among them."""
    opened: dict[fx.Node, fx.Node] = {}
    if not context.config.pattern_matcher:
        return opened
    for name, rewrite in _JOINT.items():
        if context.allows(name) and not (nested and name in _OUTSIDE):
            opened |= rewrite(graph, results, context)
    moved: dict[fx.Node, fx.Node] = {}
    if not nested and context.allows("joint_channels_last"):
        moved = make_channels_last(graph, [opened.get(node, node) for node in results], context) or {}
    return {**{node: moved.get(now, now) for node, now in opened.items()}, **moved}


#: Rewrites of joint graphs by name, in order; those ``_OUTSIDE`` are not done in bodies.
_JOINT: Mapping[str, Callable[[fx.Graph, Sequence[fx.Node], CompileContext], dict[fx.Node, fx.Node]]] = {
    "joint_attention": fuse_attention,
    "joint_masked_attention": fuse_masked,
    "joint_library_attention": use_library,
    "joint_blocked_losses": block_losses,
    "joint_open_softmaxes": lambda graph, _, context: open_softmaxes(graph, context),
}
_OUTSIDE = ("joint_blocked_losses", "joint_open_softmaxes")


def switches() -> dict[str, str]:
    """What the option ``disabled_passes`` can name, in the order of the pipeline, each with its kind: "joint", "pass", "rule" or "stage"."""
    found = dict.fromkeys((*_JOINT, "joint_channels_last"), "joint")
    for item in (*OPENING, *PASSES):
        found[item.name] = "pass"
        table = TABLES.get(item.name)
        found |= dict.fromkeys((rule.name for rule in table.rules) if table is not None else (), "rule")
    return found | dict.fromkeys(STAGES, "stage")


def _check_switches(config: Config) -> None:
    """Raises OptionError for a name that nothing has."""
    if config.disabled_passes:
        check_names(config.disabled_passes, switches())


def compile_graph(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any] | Config | None = None,
    *,
    context: CompileContext | None = None,
) -> Artifact:
    """Compile ``gm`` for its example ``inputs``.

    ``options`` are fields of ``Config`` (laid over the environment's). ``context`` collects seconds per stage and the reasons of
    library calls. Raises OptionError, UnsupportedGraphError; an InternalError is a fault of ours.
    """
    context = context or CompileContext(_config(options))
    _check_switches(context.config)
    start_measuring(inputs, context.config)
    return _compile_rewritten(_rewritten(gm, context), inputs, context)


@frozen
class FrozenArtifact:
    """A program some of whose inputs hold the same for many calls.

    ``folding``, run on the inputs at the places ``watched``, gives what ``program`` takes behind those at the places ``kept``; None where there is
    nothing to compute beforehand, and ``program`` takes all. Neither holds contents of an input.
    """

    program: Artifact
    folding: Artifact | None = None
    watched: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


def compile_frozen(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    places: Sequence[int],
    options: Mapping[str, Any] | Config | None = None,
    *,
    context: CompileContext | None = None,
) -> FrozenArtifact:
    """As ``compile_graph``, for callers who run what follows from the inputs at ``places`` alone only when one of those has changed."""
    context = context or CompileContext(_config(options))
    _check_switches(context.config)
    start_measuring(inputs, context.config)
    freeze(gm, places)
    gm = _rewritten(gm, context)
    folded = fold(gm)
    if folded is None:
        return FrozenArtifact(_compile_rewritten(gm, inputs, context))
    program = _compile_rewritten(folded.main, _examples(folded.main), context)
    # Run once, so that kernels of its own would cost more than they save.
    once = CompileContext(evolve(context.config, cpp_kernels=False, triton_kernels=False, batch_invariant=False))
    folding = _compile_rewritten(folded.folding, _examples(folded.folding), once)
    return FrozenArtifact(program, folding, folded.watched, folded.kept)


def _examples(gm: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]


def _rewritten(gm: fx.GraphModule, context: CompileContext) -> fx.GraphModule:
    with context.stage("passes") as stage:
        if bodies_of(gm):
            gm = run_passes(gm, OPENING, context)
        config = context.config
        gm = run_passes(gm, custom_pass("post_grad_custom_pre_pass", config.post_grad_custom_pre_pass), context)
        gm = run_passes(gm, PASSES, context)
        gm = run_passes(gm, custom_pass("post_grad_custom_post_pass", config.post_grad_custom_post_pass), context)
        stage.show(partial(graphs_text, gm), artifact="post_grad_graphs")
        logger.debug(POSITIONS, nodes=Text(partial(positions_of, gm)))
    return gm


def _compile_rewritten(gm: fx.GraphModule, inputs: Sequence[Any], context: CompileContext) -> Artifact:
    config = context.config
    library: frozenset[str] = frozenset()
    while True:
        with context.stage("lowering") as stage:
            graph = lower_graph(gm, inputs, context, library=library)
            stage.show(partial(graph_text, graph), artifact="ir_pre_fusion")
            stage.show(partial(dependencies_text, graph), artifact="compute_dependencies", dump="dependencies")
            logger.debug(ORIGINS, origins=Text(partial(origins_of, graph)))
        if config.verify:
            verify(graph)
        if config.batch_invariant:
            check_rows(graph)
        try:
            return compile_loops(graph, context).artifact
        except UnsupportedKernel as error:
            wider = widen(gm, library, error.origins)
            if wider == library:
                raise
            library = wider


def interpret_graph(
    gm: fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any] | Config | None = None
) -> Callable[..., Any]:
    """``gm`` up to its loop IR, which an interpreter runs: what no generated kernel can have made wrong. For graphs on a CPU; slow."""
    context = CompileContext(_config(options))
    _check_switches(context.config)
    gm = _rewritten(gm, context)
    graph = lower_graph(gm, inputs, context)

    def run(*given: Any) -> tuple[Any, ...]:
        return run_graph(graph, given)

    return run


def compile_loops(graph: Graph, context: CompileContext | None = None) -> BuiltProgram:
    """The stages after lowering, of ``graph`` and its bodies.

    The artifact's ``meta["writes_last"]`` says that no step that may raise for values comes after the first write to an input. Raises
    ``codegen.errors.UnsupportedKernel`` for a kernel that Triton cannot express.
    """
    context = context or CompileContext()
    config = context.config
    with context.stage("splitting") as stage:
        if config.split_reductions and context.allows("splitting"):
            graph = split_reductions(graph)
        stage.show(partial(graph_text, graph))
    # Bodies first: each comes after those that it calls.
    parts = (*graph.bodies.values(), graph)
    with context.stage("fusion") as stage:
        names: set[str] = set()
        fuse = config.fuse and context.allows("fusion")
        plans = [
            schedule(
                part,
                fuse=fuse,
                max_fusion_unique_io_buffers=config.max_fusion_unique_io_buffers,
                max_fusion_size=config.max_fusion_size,
                loop_ordering_after_fusion=config.loop_ordering_after_fusion,
                is_named=config.triton_descriptive_names is not False,
                names=names,
                in_order=config.batch_invariant,
            )
            for part in parts
        ]
        stage.show(partial(_plans_text, plans))
    finish = partial(_finish, graph, parts, plans, names)
    quiet = CompileContext(evolve(config, dump="", verify=False))
    products = context.allows("generated_products")
    with context.stage("measuring") as stage:
        if products and (choose := _choice_of_products(plans, config)) is not None:
            choose.prepare(plans, parts)
        way = choose_way(graph, plans, config, lambda way: finish(way, quiet).artifact)
        stage.show(partial(str, way))
    return finish(way, context)


def _finish(
    graph: Graph, parts: Sequence[Graph], plans: Sequence[Schedule], names: set[str], way: Way, context: CompileContext
) -> BuiltProgram:
    """The stages after fusion, with the choices of ``way``."""
    config, names = context.config, set(names)
    with context.stage("products") as stage:
        choose = _choice_of_products(plans, config, way.products)
        if choose is not None and context.allows("generated_products"):
            prologues = config.prologue_fusion
            plans = [
                form_gemms(plan, part, choose, names, prologues=prologues)
                for part, plan in zip(parts, plans, strict=True)
            ]
        if config.verify:
            for step in chain.from_iterable(plan.steps for plan in plans):
                if isinstance(step, Gemm):
                    verify_gemm(step)
        stage.show(partial(_plans_text, plans))
    shares = context.allows("memory")
    with context.stage("memory") as stage:
        if config.inplace_buffers and shares:
            plans = list(map(share_memory, parts, plans))
        stage.show(partial(_plans_text, plans))
    with context.stage("combining") as stage:
        if config.fuse and config.combo_kernels and context.allows("combining"):
            plans = [combine(plan, config) for plan in plans]
        for plan in plans:
            check_order(plan.steps)
        stage.show(partial(_plans_text, plans), artifact="ir_post_fusion")
        stage.show(partial(running_order_text, plans), artifact="schedule", dump="schedule")
        logger.debug(SCHEDULE, steps=Text(partial(steps_of, plans)))
    with context.stage("launches") as stage:
        if context.allows("launches"):
            plans = ChooseLaunches(config, way.launches).apply(plans)
        stage.show(partial(launches_text, plans))
    with context.stage("text") as stage:
        sources = generate(chain.from_iterable(plan.steps for plan in plans), config)
        if config.verify:
            sources.verify()
        stage.show(sources.kernel_ir, dump="kernels")
        stage.show(sources.text)
        stage.show(sources.tiling_text, artifact="loop_tiling", dump="tiling")
    with context.stage("program") as stage:
        *bodies, plan = plans
        built = build(
            graph,
            plan,
            sources.kernels,
            sources.libraries,
            {"writes_last": writes_inputs_last(graph, plan)},
            bodies=dict(zip(graph.bodies, bodies, strict=True)),
            allow_buffer_reuse=config.allow_buffer_reuse and shares,
            size_asserts=config.size_asserts,
        )
        stage.show(built.artifact.text)
    return built


def _choice_of_products(plans: Sequence[Schedule], config: Config, is_tuned: bool = True) -> ChooseGemm | None:
    """Who says which products are kernels; None, with nothing loaded that writes or times these, where no device has such kernels."""
    devices = {buffer.layout.device for plan in plans for buffer in plan.buffers.values()}
    if not any(device_of(device).language(config).gemms for device in devices):
        return None
    from .autotune.choice import ChooseGemm

    return ChooseGemm(config, is_tuned)


def _plans_text(plans: Iterable[Schedule]) -> str:
    return "".join(map(schedule_text, plans))


def _config(options: Mapping[str, Any] | Config | None) -> Config:
    return options if isinstance(options, Config) else Config.from_environment().with_options(options)
