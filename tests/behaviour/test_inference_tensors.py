"""Tensors that were made in inference mode, inside of it and outside: what eager refuses is refused, what it allows is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau


def add_in_place(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def through_a_view(x: Tensor) -> Tensor:
    x.view(-1)[1:].mul_(2)
    return x + 0


def of_a_result(x: Tensor) -> Tensor:
    y = x * 2
    return y.add_(1)


def made() -> Tensor:
    with torch.inference_mode():
        return torch.arange(12.0).view(3, 4)


@pytest.mark.parametrize("ordinary_first", [False, True])
@pytest.mark.parametrize("function", [add_in_place, through_a_view])
@pytest.mark.falls_back("an inference tensor, outside of inference mode, is written")
def test_a_write_outside_of_inference_mode_raises(function: Callable[[Tensor], Tensor], ordinary_first: bool) -> None:
    """As in eager, which has written by then; ordinary tensors are compiled before and after."""
    compiled = flambeau.compile(function)
    if ordinary_first:
        assert torch.equal(compiled(torch.ones(3, 4)), function(torch.ones(3, 4)))
    x, y = made(), made()
    for call, tensor in ((compiled, x), (function, y)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            call(tensor)
    assert torch.equal(x, y)
    assert torch.equal(compiled(torch.ones(3, 4)), function(torch.ones(3, 4)))


@pytest.mark.parametrize("function", [add_in_place, through_a_view, of_a_result])
def test_inside_of_inference_mode_they_are_written(function: Callable[[Tensor], Tensor]) -> None:
    """Results are inference tensors there."""
    x, y = made(), made()
    with torch.inference_mode():
        found, expected = flambeau.compile(function, fullgraph=True)(x), function(y)
        assert torch.equal(found, expected) and torch.equal(x, y)
    assert found.is_inference()


def test_a_result_computed_from_one_is_written_anywhere() -> None:
    assert torch.equal(flambeau.compile(of_a_result, fullgraph=True)(made()), of_a_result(made()))


def test_training_on_features_made_in_inference_mode() -> None:
    """A head on a frozen body: the features need no gradient and have no version counter."""
    head = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))

    def loss(features: Tensor) -> Tensor:
        return head(features + head[0].bias[:4]).square().mean()

    features = made()
    gradients = []
    for function in (loss, flambeau.compile(loss, fullgraph=True)):
        head.zero_grad()
        # Eager saves a linear layer's input, which it refuses here; the sum before it is an ordinary tensor.
        function(features).backward()
        gradients.append([p.grad.clone() for p in head.parameters() if p.grad is not None])
    torch.testing.assert_close(*gradients)


def test_sizes_of_inference_tensors_that_change() -> None:
    compiled = flambeau.compile(lambda x: x * x.shape[0])
    for rows in (3, 4, 5):
        with torch.inference_mode():
            x = torch.ones(rows, 2)
            assert torch.equal(compiled(x), x * rows)
