"""A fixed slice of torch's operator database, forward and backward, against eager."""

from __future__ import annotations

import random

import pytest
import torch
from lifting import as_tuple, compile_graph, tuple_output
from torch.fx import Graph, GraphModule
from torch.testing._internal.common_methods_invocations import op_db

from flambeau_autograd import UnsupportedGraph

# Results are arbitrary (empty), need more than a graph call (sparse, jagged), or differ from run to run.
SKIPPED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "to_sparse", "item",
           # these set the seed inside the call
           "rand_like", "randn_like", "randint_like", "normal", "cauchy", "exponential", "geometric", "log_normal", "uniform", "bernoulli",
           "multinomial", "randn", "randint", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
           "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
           "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.scaled_dot_product_attention",
           "equal", "allclose", "tolist", "sparse.mm", "sparse.sampled_addmm", "nn.functional.ctc_loss", "svd_lowrank", "pca_lowrank"}  # fmt: skip
USABLE = [
    op
    for op in op_db
    if op.name not in SKIPPED and not op.name.startswith("jiterator") and torch.float32 in op.supported_dtypes("cpu")
]
CHOSEN = random.Random(2026).sample(USABLE, 150)


def replaced(value, stand_in):
    """The same lists, tuples and slices, with `stand_in(tensor)` for each tensor."""
    if isinstance(value, torch.Tensor):
        return stand_in(value)
    if type(value) in (list, tuple):
        return type(value)(replaced(v, stand_in) for v in value)
    if isinstance(value, slice):
        return slice(*(replaced(v, stand_in) for v in (value.start, value.stop, value.step)))
    return value


def arguments(sample, stand_in):
    """Positional and keyword arguments of a sample, its tensors replaced in order."""
    args = replaced((sample.input, *sample.args), stand_in)
    return args, {k: replaced(v, stand_in) for k, v in sample.kwargs.items()}


def graph_of(op, sample):
    """A graph with one placeholder per tensor of the sample and one call."""
    graph, tensors = Graph(), []

    def placeholder(tensor):
        tensors.append(tensor)
        return graph.placeholder(f"t{len(tensors)}")

    out = graph.call_function(op.op, *arguments(sample, placeholder))
    return graph, out, tensors


def flat(value):
    return [v for v in as_tuple(value) if v is not None]


def run(function, tensors, seed=11):
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
    torch.manual_seed(seed)
    outputs = flat(function(*leaves))
    wanted = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    grads = []
    if wanted:
        targets = [t for t in leaves if t.requires_grad]
        total = sum((o.abs() if o.is_complex() else o).sum() for o in wanted)
        grads = torch.autograd.grad(total, targets, allow_unused=True)
    return outputs, grads


@pytest.mark.parametrize("op", CHOSEN, ids=lambda op: op.formatted_name)
def test_op(op):
    """Two samples of the op: outputs and gradients equal eager's, or the graph is refused."""
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    refused = 0
    for count, sample in enumerate(samples):
        if count == 2:
            break
        graph, node, tensors = graph_of(op, sample)

        def eager(*leaves):
            feed = iter(leaves)
            args, kwargs = arguments(sample, lambda tensor: next(feed))
            return op.op(*args, **kwargs)

        try:
            want = run(eager, tensors)
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        probe = eager(*[t.detach().clone() for t in tensors])
        if isinstance(probe, (list, tuple)):
            node = tuple(graph.call_function(__import__("operator").getitem, (node, i)) for i in range(len(probe)))
        graph.output(node)
        try:
            compiled = compile_graph(tuple_output(GraphModule(torch.nn.Module(), graph)), tensors)
        except UnsupportedGraph:
            refused += 1
            continue
        got = run(compiled, tensors)
        assert len(got[0]) == len(want[0])
        for a, b in zip((*got[0], *got[1]), (*want[0], *want[1])):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-4, atol=1e-4)
            else:
                assert a == b
    if refused:
        pytest.skip("refused: runs in eager")
