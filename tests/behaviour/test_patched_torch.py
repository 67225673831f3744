"""Programs that put their own functions in the place of torch's: those are called as often, and with the same results, as in plain Python.

The compiler's own stages call functions of torch by their names: its formulas for fakes and decompositions, autograd's and inductor's passes.
"""

from __future__ import annotations

import math
import operator
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flambeau
import flambeau_autograd

from ..comparison import assert_same

_MODEL = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).double()


def _classifier(x):
    return F.cross_entropy(_MODEL(x), torch.zeros(len(x), dtype=torch.long))


def _reductions(x):
    y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1)
    z = torch.softmax(y, -1).clamp(0.1, 0.9).where(y > 0, -y)
    return (z @ z.t()).norm() + F.normalize(z, dim=0).sum() + torch.einsum("ij,ij->i", y, z).max()


def _views(x):
    y = x.t()[1:, ::2].reshape(-1)
    z = torch.cat([y, torch.roll(y, 1)]).view(2, -1).unsqueeze(0).permute(2, 0, 1)
    return torch.stack([z, z]).transpose(0, 1).contiguous().sum() + abs(x).sum() + sum(row[0] for row in x)


def _writes(x):
    y = x.clone()
    y[:, 1].add_(2)
    y.mul_(3).clamp_(max=2)
    return (
        y.masked_fill(y > 1, 0.0) + torch.zeros(3, 4, dtype=x.dtype).index_add(0, torch.tensor([0]), y[:1])[0]
    ).sum()


PROGRAMS = (_classifier, _reductions, _views, _writes)
_METHODS = (
    "sum", "dim", "numel", "clone", "norm", "contiguous", "__add__", "__rmul__", "__truediv__", "__len__", "__abs__", "__iter__", "size", "view", "detach",
    "expand", "expand_as", "new_empty", "as_strided", "masked_fill", "element_size", "is_floating_point", "__radd__", "__mul__", "__sub__", "__neg__",
    "__ne__", "__getitem__",
)  # fmt: skip
_FUNCTIONS = (
    "cat", "exp", "empty", "where", "can_cast", "are_deterministic_algorithms_enabled", "erf", "empty_like", "empty_strided", "ones", "zeros", "rsqrt",
    "var_mean", "sum",
)  # fmt: skip
#: Replaced, they break every piece of some program, which then gets no graph.
_WITHOUT_A_GRAPH = ("__getitem__", "layer_norm")
#: Names that formulas of torch, or stages of ours, call while they compile these programs; the first ones of each owner are tried in every run.
NAMES = [
    pytest.param(
        owner,
        name,
        marks=[*[pytest.mark.slow] * (number >= fast), *[pytest.mark.judges_itself] * (name in _WITHOUT_A_GRAPH)],
        id=f"{owner.__name__}.{name}",
    )
    for owner, fast, names in (
        (torch.Tensor, 7, _METHODS), (torch, 3, _FUNCTIONS), (F, 1, ("normalize", "linear", "layer_norm", "cross_entropy", "gelu")),
        (torch.linalg, 1, ("vector_norm",)), (math, 0, ("prod", "sqrt")), (operator, 1, ("getitem", "mul")), (nn.Module, 1, ("__call__",)),
    )
    for number, name in enumerate(names)
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_calls_are_those_of_plain_python(owner, name, monkeypatch):
    """Of a function that counts its calls and calls torch's own; with a backward, and again with another size."""
    original = getattr(owner, name)
    calls = []

    def counting(*args, **kwargs):
        calls.append(name)
        return original(*args, **kwargs)

    def run(function, rows):
        x = torch.linspace(-1, 1, rows * 4, dtype=torch.float64).reshape(rows, 4).requires_grad_()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, counting)
            loss = function(x)
            loss.backward()
        counted = len(calls)
        calls.clear()
        return counted, loss.detach(), x.grad

    for program in PROGRAMS:
        compiled = flambeau.compile(program, backend="aot_eager")
        for rows in (3, 5):
            assert_same(run(compiled, rows), run(program, rows), strides=False)


def test_calls_beside_another_thread(monkeypatch):
    """Which finds the program's function behind a stand-in meanwhile: no graph may hold that."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        test_calls_are_those_of_plain_python(operator, "getitem", monkeypatch)
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_results_are_torchs_own(backend, monkeypatch):
    """A decomposition of `t @ t` multiplies and sums: not with what the program calls by that name."""
    own = torch.Tensor.sum
    monkeypatch.setattr(torch.Tensor, "sum", lambda *args, **kwargs: own(*args, **kwargs) + 1)
    compiled = flambeau.compile(lambda t: (t @ t, t.sum()), backend=backend)
    assert_same(compiled(torch.arange(3.0)), (torch.tensor(5.0), torch.tensor(4.0)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_a_function_of_torch_calls_is_replaced_later(backend, monkeypatch):
    """`F.normalize` is one node, and divides; what stands for the division changes after the first call."""
    compiled = flambeau.compile(lambda x: F.normalize(x, dim=0) + 1, backend=backend)
    x = torch.tensor([3.0, 4.0])
    assert_same(compiled(x), torch.tensor([1.6, 1.8]))
    own = torch.Tensor.__truediv__
    monkeypatch.setattr(torch.Tensor, "__truediv__", lambda self, other: own(self, other) * 10)
    assert_same(compiled(x), torch.tensor([7.0, 9.0]))
    monkeypatch.undo()
    assert_same(compiled(x), torch.tensor([1.6, 1.8]))


@pytest.mark.falls_back("on purpose")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_graph_that_is_left_to_eager_calls_what_was_captured(backend, monkeypatch):
    """Its code is made while torch's functions have their names, and runs when the program's have them."""

    def refuse(*args, **kwargs):
        raise flambeau_autograd.UnsupportedGraph("on purpose")

    own = torch.relu
    monkeypatch.setattr(flambeau_autograd, "prepare", refuse)
    monkeypatch.setattr(torch, "relu", lambda x: own(x) * 2)
    compiled = flambeau.compile(lambda x: torch.relu(x) + 1, backend=backend)
    x = torch.tensor([-1.0, 3.0])
    for _ in range(2):
        assert_same(compiled(x), torch.tensor([1.0, 7.0]))
