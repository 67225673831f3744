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

import flambeau_autograd as autograd
import flambeau_inductor as inductor
from flambeau.backends import reads_fakes
from flambeau.options import Options
from flambeau.records import Recorder
from flambeau.rescue import as_if_not_called, in_eager, rescue, writes_last
from flambeau.stages import resolve_stages
from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.evaluate import run_graph
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
    lowers = compiler is _interpreted
    more = {"decompositions": inductor.decompositions(), "rewrite": inductor.rewrite_joint} if lowers else {}
    try:
        prepared = autograd.prepare(gm, inputs, **more)
        forward = compiler(prepared.forward, prepared.forward_inputs)
        backward = None if prepared.backward is None else compiler(prepared.backward, prepared.backward_inputs)
    except (autograd.UnsupportedGraph, inductor.UnsupportedGraphError) as error:
        recorder.ran_in_eager(str(error))
        return in_eager(gm)
    # As the facade's backends do, but that nothing is repeated in eager: of a graph that raises eager is asked for its error.
    stages = attrs.evolve(resolve_stages(Options()), suppress_errors=False)
    in_order = not lowers and writes_last(prepared.forward.graph)
    joined = autograd.assemble(prepared.signature, forward, backward, replay=gm, isolate=True)
    joined = as_if_not_called(gm, prepared.signature, joined, in_order=in_order)
    gm.meta["rescue"] = rescue(gm, prepared.signature, stages, in_order=in_order)
    return joined


def _as_it_is(gm: fx.GraphModule, inputs: list[Any]) -> Compiled:
    return gm.forward


def _interpreted(gm: fx.GraphModule, inputs: list[Any]) -> Compiled:
    context = CompileContext(Config.from_environment())
    lowered = lower_graph(run_passes(gm, PASSES, context), inputs, context)
    return lambda *args: run_graph(lowered, args)
