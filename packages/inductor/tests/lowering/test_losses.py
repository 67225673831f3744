"""Gradients of losses equal eager's, without a scatter."""

import pytest
import torch
from torch.torch_version import TorchVersion

from flambeau_inductor.ir.loops import Scatter

aten = torch.ops.aten


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nll_loss_backward(check, reduction, weighted, dtype):
    """All reductions, class weights, ignored targets."""
    scores, target = torch.randn(6, 5).to(dtype), torch.tensor([0, 4, -100, 2, 2, 1])
    weight = (torch.rand(5) + 0.5).to(dtype) if weighted else None
    loss, total = aten.nll_loss_forward(scores, target, weight, reduction, -100)
    grad = torch.rand_like(loss)
    tensors = [grad, scores, target, total] + ([weight] if weighted else [])

    def function(grad, scores, target, total, *weights):
        return aten.nll_loss_backward(grad, scores, target, weights[0] if weights else None, reduction, -100, total)

    lowered = check(function, *tensors, modes=("fake",))
    assert not any(isinstance(o, Scatter) for o in lowered.graph.operations)


def test_one_sample(check):
    """A vector of scores."""
    scores, target = torch.randn(5), torch.tensor(3)
    loss, total = aten.nll_loss_forward(scores, target, None, 1, -100)
    check(lambda g, s, t, w: aten.nll_loss_backward(g, s, t, None, 1, -100, w), loss, scores, target, total)


@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.12", reason="torch has no fakes of it there")
def test_one_sample_of_one_class(check):
    """A vector of one score, whose target is a vector too."""
    scores, target = torch.randn(5), torch.tensor(3)
    loss, total = aten.nll_loss_forward(scores, target, None, 1, -100)
    check(
        lambda g, s, t, w: aten.nll_loss_backward(g, s, t, None, 1, -100, w),
        loss,
        scores[:1],
        target[None] * 0,
        total,
        library=["nll_loss_backward.default"],
    )
    scores, target = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    loss, total = aten.nll_loss2d_forward(scores, target, None, 1, -100)
    check(lambda g, s, t, w: aten.nll_loss2d_backward(g, s, t, None, 1, -100, w), loss, scores, target, total)
