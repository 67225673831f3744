"""`mode="reduce-overhead"` on a GPU: many varied calls, every earlier output kept alive, equal to eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import flambeau
from tests.comparison import assert_same, gradient_errors, gradients, relative_error, twin_of
from tests.models import zoo

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CALLS = 100


def on_gpu(name: str) -> zoo.Case:
    with torch.device("cuda"):
        case = zoo.make(name, "small")
    for module in case.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return case


@pytest.mark.parametrize("name", ["lstm_cell", "moe", "gpt2", "resnet50", "mlp"])
def test_inference(name: str) -> None:
    """Outputs are looked at only after the last call."""
    case = on_gpu(name)
    compiled = flambeau.compile(case.model, mode="reduce-overhead")
    kept, expected = [], []
    with torch.no_grad():
        for _ in range(CALLS):
            inputs = zoo.varied(case)
            kept += case.outputs(compiled(**inputs))
            expected += case.outputs(case.model(**inputs))
    assert max(relative_error(a, e) for a, e in zip(kept, expected, strict=True)) < 1e-3


@pytest.mark.parametrize("name", ["lstm_cell", "moe", "gpt2", "mlp"])
def test_training(name: str) -> None:
    """Every loss and every gradient of a hundred steps; losses kept alive."""
    case = on_gpu(name)
    eager, model = twin_of(case.model).train(), case.model.train()
    compiled = flambeau.compile(model, mode="reduce-overhead")
    losses, expected = [], []
    for _ in range(CALLS):
        inputs = zoo.varied(case)
        model.zero_grad(set_to_none=True)
        eager.zero_grad(set_to_none=True)
        losses.append(case.loss(compiled(**inputs)))
        expected.append(case.loss(eager(**inputs)))
        losses[-1].backward()
        expected[-1].backward()
        assert max(gradient_errors(gradients(model), gradients(eager)).values()) < 1e-2
    for ours, theirs in zip(losses, expected, strict=True):
        assert_same(ours, theirs, rtol=1e-3, atol=1e-4)


def test_training_changes_the_weights_in_place() -> None:
    """An optimiser's steps between the calls are seen: parameters are read where they are, not copied once."""
    case = on_gpu("mlp")
    eager, model = twin_of(case.model).train(), case.model.train()
    compiled = flambeau.compile(model, mode="reduce-overhead")
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (model, eager)]
    for _ in range(20):
        inputs = zoo.varied(case)
        ours, theirs = case.loss(compiled(**inputs)), case.loss(eager(**inputs))
        assert_same(ours, theirs, rtol=1e-3, atol=1e-4)
        ours.backward()
        theirs.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def test_written_input() -> None:
    """An input that the function writes is written in the caller's tensor."""

    def function(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        return total * 2

    compiled = flambeau.compile(function, mode="reduce-overhead")
    ours, theirs = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    for number in range(20):
        x = torch.full((64,), float(number), device="cuda")
        assert_same(compiled(x, ours), function(x, theirs))
        assert_same(ours, theirs)


def test_random_numbers_differ_from_call_to_call() -> None:
    """Replays draw new numbers, those that eager would draw."""

    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5) * 2

    compiled = flambeau.compile(function, mode="reduce-overhead")
    x = torch.ones(4096, device="cuda")
    torch.manual_seed(1)
    ours = [compiled(x) for _ in range(10)]
    torch.manual_seed(1)
    theirs = [function(x) for _ in range(10)]
    for actual, expected in zip(ours, theirs, strict=True):
        assert_same(actual, expected)
