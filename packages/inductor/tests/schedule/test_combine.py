"""Independent small kernels become one launch; order, memory and results stay what they were."""

import re

import pytest
import torch
from tracing import adamw, lowered, traced

import flambeau_runtime
from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.kernel import Combined, KernelBody
from flambeau_inductor.pipeline import compile_loops
from flambeau_inductor.program import share_memory
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.combine import combine
from flambeau_runtime.triton_kernels import compile_kernels, kernel_requests

pytest.importorskip("triton")


TRITON = Config(cpu_backend="triton")


def tensors(*shapes):
    """Four sets of positive tensors of these shapes."""
    return [torch.rand(shape) for _ in range(4) for shape in shapes]


def run(graph, inputs):
    """Results under Triton's interpreter, and the artifact."""
    built = compile_loops(graph, CompileContext(TRITON))
    return flambeau_runtime.load(built.artifact, constants=built.constants)(*inputs), built.artifact


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_an_optimizer_step_is_one_launch(mode):
    """Tensors of any shape, sizes known or not."""
    inputs = tensors((4, 9), (7,), (33, 5), (4, 9), (1,), (300,))
    results, artifact = run(lowered(traced(adamw, *inputs, mode=mode)), inputs)
    assert len(artifact.kernels) == 1
    for got, want in zip(results, adamw(*inputs), strict=True):
        torch.testing.assert_close(got, want)


def test_equal_bodies_share_a_function():
    """Eight tensors of two shapes: fewer functions than bodies."""
    inputs = tensors(*[(64, 64), (64,)] * 4)
    _, artifact = run(lowered(traced(adamw, *inputs)), inputs)
    assert 2 <= len(re.findall(r"^def \w+_part\d", artifact.libraries[0].source, re.M)) <= 4


def test_the_combined_kernel_compiles_for_sm_90():
    """Branches on program ranges are plain control flow to Triton."""
    inputs = tensors((64, 64), (64,), (1000,))
    artifact = compile_loops(lowered(traced(adamw, *inputs)), CompileContext(TRITON)).artifact
    assert [c.binary[:4] for c in compile_kernels(kernel_requests(artifact, 90))] == [b"\x7fELF"]


def test_dependent_kernels_stay_in_order():
    """A transpose between two steps, and a write-back to an input that another kernel reads."""

    def function(x, y):
        a = (x + 1).sum(0)
        b = y.t() * a.sum()
        y.copy_(x.t() + 2)
        x.copy_(x * 0)
        return b, a

    inputs = [torch.randn(5, 8), torch.randn(8, 5)]
    expected_inputs = [t.clone() for t in inputs]
    expected = function(*expected_inputs)
    results, _ = run(lowered(traced(function, *[t.clone() for t in inputs])), inputs)
    for got, want in zip((*results, *inputs), (*expected, *expected_inputs), strict=True):
        torch.testing.assert_close(got, want)


def test_large_kernels_and_those_of_cpu_targets_stay_alone(monkeypatch):
    """A launch is nothing beside their work."""
    graph = lowered(traced(adamw, *tensors((64,), (65,))))
    plan = share_memory(graph, schedule(graph))
    assert all(isinstance(step, KernelBody) for step in combine(plan, Config()).steps)
    assert [type(step) for step in combine(plan, TRITON).steps] == [Combined]
    monkeypatch.setattr("flambeau_inductor.schedule.combine.MOST_BYTES", 64)
    assert all(isinstance(step, KernelBody) for step in combine(plan, TRITON).steps)


def test_kernels_move_ahead_of_calls_only_within_their_memory(monkeypatch):
    """Results that wait for their reader are held in memory."""

    def function(x, w, v):
        return (x @ (w + 1)) @ (v * 2)

    graph = lowered(traced(function, *[torch.randn(8, 8) for _ in range(3)]))
    plan = share_memory(graph, schedule(graph))
    assert sum(isinstance(step, Combined) for step in combine(plan, TRITON).steps) == 1
    monkeypatch.setattr("flambeau_inductor.schedule.combine.EARLY_BYTES", 0)
    held = sum(isinstance(step, Combined) for step in combine(plan, TRITON).steps)
    assert held == int(isinstance(plan.steps[1], KernelBody))
