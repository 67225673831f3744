"""Layers of experts as transformers has them: one graph, and eager's results and gradients, whoever has tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau

from .expert_layers import FORMS, ROUTINGS, Layer, kinds, layers, operands

pytest.importorskip("transformers")

#: One with gates, with gradients; one with biases and matrices the other way round; one whose matrices are views.
_SLICE = (("mixtral", True), ("gpt_oss", False), ("dbrx", False))


def _results(
    layer: Layer, call: Callable[..., Tensor], given: tuple[Tensor, ...], *, grad: bool
) -> list[Tensor | None]:
    """The result and the gradients."""
    x, scores = (tensor.clone().requires_grad_(grad) for tensor in given)
    layer.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(grad):
        result = call(x, scores)
    if grad:
        (result * torch.arange(result.numel()).view(result.shape).cos()).sum().backward()
    return [result.detach(), x.grad, scores.grad, *(parameter.grad for parameter in layer.parameters())]


def _compare(layer: Layer, *, grad: bool) -> None:
    torch.manual_seed(0)
    flambeau.compiler.reset()
    compiled = flambeau.compile(layer, fullgraph=True)
    for routing in ROUTINGS:
        given = operands(layer, routing)
        expected = _results(layer, layer, given, grad=grad)
        found = _results(layer, compiled, given, grad=grad)
        assert [each is None for each in found] == [each is None for each in expected]
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("kind", "grad"), _SLICE)
def test_a_loop_over_experts_with_tokens_is_one_graph(kind: str, grad: bool) -> None:
    torch.manual_seed(0)
    (layer,) = layers(kind, "eager", ranks=2)
    _compare(layer, grad=grad)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("form", FORMS)
def test_all_kinds_of_models(form: str, ranks: int) -> None:
    """Each in inference and in training; `longcat_flash` has more experts than a loop is traced for."""
    torch.manual_seed(0)
    seen = 0
    for kind in kinds():
        for layer in layers(kind, form, ranks) if kind != "longcat_flash" else ():
            seen += 1
            for grad in (False, True):
                _compare(layer, grad=grad)
    assert seen >= 40
