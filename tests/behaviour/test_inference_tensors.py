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


QUESTIONS = (
    "x.is_inference()", "torch.is_inference(x)", "x[0].is_inference()", "(x * 2).is_inference()", "x.contiguous().is_inference()",
    "x.detach().is_inference()",
)  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_an_inference_tensor(question: str) -> None:
    """Outside of inference mode views of one are, what is computed of one is not."""
    ask = eval(f"lambda x: (x * 2, {question})", {"torch": torch})
    compiled = flambeau.compile(ask)
    for x in (made(), torch.ones(3, 4), made()):
        assert compiled(x)[1] == ask(x)[1]


@pytest.mark.falls_back("_is_view() of what may be a view of an inference tensor")
@pytest.mark.parametrize("view", ["x[0]", "x.detach().view(-1)", "x.t()"])
def test_what_is_a_view_where_modes_are_mixed(view: str) -> None:
    """One of an ordinary tensor is, in inference mode; one of an inference tensor is not, outside of it."""
    ask = eval(f"lambda x: (x * 2, {view}._is_view())")
    compiled = flambeau.compile(ask)
    for x, inside in ((torch.ones(3, 4), True), (made(), False)):
        with torch.inference_mode(inside):
            assert compiled(x)[1] == ask(x)[1] == inside


SAVING = ("x * w", "x @ w.t()", "w @ x.t()", "torch.nn.functional.linear(w, x)", "(w * 1).mul_(x)", "x[1:] * w[1:]")
NOT_SAVING = ("x + w", "torch.cat([x, w])", "w.where(x > 0, 0)", "x.exp() * w", "(w * 2).copy_(x)", "x.clone() * w")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("expression", SAVING)
@pytest.mark.falls_back("eager refuses to save an inference tensor")
def test_saving_one_for_the_backward_raises(expression: str, backend: str) -> None:
    function = eval(f"lambda x, w: {expression}", {"torch": torch})
    compiled = flambeau.compile(function, backend=backend)
    w = torch.ones(3, 4, requires_grad=True)
    assert torch.equal(compiled(torch.ones(3, 4), w), function(torch.ones(3, 4), w))
    for call in (function, compiled):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            call(made(), w)
    with torch.no_grad():
        assert torch.equal(compiled(made(), w), function(made(), w))


@pytest.mark.parametrize("expression", NOT_SAVING)
def test_what_does_not_save_one_has_gradients(expression: str) -> None:
    function = eval(f"lambda x, w: {expression}", {"torch": torch})
    gradients = []
    for call in (function, flambeau.compile(function, fullgraph=True)):
        w = torch.ones(3, 4, requires_grad=True)
        call(made(), w).sum().backward()
        gradients.append(w.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("is_detached", [False, True])
def test_a_view_taken_inside_of_an_ordinary_tensor(is_detached: bool) -> None:
    """It is one to autograd, which refuses writes outside when its base is made a leaf."""

    def run(x: Tensor) -> Tensor:
        return (x.detach() if is_detached else x).view(-1)

    for function in (flambeau.compile(run, fullgraph=True), run):
        x = torch.ones(3, 4)
        with torch.inference_mode():
            view = function(x)
        x.requires_grad_()
        assert not view.is_inference()
        if is_detached:
            view.add_(1)
        else:
            assert view._is_view() and view._base is x
            with pytest.raises(RuntimeError, match="A view was created in inference mode"):
                view.add_(1)
