"""The stages of a compilation, top to bottom: ``compile_graph(gm, inputs, options) -> Artifact``.

In: a functional ATen graph whose nodes carry ``meta["val"]``. Out: an artifact that ``flambeau_runtime.load`` turns into a callable.
Read next: ``passes/order.py``, ``lowering/run.py``, ``schedule/plan.py``, ``codegen/``, ``program/build.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import fx

from flambeau_runtime import Artifact

from .codegen.triton import UnsupportedKernel
from .config import Config
from .context import CompileContext
from .ir.text import graph_text
from .ir.verify import verify
from .log import LOOPS, Text, logger
from .lowering.refused import widen
from .lowering.run import lower_graph
from .passes.order import OPENING, PASSES
from .passes.runner import bodies_of, log_graphs, run_passes
from .program.assemble import assemble
from .rewrite.channels_last import make_channels_last


def rewrite_joint(
    graph: fx.Graph,
    results: Sequence[fx.Node],
    options: Mapping[str, Any] | Config | None = None,
    *,
    context: CompileContext | None = None,
) -> dict[fx.Node, fx.Node]:
    """Rewrites that have to see forward and backward at once: to be called on the joint graph before it is cut in two.

    ``results`` are the nodes whose layout the caller will see. Edits ``graph`` in place and returns what stands for results that
    were replaced.
    """
    context = context or CompileContext(_config(options))
    with context.stage("joint"):
        return make_channels_last(graph, results, context) or {}


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
    config = _config(options)
    context = context or CompileContext(config)
    with context.stage("passes"):
        if bodies_of(gm):
            gm = run_passes(gm, OPENING, context)
        gm = run_passes(gm, PASSES, context)
        log_graphs(gm)
    library: frozenset[str] = frozenset()
    while True:
        with context.stage("lowering"):
            graph = lower_graph(gm, inputs, context, library=library)
        if config.verify:
            verify(graph)
        logger.debug(LOOPS, artifact="ir_pre_fusion", text=Text(partial(graph_text, graph)))
        if config.dump:
            context.dump("loops", graph_text(graph))
        try:
            with context.stage("program"):
                return assemble(
                    graph,
                    fuse=config.fuse,
                    cpu_target=config.cpu_backend,
                    reuse=config.reuse_memory,
                    in_place=config.inplace_buffers,
                    size_asserts=config.size_asserts,
                    most_buffers=config.max_fused_reads,
                    most_loops=config.max_fusion_size,
                ).artifact
        except UnsupportedKernel as error:
            wider = widen(gm, library, error.origins)
            if wider == library:
                raise
            library = wider


def _config(options: Mapping[str, Any] | Config | None) -> Config:
    return options if isinstance(options, Config) else Config.from_environment().with_options(options)
