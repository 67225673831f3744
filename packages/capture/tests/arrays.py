"""Programs on NumPy's arrays, plainly and captured: the same results, classes, layouts, memory and arguments afterwards."""

from __future__ import annotations

import numpy
import torch
from both_ways import recorded

SHAPES = (((2, 3), "C"), ((4, 3), "F"), ((3, 2, 2), "K"))
"""Sizes, and how the elements lie: by rows, by columns, every other one of a larger array."""


def array(dtype, shape=(2, 3), order="C", seed=0):
    """An array of random numbers, small ones of integers."""
    rng = numpy.random.default_rng(seed)
    dtype = numpy.dtype(dtype)
    found = rng.integers(0, 2, shape) if dtype.kind == "b" else rng.integers(0, 9, shape)
    if dtype.kind in "fc":
        found = rng.random(shape) * 4 - 1.5
    if order == "K":
        wide = numpy.zeros((*shape[:-1], shape[-1] * 2), dtype)
        wide[..., ::2] = found
        return wide[..., ::2]
    return numpy.asarray(found, dtype, order=order)


def leaves(value):
    """What is in lists and tuples, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def assert_same_arrays(found, expected):
    """Classes, dtypes, shapes, strides and values are the same, and so is which lie in one memory and which are one object."""
    ours, theirs = leaves(found), leaves(expected)
    assert [type(leaf) for leaf in ours] == [type(leaf) for leaf in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(other, (numpy.ndarray, numpy.generic)):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            assert _strides(mine) == _strides(other)
            numpy.testing.assert_allclose(mine, other, rtol=1e-6 if other.dtype.itemsize > 4 else 1e-3)
        elif isinstance(other, torch.Tensor):
            torch.testing.assert_close(mine, other, equal_nan=True)
        else:
            assert mine == other
    assert _sharing(ours) == _sharing(theirs)


def _strides(value):
    return tuple(stride for size, stride in zip(value.shape, value.strides, strict=True) if size > 1 and value.size)


def _sharing(values):
    kept = [value for value in values if isinstance(value, (numpy.ndarray, torch.Tensor))]
    memory = [value.detach().numpy() if isinstance(value, torch.Tensor) else value for value in kept]
    return [[(a is b, numpy.shares_memory(x, y)) for b, y in zip(kept, memory)] for a, x in zip(kept, memory)]


def assert_captured(program, make, *, graphs=1):
    """One graph does what the program does (and an addition, so that there is one), twice; `make()` gives the arguments."""
    seen = []
    region = recorded(lambda *given: (given[0] + 1, program(*given))[1], seen, fullgraph=True)
    for _ in range(2):
        ours, theirs = make(), make()
        assert_same_arrays((region(*ours), *ours), (program(*theirs), *theirs))
    assert len(seen) == graphs


def assert_left_to_numpy(program, make):
    """The frame breaks, and does what the program does."""
    seen = []
    region = recorded(program, seen)
    for _ in range(2):
        ours, theirs = make(), make()
        assert_same_arrays((region(*ours), *ours), (program(*theirs), *theirs))
    try:
        recorded(program, seen, fullgraph=True)(*make())
    except Exception as error:
        assert "FB" in str(error)
        return
    raise AssertionError("it is one graph")


def function_of(text):
    """The program that computes an expression of `a`."""
    return eval(f"lambda a: {text}", {"np": numpy, "torch": torch})


def statements(text):
    """The program that runs statements on `a`."""
    scope = {"np": numpy, "torch": torch}
    exec("def run(a):\n    " + "\n    ".join(text.split("; ")), scope)
    return scope["run"]
