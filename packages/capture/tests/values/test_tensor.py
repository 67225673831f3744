"""`TensorValue`: facts are constants, methods are nodes, attributes are guarded."""

from __future__ import annotations

import torch


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
    assert broken(lambda x: x.sum().item() + 1) == {"data-dependent-value"}
    assert broken(lambda x: x.tolist()) == {"data-dependent-value"}
    assert broken(lambda x: 1 if (x > 0).all() else 2) == {"data-dependent-branch"}
    assert broken(lambda x: x[x > 0] + 1) == {"dynamic-output-shape"}


def test_subclasses_are_left_alone(broken):
    """A tensor of a kind that is not traced runs in plain Python."""

    class Tagged(torch.Tensor):
        pass

    assert broken(lambda x: x + 1, torch.ones(2).as_subclass(Tagged)) == {"unsupported-tensor"}
