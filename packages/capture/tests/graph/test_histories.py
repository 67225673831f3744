"""What autograd knows of tensors, beside what it does with them."""

from __future__ import annotations

import pytest
import torch

from flambeau_capture.graph.histories import (
    fills_its_memory,
    is_summed_unwatched,
    is_unwatched,
    leaves_of,
    obeys_layout,
)


def test_leaves_are_found_once():
    """Through every operation between, each leaf once; none of what has no history."""
    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    assert {id(leaf) for leaf in leaves_of([(a * b).sin() + a, a, torch.ones(3)])} == {id(a), id(b)}


def test_hooks_are_seen_as_long_as_they_are_there():
    """Hooks of a tensor, and those behind the sum of its gradients."""
    leaf = torch.ones(3, requires_grad=True)
    assert is_unwatched(leaf)
    for register in (leaf.register_hook, leaf.register_post_accumulate_grad_hook):
        handle = register(lambda given: None)
        assert not is_unwatched(leaf)
        handle.remove()
        assert is_unwatched(leaf)


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_hooks_of_the_sum_are_seen(register):
    """Where a program holds the node that sums a leaf's gradients, as libraries do that exchange gradients."""
    leaf = torch.ones(3, requires_grad=True)
    assert is_summed_unwatched(leaf)
    node = leaf.expand_as(leaf).grad_fn.next_functions[0][0]
    handle = getattr(node, register)(lambda *given: None)
    assert not is_summed_unwatched(leaf)
    handle.remove()
    assert is_summed_unwatched(leaf)


@pytest.mark.parametrize(
    ("leaf", "gradient"),
    [
        (torch.ones(2, 3), torch.ones(2, 3)),
        (torch.ones(2, 3), torch.ones(3, 2).t()),
        (torch.ones(3, 2).t(), torch.ones(3, 2).t()),
        (torch.ones(3, 2).t(), torch.ones(2, 3)),
        (torch.ones(2, 3), torch.ones(()).expand(2, 3)),
        (torch.ones(1, 3), torch.ones(3).expand(1, 3)),
        (torch.ones(2, 1), torch.ones(2, 5)[:, :1].clone().as_strided((2, 1), (1, 7))),
        (torch.ones(4, 3)[::2], torch.ones(2, 3)),
        (torch.ones(4, 3)[::2], torch.ones(4, 3)[::2]),
        (torch.ones(0, 3), torch.ones(0, 3)),
    ],
)
def test_a_gradient_is_kept_where_eager_keeps_it(leaf, gradient):
    """Else it is copied, and lies as its leaf does."""
    leaf = leaf.requires_grad_()
    (leaf * 1).backward(gradient)

    # The engine is handed a view of the tangent, which nobody else holds: kept or copied, that is told by the memory.
    class Handed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given):
            return given.clone()

        @staticmethod
        def backward(ctx, grad):
            return gradient[:] if gradient.ndim else gradient

    leaf.grad = None
    Handed.apply(leaf).sum().backward()
    kept = leaf.grad.data_ptr() == gradient.data_ptr()
    assert gradient.numel() == 0 or obeys_layout(gradient, leaf) == kept


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(2, 3), True),
        (torch.ones(2, 3).t(), True),
        (torch.ones(4, 3)[::2], False),
        (torch.ones(1).expand(3), False),
        (torch.ones(0, 3), True),
        (torch.ones(2, 1, 3)[:, :, :2], False),
    ],
)
def test_memory_is_filled(tensor, expected):
    """One place for each element, and none between."""
    assert fills_its_memory(tensor) is expected
