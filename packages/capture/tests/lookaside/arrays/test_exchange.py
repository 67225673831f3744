"""Between tensors and arrays, both ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from arrays import array, assert_captured, assert_left_to_numpy, function_of, statements

pytestmark = pytest.mark.filterwarnings("ignore")

TAKEN = (
    "torch.from_numpy(a) + 1", "torch.from_numpy(a)", "(torch.from_numpy(a), torch.from_numpy(a))", "torch.tensor(a)", "torch.as_tensor(a)", "torch.asarray(a)",
    "torch.tensor(a, dtype=torch.float32)", "torch.as_tensor(a, dtype=torch.float64)", "torch.from_numpy(a.T)", "torch.tensor(a.sum())", "torch.as_tensor(a[0, 0])",
    "torch.from_numpy(a).numpy()", "np.asarray(torch.from_numpy(a))",  "torch.from_numpy(a).sum().numpy()", "torch.from_numpy(a)[0].numpy()",
    "torch.from_numpy(a).T.numpy()", "torch.from_numpy(a)[np.array([1, 0])]", "torch.from_numpy(a)[:, np.array([True, False, True])]", "torch.from_numpy(a).float() * a.mean()",
    "torch.tensor(np.float32(2.5))", "torch.as_tensor(np.int32(3)) + torch.from_numpy(a)", "torch.from_numpy(a).detach().cpu().numpy()",
)  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_both_ways(text):
    for order in "CF":
        assert_captured(function_of(text), lambda: [array("float64", order=order)])  # noqa: B023 - called in this round


@pytest.mark.parametrize(
    "text",
    ["t = torch.from_numpy(a); t.add_(1); return a, t", "t = torch.from_numpy(a); a[0] = 4; return a, t", "t = torch.tensor(a); a[0] = 4; return a, t",
     "t = torch.from_numpy(a); b = t.numpy(); b[0] = 4; return a, t, b"],
)  # fmt: skip
def test_writes_are_seen_on_the_other_side(text):
    assert_captured(statements(text), lambda: [array("float64")])


@pytest.mark.parametrize(
    "text", ["torch.ones(3, dtype=torch.int64) * a.sum()", "torch.ones(2, 3) * a", "np.sin(torch.from_numpy(a))"]
)
def test_mixtures_are_left_to_eager(text):
    assert_left_to_numpy(function_of(text), lambda: [array("float64")])


def test_a_tensor_with_a_history_has_no_array():
    def program(x):
        try:
            return (x * 2).numpy()
        except RuntimeError as error:
            return str(error)

    assert_left_to_numpy(program, lambda: [torch.ones(2, requires_grad=True)])


def test_a_history_goes_on_beside_the_array():
    """What is logged has none; gradients are the tensor's."""
    from both_ways import recorded

    def program(x):
        out = x * 2
        return out, out.detach().numpy()

    graphs = []
    x = torch.ones(2, requires_grad=True)
    out, told = recorded(program, graphs, fullgraph=True)(x)
    out.sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert type(told) is np.ndarray
    assert len(graphs) == 1


def test_a_number_of_pythons():
    """A symbol of the graph."""
    from both_ways import recorded

    def program(a):
        return torch.ones(3) * a.max().item(), a.sum()

    graphs = []
    region = recorded(program, graphs, fullgraph=True)
    for seed in range(2):
        given = array("float64", seed=seed)
        torch.testing.assert_close(region(given)[0], program(given)[0])
    assert len(graphs) == 1
