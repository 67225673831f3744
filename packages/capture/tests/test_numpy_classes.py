"""Which of NumPy's objects are constants, what arrays become tensors, and a process without NumPy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from flambeau_capture.numpy_classes import (
    DTYPES,
    as_array,
    as_scalar,
    as_tensor,
    fresh_copy,
    is_numpy_constant,
    offset_in,
    view_of,
)


def test_constants():
    assert all(
        is_numpy_constant(each)
        for each in (np.float32(2), np.bool_(True), np.complex64(1), np.dtype("f4"), np.dtype(bool))
    )
    assert not any(
        is_numpy_constant(each)
        for each in (
            np.str_("a"),
            np.uint16(1),
            np.longdouble(1),
            np.dtype(">f4"),
            np.dtype("U2"),
            np.ones(1),
            2.0,
            bool,
        )
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_and_tensors_lie_in_one_memory(dtype):
    array = np.ones((2, 3), dtype)[:, 1:]
    tensor = as_tensor(array)
    assert tensor.dtype is DTYPES[dtype]
    assert tensor.stride() == (3, 1)
    tensor.zero_()
    assert not array.any()
    assert np.shares_memory(as_array(tensor), array)
    assert type(as_scalar(tensor[0, 0])) is dtype.type


@pytest.mark.parametrize(
    "array",
    [
        np.ones(2).view(np.recarray),
        np.broadcast_to(1.0, 2),
        np.ones(2, ">f4"),
        np.ones(2, "u2"),
        np.array(["a"]),
        np.ones(3)[::-1],
        1.0,
    ],
    ids=str,
)
def test_what_is_no_tensor(array):
    with pytest.raises((TypeError, ValueError)):
        as_tensor(array)


@pytest.mark.parametrize("order", ["C", "F"])
def test_views_are_made_again(order):
    root = np.arange(12.0).reshape((3, 4), order=order)
    view = root[1:, ::2]
    copy = fresh_copy(root)
    again = view_of(copy, offset_in(root, view), view.shape, view.strides, view.dtype)
    assert copy.strides == root.strides
    assert (again == view).all()
    assert np.shares_memory(again, copy)
    assert not np.shares_memory(again, root)


def test_a_process_without_numpy():
    """Tensors are compiled as ever."""
    code = (
        "import sys, warnings; sys.modules['numpy'] = None; warnings.simplefilter('ignore')\n"
        "import torch\nfrom flambeau_capture import make_region\n"
        "print(make_region(lambda x: x * 2 + 1, lambda graph, inputs: graph.forward, fullgraph=True)(torch.ones(2)).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[3.0, 3.0]", done.stderr
    assert torch.ones(1).numpy().size
