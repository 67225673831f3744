"""The whole way: FX graph to artifact to results."""

import subprocess
import sys

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import flambeau_runtime
from flambeau_inductor import CompileContext, Config, OptionError, compile_graph
from flambeau_inductor.codegen.triton import UnsupportedKernel


def block(x, w, b, m):
    """A bit of everything."""
    y = torch.nn.functional.layer_norm(x, (16,), w, b)
    z = torch.softmax(y @ m * 2 + 1, -1)
    return z.relu(), y.sum(0), x.bfloat16() * 0.1 + y.bfloat16(), torch.cat([x, y], 1), y[:, ::2].argmax(-1)


INPUTS = (torch.randn(6, 16), torch.randn(16), torch.randn(16), torch.randn(16, 16))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"cpp_kernels": False}, {"numerics": "fast"}])
def test_results_equal_eager(mode, options):
    """With fusion, without, and with library calls only."""
    gm = make_fx(block, tracing_mode=mode, decomposition_table={})(*INPUTS)
    artifact = compile_graph(gm, INPUTS, {"verify": True, **options})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact), executor="python")
    for got, want in zip(run(*INPUTS), block(*INPUTS), strict=True):
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if want.dtype is torch.bfloat16 else {}
        torch.testing.assert_close(got, want, **tolerance)
        assert got.stride() == want.stride()


def test_context_collects_seconds_and_reasons():
    """What took how long, and what ran as a library call."""
    context = CompileContext()
    compile_graph(make_fx(block, tracing_mode="fake")(*INPUTS), INPUTS, context=context)
    assert {"passes", "lowering", "program"} <= set(context.seconds)
    assert any("mm" in reason for reason in context.library_calls)


STAGES = {
    "passes",
    "lowering",
    "splitting",
    "fusion",
    "measuring",
    "products",
    "memory",
    "combining",
    "launches",
    "text",
    "program",
}


def test_dump_writes_the_loops(tmp_path):
    """Every stage can be read."""
    context = CompileContext(Config(dump=str(tmp_path)))
    compile_graph(make_fx(block, tracing_mode="fake")(*INPUTS), INPUTS, context=context)
    assert "sum r0" in (tmp_path / "lowering.txt").read_text()
    written = {path.stem for path in tmp_path.iterdir() if not path.stem.startswith("pass_")}
    assert {stage for stage in context.seconds if not stage.startswith("pass ")} == STAGES
    beside = {"kernels", "dependencies", "schedule", "tiling"}
    assert written == STAGES | beside, "some stages have more texts than their own"


def test_unknown_options_are_errors():
    """Before anything is compiled."""
    with pytest.raises(OptionError):
        compile_graph(make_fx(block)(*INPUTS), INPUTS, {"fusion": True})


def test_a_refusal_that_no_library_call_mends_is_raised(monkeypatch):
    """Once every node is such a call: the same graph would be refused again."""
    refusals = iter([UnsupportedKernel("no text for it")] * 2)

    def refuse(*arguments, **options):
        raise next(refusals)

    monkeypatch.setattr("flambeau_inductor.pipeline.compile_loops", refuse)
    with pytest.raises(UnsupportedKernel):
        compile_graph(make_fx(block, tracing_mode="fake")(*INPUTS), INPUTS)


def test_importing_loads_no_sibling_but_runtime():
    """The arrows between packages hold."""
    code = "import sys, flambeau_inductor; print([m for m in sys.modules if m.split('.')[0] in ('flambeau', 'flambeau_capture', 'flambeau_autograd')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
