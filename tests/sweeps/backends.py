"""The backends that programs are compiled with, each of which counts what it leaves to eager.

In: a name of `BACKENDS` and a recorder. Out: the `backend=` of `flambeau.compile`. `lowered` goes as far as inductor's loops and interprets
them: what autograd and lowering make of a graph, without the seconds of a C++ compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

import flambeau_autograd as autograd
import flambeau_inductor as inductor
from flambeau.backends import reads_fakes
from flambeau.options import Options
from flambeau.records import Recorder
from flambeau.rescue import as_if_not_called, in_eager, rescue, writes_last
from flambeau.stages import resolve_stages
from flambeau_capture import unpatched
from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.effects import may_fail
from flambeau_inductor.effects import writes_last as steps_write_last
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.loops import written
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.passes.order import PASSES
from flambeau_inductor.passes.runner import run_passes

Compiled = Callable[..., Any]


def backend_of(name: str, recorder: Recorder) -> Any:
    """A backend by its name; None for the default, which takes the recorder from `compile_recorded`."""
    if name == "inductor":
        return None
    if name == "eager":
        return "eager"
    compiler = {"aot_eager": _as_it_is, "lowered": _interpreted}[name]
    return reads_fakes(partial(_joint, compiler=compiler, recorder=recorder))


def _joint(gm: fx.GraphModule, inputs: list[Any], *, compiler: Callable[..., Compiled], recorder: Recorder) -> Compiled:
    if gm.meta.get("is_open"):
        compiler = _as_it_is  # the interpreter has sizes as they were assumed to be
    lowers = compiler is _interpreted
    more = {"decompositions": inductor.decompositions(), "rewrite": inductor.rewrite_joint} if lowers else {}
    try:
        with unpatched():
            prepared = autograd.prepare(gm, inputs, **more)
            forward = compiler(prepared.forward, prepared.forward_inputs)
            backward = None if prepared.backward is None else compiler(prepared.backward, prepared.backward_inputs)
    except (autograd.UnsupportedGraph, inductor.UnsupportedGraphError) as error:
        recorder.ran_in_eager(str(error))
        return in_eager(gm)
    # As the facade's backends do, but that nothing is repeated in eager: of a graph that raises eager is asked for its error.
    stages = attrs.evolve(resolve_stages(Options()), suppress_errors=False)
    in_order = forward.in_order if lowers else writes_last(prepared.forward.graph)
    laid = partial(autograd.layouts, gm, decompositions=more.get("decompositions"))
    joined = autograd.assemble(prepared.signature, forward, backward, replay=gm, layouts=laid, isolate=True)
    joined = as_if_not_called(gm, prepared.signature, joined, in_order=in_order and not lowers)
    gm.meta["rescue"] = rescue(gm, prepared.signature, stages, in_order=in_order)
    return joined


def _as_it_is(gm: fx.GraphModule, inputs: list[Any]) -> Compiled:
    _LazyGraphModule.force_recompile(
        gm
    )  # the lazy one calls the module, and a program may have replaced how modules are called
    return gm.forward


@attrs.frozen
class _Interpreted:
    """A lowered graph as a callable; `in_order`: it writes to its inputs after all that may raise."""

    graph: Graph

    @property
    def in_order(self) -> bool:
        steps = (({buffer.name for buffer in written(op)}, may_fail(op)) for op in self.graph.operations)
        inputs = {given.buffer.name for given in self.graph.inputs if isinstance(given, TensorInput)}
        return steps_write_last(steps, self.graph.buffers, inputs)

    def __call__(self, *args: Any) -> Any:
        with unpatched():
            return run_graph(self.graph, args)


def _interpreted(gm: fx.GraphModule, inputs: list[Any]) -> _Interpreted:
    context = CompileContext(Config.from_environment())
    return _Interpreted(lower_graph(run_passes(gm, PASSES, context), inputs, context))
