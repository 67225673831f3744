"""Whole frames through capture: graph breaks in every kind of construct leave results, prints and exceptions as in plain Python."""

from __future__ import annotations

import contextlib
import copy
import io

import pytest
import torch

from flambeau_capture import make_region

from .programs import PROGRAMS
from .tensor_programs import TENSOR_PROGRAMS
from .test_every_cut import describe, outcome


def eager(gm, inputs):
    return gm.forward


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda v: getattr(v, "__name__", None))
def test_plain_programs(function, args):
    region = make_region(function, eager)
    expected = outcome(function, args)
    for _ in range(3):
        assert outcome(region, args) == expected


def tensor_outcome(function, args):
    args = copy.deepcopy(args)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = function(*args)
        except Exception as error:
            result = describe(error)
    return out.getvalue(), show(result), show(args)


def show(value):
    """Plain data that compares exactly; tensors as type, shape and elements."""
    if isinstance(value, torch.nn.Module):
        return {name: show(v) for name, v in (*value.state_dict().items(), ("calls", value.calls))}
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.requires_grad, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)(show(v) for v in value)
    if isinstance(value, dict):
        return {k: show(v) for k, v in value.items()}
    return {k: show(v) for k, v in vars(value).items()} if hasattr(value, "__dict__") else value


@pytest.mark.parametrize(("function", "args"), TENSOR_PROGRAMS, ids=lambda v: getattr(v, "__name__", None))
def test_tensor_programs(function, args):
    region = make_region(function, eager)
    torch.manual_seed(0)
    expected = tensor_outcome(function, args)
    for _ in range(3):
        torch.manual_seed(0)
        got = tensor_outcome(region, args)
        assert got == expected
