"""Run a function plainly and captured, and compare: what the tests of every folder share."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from flambeau_capture import make_region


def eager(graph, inputs):
    """A backend that runs the graph as it is."""
    return graph.forward


def recorded(function, graphs, **options):
    """The function as a region that runs its graphs as they are, and keeps each in `graphs`."""

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    return make_region(function, backend=backend, **options)


def outcome(function, *args):
    """What calling does: the result, or the exception's type and text."""
    try:
        return "returned", function(*args)
    except Exception as error:
        return "raised", (type(error), str(error))


def assert_equal(found, expected):
    """The same structure, types and values, bit for bit; the same strides, and the same tensors in one memory."""
    found_leaves, found_spec = pytree.tree_flatten(found)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert found_spec == expected_spec
    for a, b in zip(found_leaves, expected_leaves, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            assert type(a) is type(b)
            assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf)
            assert strides(a) == strides(b)
        else:
            assert type(a) is type(b)
            assert a == b
    assert sharing(found_leaves) == sharing(expected_leaves)


def strides(tensor):
    """The strides by which two elements are told apart."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)


def sharing(leaves):
    """For each tensor, the place of the first that is the same object and of the first in the same memory."""
    tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    objects, memory = {}, {}
    return [
        (
            objects.setdefault(id(t), place),
            memory.setdefault(t.untyped_storage()._cdata if t.numel() else id(t), place),
        )
        for place, t in enumerate(tensors)
    ]
