"""Settings of torch that a program changes: in force for what follows, in the graph too, and as in eager afterwards, also where something raises."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def _settings():
    return (
        torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        torch._C._get_flash_sdp_enabled(), torch._C._get_math_sdp_enabled(), torch._C._get_mkldnn_enabled(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _put_back():
    before = _settings()
    yield
    _put(before)


def _put(before):
    torch.set_default_dtype(before[0])
    torch.use_deterministic_algorithms(before[1], warn_only=before[2])
    torch._C._set_sdp_use_flash(before[3])
    torch._C._set_sdp_use_math(before[4])
    torch._C._set_mkldnn_enabled(before[5])


def _dtype_kept(x):
    torch.set_default_dtype(torch.float64)
    try:
        return x + torch.ones(4) * 0.1, torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)


def _dtype_left(x):
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(4), torch.arange(3) / 2, torch.get_default_dtype()


def _dtype_refused(x):
    y = x + 1
    try:
        torch.set_default_dtype(torch.int32)
    except TypeError as error:
        return y, str(error)
    return y


def _deterministic(x):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    out = torch.zeros(3).index_add(0, torch.tensor([0, 1, 1]), x[0, :3])
    inside = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(before)
    return out, inside


def _debug_mode(x):
    torch.set_deterministic_debug_mode("warn")
    return x * 2, torch.get_deterministic_debug_mode()


def _attention(x):
    torch.backends.cuda.enable_math_sdp(False)
    inside = torch.backends.cuda.math_sdp_enabled()
    y = x + 1
    torch.backends.cuda.enable_math_sdp(True)
    return y, inside, torch.backends.cuda.math_sdp_enabled()


def _mkldnn(x):
    torch._C._set_mkldnn_enabled(not torch._C._get_mkldnn_enabled())
    return x + 1, torch._C._get_mkldnn_enabled()


PROGRAMS = [
    _dtype_kept, _dtype_left, _dtype_refused, _deterministic, _debug_mode, _attention, _mkldnn,
]  # fmt: skip


def _observed(function, x):
    before = _settings()
    try:
        return outcome(function, x), x, _settings()
    finally:
        _put(before)


def _compare(function, region, x):
    assert_equal(_observed(region, x.clone()), _observed(function, x.clone()))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph_sets_them_as_the_program_does(program):
    """And what the program leaves changed is so afterwards; a call in other settings is judged anew."""
    region = make_region(program, eager, fullgraph=True)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for _ in range(2):
        _compare(program, region, x)
    torch.set_default_dtype(torch.float64)
    torch._C._set_sdp_use_math(False)
    torch._C._set_mkldnn_enabled(False)
    _compare(program, region, x)


def _raises(x):
    torch.set_default_dtype(torch.float64)
    y = x.index_select(0, torch.tensor([7]))
    torch.set_default_dtype(torch.float32)
    return y


def _raises_behind_a_write(x):
    x.add_(1)
    return _raises(x)


def _handles(x):
    torch.set_default_dtype(torch.float64)
    try:
        return x.index_select(0, torch.tensor([7]))
    except IndexError:
        return torch.ones(2)
    finally:
        torch.set_default_dtype(torch.float32)


def _raises_itself(x):
    torch.set_default_dtype(torch.float64)
    raise ValueError(x.dtype)


def _breaks(x):
    torch.set_default_dtype(torch.float64)
    print(end="")
    return torch.ones(3), x


@pytest.mark.parametrize(
    "program",
    [_raises, _raises_behind_a_write, _handles, _raises_itself, _breaks],
    ids=lambda program: program.__name__,
)
def test_where_something_raises_or_breaks_they_are_as_in_eager(program):
    """As the program had set them by then."""
    region = make_region(program, eager)
    for _ in range(2):
        _compare(program, region, torch.ones(3))
