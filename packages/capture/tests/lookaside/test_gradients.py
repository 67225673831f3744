"""A backward inside of a graph: the engine's calls as nodes, gradients of leaves, and what of it breaks the graph."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
from both_ways import assert_equal, eager, outcome
from torch.torch_version import TorchVersion

from flambeau_capture import GraphBreakError, make_region


def _leaves():
    return torch.arange(6.0).reshape(2, 3).requires_grad_(), torch.ones(3, 2).t().requires_grad_()


def _both(function, *, calls=2, fullgraph=True, prepare=lambda *leaves: None):
    """Calls of `function(x, a, b)`, compared with plain Python: results, gradients, which tensor holds them, what is raised; the records."""
    records = []
    region = make_region(function, eager, fullgraph=fullgraph, observer=records.append)
    sides = [(region, _leaves()), (function, _leaves())]
    for _, leaves in sides:
        prepare(*leaves)
    for number in range(calls):
        seen = []
        for run, leaves in sides:
            before = [leaf.grad for leaf in leaves]
            done = outcome(run, torch.full((2, 3), 0.5 + number), *leaves)
            kept = [leaf.grad is held for leaf, held in zip(leaves, before, strict=True)]
            seen.append((done, [(leaf, leaf.grad) for leaf in leaves], kept))
        assert_equal(*seen)
    return records


_PROGRAMS = {
    "gradients of one": lambda x, a, b: torch.autograd.grad((a * x).sum(), a),
    "of a list": lambda x, a, b: torch.autograd.grad((a * b * x).sum(), [a, b]),
    "of a generator": lambda x, a, b: torch.autograd.grad((a * b * x).sum(), (leaf for leaf in (b, a))),
    # Torch 2.11 takes no dict.
    **(
        {"of a dict": lambda x, a, b: torch.autograd.grad((a * b).sum(), {"a": a, "b": b})}
        if TorchVersion(torch.__version__) >= "2.12"
        else {}
    ),
    "unused": lambda x, a, b: torch.autograd.grad((a * x).sum(), (a, b), allow_unused=True),
    "unused made zeros": lambda x, a, b: torch.autograd.grad((a * x).sum(), (a, b), materialize_grads=True),
    "by tangents": lambda x, a, b: torch.autograd.grad([a * x, a.sum()], a, [x + 1, None]),
    "twice": lambda x, a, b: torch.autograd.grad(
        torch.autograd.grad((a**3 * b).sum(), a, create_graph=True)[0].sum(), (a, b)
    ),
    "a gradient with a history": lambda x, a, b: torch.autograd.grad((a**3 * b).sum(), a, create_graph=True)[0],
    "backward": lambda x, a, b: (a * b * x).sum().backward(),
    "backward of a tangent": lambda x, a, b: (a * b).backward(x),
    "backward of several": lambda x, a, b: torch.autograd.backward([a.sum(), (a * b).sum()], [None, torch.tensor(2.0)]),
    "backward to one": lambda x, a, b: (a * b * x).sum().backward(inputs=[b]),
    "backward to one that is not met": lambda x, a, b: (a * x).sum().backward(inputs=[b]),
    "a tangent that is handed on": lambda x, a, b: (a.backward(x), x.mul_(2))[1],
    "one gradient for two": lambda x, a, b: (a + b).backward(x),
    "a gradient in two views": lambda x, a, b: (
        (a + b.clone().t().contiguous().t()).sin().sum().backward(),
        a.grad.zero_(),
    )[1],
    "a gradient that is spread": lambda x, a, b: (a.sum() + b.sum()).backward(),
    "a loss whose history is freed": lambda x, a, b: _returned((a.exp() * b).sum()),
    "a loss whose history is kept": lambda x, a, b: _returned((a.exp() * b).sum(), retain_graph=True),
    "a sum, which keeps nothing": lambda x, a, b: _returned(a.sum()),
    "a leaf of the frame's own": lambda x, a, b: _own_leaf(x.detach().requires_grad_(), a),
    "a new leaf": lambda x, a, b: _own_leaf(torch.zeros(2, 3, requires_grad=True), a),
    "an attribute makes it one": lambda x, a, b: _own_leaf(_required(x * 2), a),
    "gradients are set to None": lambda x, a, b: (setattr(a, "grad", None), (a * x).sum().backward())[1],
    "a gradient is set": lambda x, a, b: (setattr(a, "grad", x), (a * x).sum().backward(), a.grad is x)[2],
}


def _returned(loss, **options):
    loss.backward(**options)
    return loss


def _required(leaf):
    leaf.requires_grad = True
    return leaf


def _own_leaf(leaf, a):
    (leaf * a).sum().backward()
    return leaf, leaf.grad


@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_backward_is_part_of_the_graph(name):
    """As in plain Python: values, which tensor holds a gradient from call to call, and what of it shares memory."""
    records = _both(_PROGRAMS[name], calls=3)
    assert all(record.operations for record in records)


def test_gradients_add_up_in_the_tensor_that_is_there():
    """A second backward writes into the gradient of the first; a program that holds it sees that."""

    def run(x, a, b):
        (a * x).sum().backward()
        first = a.grad
        (a * b).sum().backward()
        return first is a.grad, first

    _both(run)


@pytest.mark.parametrize("freed", [(), ("retain_graph",)])
def test_a_loss_that_is_handed_back_may_be_differentiated_as_in_eager(freed):
    """After a backward that freed its history it raises with eager's words, also by way of what is computed of it."""

    def run(x, a, b):
        loss = (a.exp() * b).sum()
        loss.backward(**dict.fromkeys(freed, True))
        return loss

    region = make_region(run, eager, fullgraph=True)
    for function in (lambda loss, leaf: loss.backward(), lambda loss, leaf: torch.autograd.grad(loss * 2, leaf)):
        seen = []
        for call in (run, region):
            a, b = _leaves()
            loss = call(torch.ones(2, 3), a, b)
            seen.append((loss._version, loss.grad_fn is None, outcome(function, loss, a), a.grad, b.grad))
        assert_equal(*seen)


_OUTSIDE = {
    "a history of its own": lambda a: a * 2,
    "a view of a leaf": lambda a: a[:],
}


@pytest.mark.parametrize("name", _OUTSIDE)
def test_a_backward_does_not_go_on_outside_of_the_graph(name):
    """What was computed before the frame gets its gradient from the engine itself."""

    def run(h):
        loss = h.sin().sum()
        loss.backward()
        return loss

    def both(call):
        a = torch.arange(3.0).requires_grad_()
        return call(_OUTSIDE[name](a)), a.grad

    records = []
    region = make_region(run, eager, observer=records.append)
    for _ in range(2):
        assert_equal(both(region), both(run))
    assert {b.code for record in records for b in record.breaks} == {"autograd-call"}


def test_a_leaf_that_becomes_a_view_is_noticed():
    """That a tensor is a leaf is a guard."""
    region = make_region(lambda h: h.sin().sum().backward(), eager)
    for _ in range(2):
        for make in (lambda a: a, lambda a: a.view(3)):
            a, b = (torch.arange(3.0).requires_grad_() for _ in range(2))
            region(make(a))
            make(b).sin().sum().backward()
            assert_equal(a.grad, b.grad)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_leaves_are_called(register):
    """A hook breaks the graph, and one that is registered after the first call is noticed."""
    weight, seen = torch.ones(3, requires_grad=True), []
    region = make_region(lambda x: (weight * x).sum().backward(), eager)
    region(torch.ones(3))
    handle = getattr(weight, register)(lambda given: seen.append(1))
    region(torch.ones(3))
    assert seen == [1]
    handle.remove()
    region(torch.ones(3))
    assert seen == [1]
    assert weight.grad.tolist() == [3.0, 3.0, 3.0]


def test_hooks_where_gradients_are_summed_are_called():
    """They are looked for when a frame is captured."""
    weight, seen = torch.ones(3, requires_grad=True), []
    node = weight.expand_as(weight).grad_fn.next_functions[0][0]
    node.register_hook(lambda *given: seen.append(1))
    region = make_region(lambda x: (weight * x).sum().backward(), eager)
    for number in range(2):
        region(torch.ones(3))
        assert len(seen) == number + 1


def test_a_patched_backward_is_called(monkeypatch):
    """A program's own function in the place of torch's is no node."""
    seen = []
    region = make_region(lambda x, a, b: (a * x).sum().backward(), eager)
    given = torch.ones(2, 3), *_leaves()
    region(*given)
    monkeypatch.setattr(torch.autograd, "backward", lambda *args, **kwargs: seen.append(1))
    region(*given)
    assert seen == [1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a, b: torch.autograd.grad((a * x).sum(), (a, b)),
        lambda x, a, b: x.sum().backward(),
        lambda x, a, b: (a * x).backward(),
        lambda x, a, b: torch.autograd.grad(a.sum(), []),
        lambda x, a, b: setattr(a, "grad", x[0]),
        lambda x, a, b: setattr(a, "grad", x.double()),
        lambda x, a, b: setattr(a, "grad", a),
        lambda x, a, b: setattr(a, "grad", 1),
        lambda x, a, b: setattr(a * 2, "requires_grad", True),
        lambda x, a, b: torch.arange(3).requires_grad_(),
    ],
)
def test_what_eager_refuses_raises_the_same(function):
    """The program's own exception comes out of plain Python."""
    _both(function, fullgraph=False)


def test_leaves_that_escape_with_what_leads_to_them():
    """A result that leads to a leaf of the frame's own is left to eager: a graph's history leads to its inputs."""

    def run(x):
        leaf = x.detach().requires_grad_()
        return leaf, leaf.sin()

    records = []
    region = make_region(run, eager, observer=records.append)
    leaf, result = region(torch.ones(3))
    result.sum().backward()
    assert leaf.grad is not None
    # What comes after the leaf is compiled in a frame to which it comes from outside.
    assert sum(bool(record.operations) for record in records) == 2
    with pytest.raises(GraphBreakError):
        make_region(run, eager, fullgraph=True)(torch.ones(3))


def test_an_old_gradient_is_a_guard():
    """A call that finds no gradient makes one, also after calls that found one."""
    weight = torch.ones(3, requires_grad=True)
    region = make_region(lambda x: (weight * x).sum().backward(), eager, fullgraph=True)
    for start, expected in ((None, 1.0), (0.0, 1.0), (None, 1.0), (5.0, 6.0)):
        weight.grad = before = None if start is None else torch.full((3,), start)
        region(torch.ones(3))
        assert weight.grad.tolist() == [expected] * 3
        assert before is None or weight.grad is before


def test_a_backward_through_an_operator_over_bodies():
    """The gradients of what it reads come to the leaves; taken inside of a body, or as values, they are left to eager."""

    def run(x, a, b):
        y = torch.cond(x.sum() > 4, lambda t: (t * a).sin(), lambda t: t * a * 2, (x,))
        (y * b).sum().backward()

    _both(run)

    def inside(x, a, b):
        return torch.cond(x.sum() > 4, lambda t: torch.autograd.grad((t * a).sum(), a)[0], lambda t: t * 2, (x,))

    def valued(x, a, b):
        return torch.autograd.grad(torch.cond(x.sum() > 4, lambda t: t * a, lambda t: t * a * 2, (x,)).sum(), a)

    for function in (inside, valued):
        records = _both(function, fullgraph=False)
        assert {broken.code for record in records for broken in record.breaks} == {"autograd-call"}


def test_a_reentrant_checkpoint_refuses_gradients_of_some_tensors():
    """As eager does; a whole backward is part of the graph."""
    checkpoint = torch.utils.checkpoint.checkpoint

    def whole(x, a, b):
        checkpoint(lambda t: (t * b).sin(), a, use_reentrant=True).sum().backward()

    def some(x, a, b):
        return torch.autograd.grad(checkpoint(lambda t: (t * b).sin(), a, use_reentrant=True).sum(), a)

    _both(whole)
    _both(some, fullgraph=False)
