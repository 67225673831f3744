"""The events that the default stack gives of graphs and programs on their way through the stages.

In: graphs, prepared halves, artifacts. Out: events for `FLAMBEAU_LOGS`. Texts are made only where an event is shown.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from torch import fx

import flambeau_autograd as autograd
from flambeau_runtime import Artifact

from .log import Deferred, logger
from .perf_hints import tell_of_graph, tell_of_program
from .records import ProgramRecord


def log_pass(name: str, gm: fx.GraphModule, *, changed: bool) -> None:
    """A pass before autograd, where it changed the graph."""
    if changed:
        logger.debug("graph_after", artifact="graph_code_verbose", made_by=name, code=Deferred(partial(_code, gm)))


def log_pre_grad(gm: fx.GraphModule) -> None:
    """The graph that autograd is given."""
    logger.debug("pre_grad_graph", artifact="pre_grad_graphs", code=Deferred(partial(_code, gm)))


def log_prepared(prepared: autograd.Prepared) -> None:
    """Both halves as inductor is given them: their code, which inputs stay, what could be faster."""
    for kind, graph in (("forward", prepared.forward), ("backward", prepared.backward)):
        if graph is None:
            continue
        logger.debug("aot_graph", artifact="aot_graphs", kind=kind, code=Deferred(partial(getattr, graph, "code")))
        inputs = graph.graph.find_nodes(op="placeholder")
        logger.debug(
            "static_inputs",
            artifact="cudagraph_static_inputs",
            program=kind,
            stay=[node.name for node in inputs if node.meta.get("static")],
            copied=[node.name for node in inputs if not node.meta.get("static")],
        )
        if logger.shows("perf_hints"):
            tell_of_graph(graph.graph)


def log_program(record: ProgramRecord, *, graphed: bool) -> None:
    """A program that is about to be loaded: its text, its kernels, what they come to, what could be faster."""
    artifact: Artifact = record.artifact
    kind, cached = record.kind, record.cached
    logger.debug("program", artifact="output_code", kind=kind, cached=cached, text=Deferred(artifact.text))
    for library in artifact.libraries:
        logger.debug(
            "library", artifact="kernel_code", name=library.name, language=library.language, source=library.source
        )
    logger.debug(
        "program_metrics",
        artifact="inductor_metrics",
        program=kind,
        kernels=record.kernels,
        library_calls=sum(record.library_calls.values()),
        fused_operations=record.fused_operations,
        bytes_moved=sum(int(kernel.meta.get("bytes", 0)) for kernel in artifact.kernels),
        languages=dict(Counter(library.language for library in artifact.libraries)),
    )
    if logger.shows("perf_hints"):
        tell_of_program(kind, artifact, graphed=graphed)


def _code(gm: fx.GraphModule) -> str:
    return str(gm.graph.python_code("self").src)
