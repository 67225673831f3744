"""The shared models under the default backend: outputs, gradients, mutated buffers and graph counts beside eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from tests.comparison import assert_same, assert_same_gradients, exact_gradients, gradients, twin_of

from . import zoo


@pytest.mark.parametrize("name", zoo.ZOO)
def test_inference_equals_eager(name: str) -> None:
    """Every output tensor of a call without gradients."""
    case = zoo.make(name)
    compiled = flambeau.compile(case.model)
    with torch.no_grad():
        expected = case.outputs(case.model(**case.inputs))
        for _ in range(2):
            assert_same(case.outputs(compiled(**case.inputs)), expected)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_training_step_equals_eager(name: str) -> None:
    """Loss, every parameter's gradient and every buffer after a step in training mode, with the model's own dropout; every captured graph becomes a forward
    and a backward program with generated kernels."""
    case = zoo.make(name, own_dropout=True)
    _check_training(case)
    # The same programs again, whose kernels are there: a C++ compiler takes longer than all else here.
    explanation = flambeau.explain(case.model)(**case.inputs)
    assert explanation.eager_graphs == ()
    assert {program.kind for program in explanation.programs} == {"forward", "backward"}
    assert sum(program.kernels for program in explanation.programs) > 0


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_recurrent_layers_train_as_in_eager(backend: str) -> None:
    """`nn.LSTM` and `nn.GRU` in training mode, on each backend that compiles."""
    _check_training(zoo.lstm(), backend=backend)


def _check_training(case: zoo.Case, **options: Any) -> None:
    eager = twin_of(case.model).train()
    model = case.model.train()
    compiled = flambeau.compile(model, **options)

    def exact(step: int) -> dict[str, Tensor | None]:
        def loss(twin: nn.Module, widen: Callable[[Any], Any]) -> Tensor:
            return case.loss(twin(**{name: widen(value) for name, value in case.inputs.items()}))

        return exact_gradients(eager, loss, step)

    for step in range(2):
        model.zero_grad()
        eager.zero_grad()
        torch.manual_seed(step)
        expected = case.loss(eager(**case.inputs))
        expected.backward()
        torch.manual_seed(step)
        actual = case.loss(compiled(**case.inputs))
        actual.backward()
        assert_same(actual, expected)
        assert_same_gradients(gradients(model), gradients(eager), partial(exact, step))
        assert_same(dict(model.named_buffers()), dict(eager.named_buffers()))


@pytest.mark.parametrize("name", zoo.ONE_GRAPH)
def test_one_graph(name: str) -> None:
    """`fullgraph=True` accepts the model, in inference and in training mode."""
    case = zoo.make(name)
    flambeau.compile(case.model, fullgraph=True, backend="eager")(**case.inputs)
    case.model.train()
    explanation = flambeau.explain(case.model, backend="eager")(**case.inputs)
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)
