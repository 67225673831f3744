"""`TensorValue`: facts are constants, methods are nodes, attributes are guarded."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def test_facts_are_constants(check):
    """Nothing but the one addition is in the graph."""

    def run(x):
        facts = (
            x.dtype,
            x.device,
            x.ndim,
            x.shape,
            x.stride(),
            x.numel(),
            x.is_contiguous(),
            x.requires_grad,
            len(x),
            x.itemsize,
        )
        return x + 1, [str(fact) for fact in facts]

    (record,) = check(run)
    assert record.operations == 1


def test_attributes_stored_on_tensors(check):
    """Python attributes travel with the tensor."""

    def run(x):
        y = x + 1
        y.tag = [1]
        y.tag.append(2)
        return y.tag, hasattr(x, "tag"), getattr(y, "other", "none"), y

    check(run)


def test_views_and_mutation(check):
    """Aliases stay aliases, in place is in place."""

    def run(x):
        y = x.clone()
        view = y[1:]
        view.add_(10)
        y.T[0] = 0
        y.data.mul_(2)
        return y, view, x.real is x, y.mT

    check(run, fullgraph=False)


def test_values_are_not_read(broken):
    """What needs a tensor's value breaks the graph."""
    assert broken(lambda x: x.data_ptr() and 1) == {"data-dependent-value"}
    assert broken(lambda x: 1 if (x > 0).all() else 2) == {"data-dependent-branch"}
    assert broken(lambda x: 1 if x.sum().item() > 0 else 2) == {"data-dependent-branch"}
    assert broken(lambda x: x + 1 if x[x > 0].numel() else x) == {"data-dependent-branch"}


def _leaf():
    return torch.ones(4, 3, requires_grad=True)


_KINDS = {
    "plain": lambda: torch.ones(4, 3),
    "view": lambda: torch.ones(6, 3)[2:],
    "leaf": _leaf,
    "computed": lambda: _leaf() * 1,
    "view of computed": lambda: (torch.ones(6, 3, requires_grad=True) * 1)[2:],
    "view of a leaf": lambda: torch.ones(6, 3, requires_grad=True)[2:],
}
_QUESTIONS = {
    "is_leaf": lambda x: x.is_leaf,
    "is_leaf after a write": lambda x: (x.mul_(torch.ones(3, requires_grad=True)), x.is_leaf)[1],
    "_is_view": lambda x: x._is_view(),
    "grad_fn": lambda x: x.grad_fn is None,
    "retains_grad": lambda x: x.retains_grad,
    "storage_offset": lambda x: x.storage_offset(),
    "is_set_to": lambda x: (x.is_set_to(x), x.is_set_to(x[:1])),
    "is_shared": lambda x: (x.is_shared(), x.is_pinned()),
    "requires_grad_": lambda x: x.requires_grad_(not x.requires_grad).requires_grad,
    "requires_grad": lambda x: (setattr(x, "requires_grad", True), (x * 2).requires_grad)[1],
    "made to require grad": lambda x: (x.detach() * 2).requires_grad_().is_leaf,
    "detach_": lambda x: (x.detach_().requires_grad, x.is_leaf),
}


@pytest.mark.parametrize("name", _QUESTIONS)
def test_what_tensors_of_one_layout_differ_in(name):
    """Leaves, views and offsets: each kind of tensor answers for itself, whatever was compiled for another, and changes stay."""
    question = _QUESTIONS[name]

    def run(x):
        y = x * 2
        return question(x), y, (x + 1).requires_grad

    for kinds in (list(_KINDS), list(reversed(_KINDS))):
        region = make_region(run, eager)
        for kind in kinds:
            expected, found = outcome(run, given := _KINDS[kind]()), outcome(region, ours := _KINDS[kind]())
            assert found[0] == expected[0], (kind, found, expected)
            if found[0] == "raised":
                assert found == expected
            else:
                assert_equal(found[1], expected[1])
            assert (ours.requires_grad, ours.is_leaf) == (given.requires_grad, given.is_leaf), kind


@pytest.mark.parametrize("view", ["x", "x.view(-1)", "x[0]", "x.view(-1)[2:]", "x * 2", "x.view(-1) + 1"])
def test_whether_what_is_made_in_inference_mode_requires_grad(view):
    """A view of an ordinary tensor that requires grad does, what is computed of one does not."""
    run = eval(f"lambda x: (lambda y: (y + 1, y.requires_grad))({view})")
    region = make_region(run, eager)
    for kind in ("plain", "leaf", "computed", "view of a leaf"):
        x = _KINDS[kind]()
        with torch.inference_mode():
            assert_equal(region(x), run(x))


@pytest.mark.parametrize("kind", ["leaf", "computed", "view of computed", "view of a leaf"])
def test_what_requires_grad_already_is_no_change(check, kind):
    check(lambda x: x.requires_grad_() * 2, _KINDS[kind]())


@pytest.mark.parametrize("make", [
    lambda x: torch.empty(3),
    lambda x: torch.zeros(5),
    lambda x: torch.zeros(3, dtype=torch.float64),
    lambda x: torch.zeros(3, dtype=torch.int32),
    lambda x: torch.zeros(1).expand(3),
    lambda x: torch.zeros(6)[::2],
    lambda x: x,
    lambda x: x.expand(2, 3)[1],
], ids=["fits", "resized", "converted", "refused", "overlaps", "strided", "an_argument", "shares"])  # fmt: skip
@pytest.mark.parametrize("operation", [torch.mul, torch.cumsum], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore:An output with one or more")
def test_out(make, operation, request):
    """Eager resizes, converts or refuses an `out=` that is not as the result is; an elementwise operator's may be its argument."""

    def run(x, out):
        view = out[:1]
        found = operation(x, 0, out=out)
        return found + 1, out, view, found is out

    told = []
    for function in (run, make_region(run, eager, observer=(records := []).append, suppress_errors=False)):
        x = torch.arange(3.0)
        told.append((*outcome(function, x, make(x)), x))
    assert_equal(told[1], told[0])
    fits = request.node.callspec.id.endswith(("-fits", "-strided", "mul-an_argument"))
    assert [bool(record.breaks) for record in records][:1] == [not fits]
