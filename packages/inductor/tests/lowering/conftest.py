"""How lowering is tested: trace, lower, check the IR, run the interpreter, compare with eager."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.ir.verify import verify
from flambeau_inductor.lowering.run import lower_graph


class Lowered:
    """A lowered graph, its counted library calls, and what it gave."""

    def __init__(self, graph, context, outputs):
        self.graph, self.context, self.outputs = graph, context, outputs

    @property
    def calls(self):
        """Names of the ops that are library calls."""
        return [str(o.op).removeprefix("aten.") for o in self.graph.operations if isinstance(o, Extern)]


def lower_and_run(function, *inputs, mode="fake", table=None, **config):
    """Lower ``function`` and run the loops; inputs are cloned first."""
    gm = make_fx(function, tracing_mode=mode, decomposition_table=table or {})(*inputs)
    context = CompileContext(CompileContext().config.with_options(config))
    graph = lower_graph(gm, inputs, context)
    verify(graph)
    return Lowered(graph, context, run_graph(graph, [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]))


@pytest.fixture
def check():
    """``check(function, *inputs)``: equal to eager in values, dtypes and strides, static and symbolic; returns the static lowering."""

    def compare(function, *inputs, modes=("fake", "symbolic"), library=(), seed=None, **options):
        found = None
        for mode in modes:
            if seed is not None:
                torch.manual_seed(seed)
            wanted = function(*inputs)
            wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
            if seed is not None:
                torch.manual_seed(seed)
            lowered = lower_and_run(function, *inputs, mode=mode, **options)
            for got, want in zip(lowered.outputs, wanted, strict=True):
                torch.testing.assert_close(got, want, equal_nan=True)
                if isinstance(want, torch.Tensor):
                    assert got.stride() == want.stride()
            assert sorted(set(lowered.calls)) == sorted(library), lowered.context.library_calls
            found = found or lowered
        return found

    return compare
