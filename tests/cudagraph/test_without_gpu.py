"""Whole models through the state machine of CUDA graphs without a GPU: a recorder that replays by running again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flambeau
from tests.comparison import assert_same, gradients, twin_of
from tests.models import zoo

from .recorded import Seen, record_on_the_cpu


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Regions with CUDA graphs record CPU programs while a test runs."""
    return record_on_the_cpu(monkeypatch)


@pytest.mark.parametrize("name", ["mlp", "lstm_cell", "moe"])
def test_inference(name: str, seen: Seen) -> None:
    """Results are looked at after the last call."""
    case = zoo.make(name)
    compiled = flambeau.compile(case.model, mode="reduce-overhead")
    with torch.no_grad():
        inputs = [zoo.varied(case) for _ in range(8)]
        kept = [case.outputs(compiled(**given)) for given in inputs]
        for found, given in zip(kept, inputs):
            assert_same(found, case.outputs(case.model(**given)), rtol=1e-4, atol=1e-5)
    assert not [decision for decision in seen.decisions if decision.kind == "failed"]
    if name != "moe":
        assert seen.count("replayed") > 5


@pytest.mark.parametrize("name", ["mlp", "lstm_cell", "gan"])
def test_training(name: str, seen: Seen) -> None:
    """Losses kept alive, gradients of every step, dropout's numbers."""
    case = zoo.make(name)
    model = case.model.train()
    eager = twin_of(model)
    compiled = flambeau.compile(model, mode="reduce-overhead")
    kept = []
    for step in range(8):
        given = zoo.varied(case)
        losses = []
        for run, owner in ((compiled, model), (eager, eager)):
            owner.zero_grad()
            torch.manual_seed(step)
            losses.append(case.loss(run(**given)))
            losses[-1].backward()
        assert_same(gradients(model), gradients(eager), rtol=1e-3, atol=1e-4)
        kept.append(losses)
    for ours, theirs in kept:
        assert_same(ours, theirs, rtol=1e-4, atol=1e-5)
    assert seen.count("replayed") > 10


def test_parameters_are_read_in_place(seen: Seen) -> None:
    """Forward and backward copy the data, not the weights."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    compiled = flambeau.compile(model, mode="reduce-overhead")
    for _ in range(3):
        compiled(torch.randn(4, 8)).sum().backward()
    recorded = {decision.program: decision.reason for decision in seen.decisions if decision.kind == "recorded"}
    assert "(1 inputs copied, 4 read in place)" in recorded["forward"]
    # The gradient comes from outside, and so does the input that the forward saved.
    assert "(2 inputs copied" in recorded["backward"]


def test_buffers_are_written_once_a_call(seen: Seen) -> None:
    """Batch normalisation counts calls, not recordings."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).train()
    eager = twin_of(model)
    compiled = flambeau.compile(model, mode="reduce-overhead")
    for _ in range(7):
        x = torch.randn(6, 4)
        assert_same(compiled(x), eager(x), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(model.buffers(), eager.buffers()):
        assert_same(ours, theirs, rtol=1e-4, atol=1e-5)
    assert model[1].num_batches_tracked.item() == 7


def test_decisions_are_shown(seen: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    """`explain` lists them and the log artifact prints them, each with its reason."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    flambeau.compiler.set_logs("cudagraphs")
    try:
        compiled = flambeau.compile(model, options={"triton.cudagraphs": True})
        for _ in range(3):
            compiled(torch.randn(2, 4))
    finally:
        flambeau.compiler.set_logs()
    assert "first call of these sizes after warm-up" in capsys.readouterr().err
    found = flambeau.explain(lambda x: x * 2, mode="reduce-overhead")(torch.ones(3))
    assert [decision.kind for decision in found.cuda_graphs] == ["plain"]
    assert "CUDA graph, forward: plain: 1 device steps are too few to pay" in str(found)


def test_backend_of_torchs_own_kernels(seen: Seen) -> None:
    """`backend="cudagraphs"` generates no code and records library calls."""
    compiled = flambeau.compile(lambda x: (x @ x).sin().cos() + 1, backend="cudagraphs")
    for _ in range(4):
        x = torch.randn(5, 5)
        assert_same(compiled(x), (x @ x).sin().cos() + 1)
    assert seen.count("recorded") == 1
    assert "cudagraphs" in flambeau.compiler.list_backends()


def test_step_marks_are_accepted() -> None:
    """Nothing needs them."""
    assert flambeau.compiler.cudagraph_mark_step_begin() is None
