"""A compile leaves the process as it found it: recursion limit, collector, loggers, grad mode, warnings, default device and dtype."""

from __future__ import annotations

import gc
import logging
import sys
import warnings

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region


def _state():
    return {
        "recursion limit": sys.getrecursionlimit(),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "filters of loggers": {
            name: list(logger.filters)
            for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger)
        },
        "handlers": list(logging.root.handlers),
        "warnings": list(warnings.filters),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "hooks": (sys.excepthook, sys.displayhook),
        "grad": torch.is_grad_enabled(),
        "dtype and device": (torch.get_default_dtype(), torch.get_default_device()),
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
    }


def _fails(graph, inputs):
    raise RuntimeError("of the backend")


def _raises(x):
    y = x + 1
    raise ValueError(y.shape[0])


def _breaks(x):
    y = x + 1
    id(object())
    return y * 2


@pytest.mark.parametrize("backend", [eager, _fails], ids=["works", "fails"])
@pytest.mark.parametrize("function", [lambda x: x + 1, _breaks, _raises], ids=["graph", "break", "exception"])
def test_a_compile_leaves_no_trace(function, backend):
    make_region(lambda x: x * 2, eager)(torch.ones(2))  # what is imported on first use is no state
    seen = []

    def looking(graph, inputs):
        seen.append(_state())
        return backend(graph, inputs)

    before = _state()
    region = make_region(function, looking)
    try:
        region(torch.ones(3))
    except Exception as error:
        assert not isinstance(error, RecursionError)
    assert _state() == before
    assert seen, "the backend was asked"
    assert all(found["recursion limit"] == before["recursion limit"] for found in seen), "raised while tracing alone"


def test_the_recursion_limit_of_the_program_is_kept():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 123)
    try:
        make_region(lambda x: x + 1, eager)(torch.ones(2))
        assert sys.getrecursionlimit() == before + 123
    finally:
        sys.setrecursionlimit(before)
