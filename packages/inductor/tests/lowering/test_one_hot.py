"""Sums along a row of which one element counts equal eager's, and take no reduction."""

import pytest
import torch

from flambeau_inductor.ir.loops import Reduction, Scatter

aten = torch.ops.aten
TARGET = torch.tensor([0, 4, -100, 2, 2, 1])


def kinds(lowered):
    """Which of reductions and scatters are left."""
    return {type(o) for o in lowered.graph.operations if isinstance(o, Reduction | Scatter)}


def logits_gradient(reduction):
    """The gradient of a loss's logits, given that of the loss and the logarithms of probabilities."""

    def function(grad, logarithms, target, total, *weights):
        gradient = aten.nll_loss_backward(grad, logarithms, target, *(weights or [None]), reduction, -100, total)
        return aten._log_softmax_backward_data(gradient, logarithms, 1, logarithms.dtype)

    return function


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_gradient_of_a_loss_is_one_loop(check, reduction, dtype):
    """Ignored targets have rows of zeros; the results are eager's in every type."""
    scores = torch.randn(6, 5).log_softmax(1).to(dtype)
    loss, total = aten.nll_loss_forward(scores, TARGET, None, reduction, -100)
    lowered = check(logits_gradient(reduction), torch.rand_like(loss), scores, TARGET, total)
    assert not kinds(lowered)


def test_weights_along_the_row_take_the_loop(check):
    """The element itself differs along the row."""
    scores, weight = torch.randn(6, 5).log_softmax(1), torch.rand(5) + 0.5
    loss, total = aten.nll_loss_forward(scores, TARGET, weight, 1, -100)
    lowered = check(logits_gradient(1), loss, scores, TARGET, total, weight)
    assert kinds(lowered) == {Reduction}


def test_what_is_added_all_along_the_row(check):
    """As label smoothing does: so many times the same, and the one element."""

    def function(grad, scores, target, total, along):
        gradient = aten.nll_loss_backward(grad, scores, target, None, 1, -100, total)
        return (gradient + along).sum(1), (gradient - along).sum(1), (along - gradient * 1.0).sum(1)

    scores = torch.randn(6, 5)
    loss, total = aten.nll_loss_forward(scores, TARGET, None, 1, -100)
    lowered = check(function, loss, scores, TARGET, total, torch.randn(6, 1))
    assert len([o for o in lowered.graph.operations if isinstance(o, Reduction)]) == 1


def test_a_position_outside_the_row_adds_nothing(check):
    """Neither a negative one nor one behind the end is met by any element."""
    places = torch.tensor([-1, 0, 6, 7, 8, 100])
    lowered = check(
        lambda t, v: torch.where(torch.arange(7) == t[:, None], v[:, None], 0.0).sum(1), places, torch.randn(6)
    )
    assert not kinds(lowered)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1), (2,)])
def test_sums_over_other_axes_are_left(check, dims):
    """Along the positions' own axis, or two axes, every element may count."""
    places, values = torch.tensor([[1], [0], [1]]), torch.randn(3, 1, 1)
    lowered = check(
        lambda t, v: torch.where(torch.arange(4) == t[..., None], v, 0.0).expand(3, 2, 4).sum(dims), places, values
    )
    assert kinds(lowered) == (set() if dims == (2,) else {Reduction})


def test_an_element_that_is_not_zero_elsewhere(check):
    """And a comparison that is none of equality, and one of two positions."""
    places, values = torch.tensor([1, 0, 1]), torch.randn(3, 1)

    def function(t, v):
        at = torch.arange(4)
        return (
            torch.where(at == t[:, None], v, 1.0).sum(1),
            torch.where(at <= t[:, None], v, 0.0).sum(1),
            torch.where((at == t[:, None]) & (at == t[:, None] + 1), v, 0.0).sum(1),
            torch.where(at == t[:, None], v * at, 0.0).sum(1),
        )

    lowered = check(function, places, values)
    assert len([o for o in lowered.graph.operations if isinstance(o, Reduction)]) == 4


def test_rows_whose_sums_meet_in_one_expression(check):
    """The sum of a sum: each axis has a name of its own."""

    def function(t, v):
        inner = torch.where(torch.arange(5) == t[:, None], v[:, None], 0.0).sum(1)
        return torch.where(torch.arange(3) == t[:, None], inner[:, None], 0.0).sum(1), inner.sum()

    lowered = check(function, torch.tensor([1, 2, 4, 0]), torch.randn(4))
    assert len([o for o in lowered.graph.operations if isinstance(o, Reduction)]) == 1


def test_a_row_that_is_stored_after_it_was_summed(check):
    """What reads the sum later finds the terms that it had."""

    def function(t, v, w):
        row = torch.where(torch.arange(5) == t[:, None], v[:, None], 0.0)
        total = row.sum(1)
        return torch.mm(row, w), total * 2

    check(function, torch.tensor([1, 2, 4, 0]), torch.randn(4), torch.randn(5, 3), library=["mm.default"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_one_element_of_each_row_among_zeros_is_no_scatter(check, dim, dtype):
    """The gradient of a gather of one element a row, and a one-hot row."""
    index = torch.tensor([[1, 0, 2, 1]]) if dim == 0 else torch.tensor([[1], [3], [0]])
    value = torch.randn(index.shape).to(dtype)

    def function(index, value):
        sizes = list(value.shape)
        sizes[dim] = 4
        zeros = value.new_zeros(sizes)
        return (
            aten.scatter_add(zeros, dim, index, value),
            aten.scatter(zeros, dim, index, value),
            aten.scatter(zeros, dim, index, 2.5),
        )

    assert Scatter not in kinds(check(function, index, value))


def test_other_scatters_stay(check):
    """Of several elements a row, of some rows only, among what is not zero."""
    value = torch.randn(3, 2)

    def function(index, value):
        return (
            aten.scatter_add(torch.zeros(3, 4), 1, index, value),
            aten.scatter_add(torch.zeros(3, 4), 1, index[:2, :1], value),
            aten.scatter_add(torch.ones(3, 4), 1, index[:, :1], value),
            aten.scatter_add(value.repeat(1, 2), 1, index[:, :1], value),
        )

    lowered = check(function, torch.tensor([[1, 1], [3, 0], [0, 2]]), value)
    assert len([o for o in lowered.graph.operations if isinstance(o, Scatter)]) == 4
