"""Tangents that lie otherwise than the backward was compiled for: eager hands them on as they came, and computes what lies as they do."""

from __future__ import annotations

import itertools

import pytest
import torch
from lifting import compile_function, compile_graph, lift_symbolically
from torch import nn
from torch.nn import functional as F

from flambeau_autograd import Config

TANGENTS = {
    "dense": lambda out: torch.randn(out.shape),
    "one number": lambda out: torch.ones(()).expand(out.shape),
    "rows": lambda out: torch.randn(out.shape[-1:]).expand(out.shape),
    "columns": lambda out: torch.randn(*out.shape[:-1], 1).expand(out.shape),
    "turned": lambda out: torch.randn(out.shape[::-1]).permute(*reversed(range(out.dim()))),
    "with gaps": lambda out: torch.randn(*out.shape[:-1], 2 * out.shape[-1])[..., ::2],
    "absent": lambda out: None,
}


FUNCTIONS = {
    "itself": lambda x, y: x + 1,
    "to both": lambda x, y: x + y,
    "to one and negated": lambda x, y: x - y,
    "in place": lambda x, y: x.clone().add_(y),
    "to one and multiplied": lambda x, y: torch.add(x, y, alpha=2),
    "and a sum of it": lambda x, y: x + y[0],
    "clone": lambda x, y: x.clone(),
    "turned": lambda x, y: x.t() + 1,
    "laid out anew": lambda x, y: x.t().contiguous(),
    "turned and laid in a row": lambda x, y: (x + 1).t().contiguous().view(-1) + 1,
    "viewed": lambda x, y: x.view(2, -1, 2) + 1,
    "one more dimension": lambda x, y: x.unsqueeze(1) + 1,
    "expanded": lambda x, y: x.expand(2, 3, 4) + 1,
    "sum": lambda x, y: x.sum(0),
    "of several": lambda x, y: (torch.cat([x, y]), torch.stack([x, y])),
    "part": lambda x, y: x[1:] + 1,
    "multiplied": lambda x, y: x * 2,
    "multiplied and turned": lambda x, y: x.t() * 2,
    "product": lambda x, y: x * y,
    "of a library": lambda x, y: x @ y.t(),
    "positive part": lambda x, y: x.relu(),
    "activations": lambda x, y: (F.elu(x), F.hardtanh(y)),
    "in its rows": lambda x, y: (x.t().contiguous().t().log_softmax(0), y.t().sin().softmax(0)),
    "and smooth ones": lambda x, y: (F.softplus(x), F.hardsigmoid(y)),
    "twice": lambda x, y: x + x,
    "two results": lambda x, y: (x + 1, y.t() * 2),
    "two results of one": lambda x, y: (x + y, x * y),
    "one result more": lambda x, y: (torch.cat([y, x]), torch.stack([x])),
}


@pytest.fixture(params=[True, False], ids=["native", "twin"])
def config(request):
    return Config(native=request.param)


def both():
    return [torch.randn(3, 4).requires_grad_(), torch.randn(3, 4).requires_grad_()]


def gradients(function, names):
    """Of both inputs, then how they lie, and which of them and of the tangents share memory."""
    torch.manual_seed(0)
    given = both()
    results = function(*given)
    results = results if isinstance(results, tuple) else (results,)
    pairs = [(out, made) for out, name in zip(results, names) if (made := TANGENTS[name](out)) is not None]
    found = torch.autograd.grad([out for out, _ in pairs], given, [tangent for _, tangent in pairs], allow_unused=True)
    laid = [None if grad is None else grad.stride() for grad in found]
    return found, laid, memory([*(tangent for _, tangent in pairs), *found])


def memory(tensors):
    known = {}
    kept = [t for t in tensors if t is not None]
    return [(known.setdefault(t.untyped_storage().data_ptr(), i), t.storage_offset()) for i, t in enumerate(kept)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_lie_as_eagers(name, config):
    function = FUNCTIONS[name]
    compiled = compile_function(function, both(), config=config)
    count = len(compiled(*both()))
    for names in itertools.product(TANGENTS, repeat=count):
        if names.count("absent") == count:
            continue
        ours, theirs = gradients(compiled, names), gradients(function, names)
        torch.testing.assert_close(ours[0], theirs[0])
        assert ours[1:] == theirs[1:], names


@pytest.mark.parametrize("name", ["itself", "turned", "viewed", "multiplied and turned", "sum"])
def test_for_sizes_that_change(name, config):
    function = FUNCTIONS[name]
    compiled = compile_graph(lift_symbolically(function), both(), dynamic=True, config=config)
    for shape, tangent in itertools.product([(3, 4), (5, 4), (2, 8)], ("one number", "rows", "turned")):
        laid = []
        for run in (function, compiled):
            x, y = torch.randn(shape).requires_grad_(), torch.randn(shape).requires_grad_()
            out = run(x, y)
            out = out[0] if isinstance(out, tuple) else out
            laid.append(torch.autograd.grad(out, x, TANGENTS[tangent](out))[0].stride())
        assert laid[0] == laid[1], (shape, tangent)


def seen_by_a_hook(run):
    x = (torch.randn(3, 4).requires_grad_() * 1).t()
    seen = []
    x.register_hook(lambda grad: seen.append((grad.shape, grad.stride())))
    run(x).sum().backward()
    return seen


def seen_by_a_hook_of_a_leaf(run):
    x = torch.randn(4, 3).requires_grad_()
    seen = []
    x.register_hook(lambda grad: seen.append((grad.shape, grad.stride())))
    run(x).sum().backward()
    return seen, x.grad.stride()


def kept(run):
    x = torch.randn(4, 3).requires_grad_() * 1
    x.retain_grad()
    run(x).sum().backward()
    return x.grad.stride()


def behind_another(run):
    x = torch.randn(4, 3).requires_grad_()
    return torch.autograd.grad(run(x.t().t()).sum(), x)[0].stride()


def of_a_leaf(run):
    x = torch.randn(4, 3).requires_grad_()
    run(x).sum().backward()
    return x.grad.stride()


def the_very_tangent(run):
    x = torch.randn(4, 3).requires_grad_()
    tangent = torch.ones(3, 4).t()
    (grad,) = torch.autograd.grad(run(x), x, tangent)
    return grad is tangent


def one_that_is_lazily_negated(run):
    x = torch.randn(4, 3).requires_grad_()
    tangent = torch._neg_view(torch.ones(4, 3))
    (grad,) = torch.autograd.grad(run(x), x, tangent)
    return grad.stride(), grad.is_neg(), grad.untyped_storage().data_ptr() == tangent.untyped_storage().data_ptr()


def of_a_backward_that_is_differentiated(run):
    x = torch.randn(4, 3).requires_grad_()
    return torch.autograd.grad(run(x).sum(), x, create_graph=True)[0].stride()


@pytest.mark.parametrize(
    "looks",
    [
        seen_by_a_hook,
        seen_by_a_hook_of_a_leaf,
        kept,
        behind_another,
        of_a_leaf,
        the_very_tangent,
        one_that_is_lazily_negated,
        of_a_backward_that_is_differentiated,
    ],
)
def test_however_one_looks(looks, config):
    compiled = compile_function(lambda x: x + 1, [torch.randn(4, 3).requires_grad_()], config=config)
    assert looks(lambda x: compiled(x)[0]) == looks(lambda x: x + 1)


@pytest.mark.parametrize("lazy", ["conj", "_neg_view"])
def test_a_tangent_whose_memory_shows_other_numbers(lazy, config):
    """The backward is compiled for one that is what its memory holds."""
    mark = getattr(torch, lazy)

    def function(x):
        return torch.complex(torch.view_as_real(x)[..., 1], torch.view_as_real(x)[..., 0])

    made = [torch.tensor([1 + 2j, 3 - 1j]).requires_grad_() for _ in range(2)]
    runs = (function, lambda x: compile_function(function, [x], config=config)(x)[0])
    for x, run in zip(made, runs):
        run(x).backward(mark(torch.tensor([2 + 1j, 1 - 3j])))
    assert torch.equal(made[0].grad, made[1].grad)


def test_parts_of_a_tangent_become_gradients_where_others_are_absent(config):
    """`.grad` of leaves too: eager adds nothing to them."""

    def function(a, b):
        return torch.cat([b, a]), torch.stack([a])

    compiled = compile_function(function, [torch.randn(3).requires_grad_() for _ in range(2)], config=config)
    shared = []
    for run in (function, compiled):
        leaves, tangent = [torch.randn(3).requires_grad_() for _ in range(2)], torch.randn(6)
        run(*leaves)[0].backward(tangent)
        shared.append(memory([tangent, *(leaf.grad for leaf in leaves)]))
    assert shared[0] == shared[1] == [(0, 0), (0, 3), (0, 0)]


def test_nobody_asks_where_nobody_looks(monkeypatch):
    """`.grad` of a leaf lies as the leaf does: the graph is not traced again for it, nor where no gradient follows a tangent."""
    from flambeau_autograd import pipeline

    asked = []
    monkeypatch.setattr(pipeline, "gradient_layouts", lambda *args: asked.append(args) or {})
    model = nn.Linear(4, 4)
    x = torch.randn(3, 4).requires_grad_()
    (out,) = compile_function(lambda x: x.sin(), [x])(x)
    out.sum().backward()
    weight = model.weight
    (out,) = compile_function(lambda x, w: (x @ w).relu(), [x, weight])(x, weight)
    torch.autograd.grad(out.sum(), [x, weight])
    assert not asked
    (out,) = compile_function(lambda x: x.sin(), [x])(x)
    torch.autograd.grad(out.sum(), x)
    assert asked
