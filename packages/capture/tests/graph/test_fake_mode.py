"""The lean fake mode is torch's own in every attribute, and gives way to torch's compiler when that is loaded."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import FunctionType
from typing import Any

import pytest
import torch
from both_ways import assert_equal, eager
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau_capture import make_region
from flambeau_capture.graph import fake_mode, shapes
from flambeau_capture.graph.shape_env import new_shape_env

PROGRAM = """
import sys
import torch
from flambeau_capture.graph.fake_mode import LeanFakeMode, new_fake_mode

mode = new_fake_mode()
assert type(mode) is LeanFakeMode
with mode:
    x = torch.empty(3, 4)
    y = torch.relu(x.softmax(-1) @ x.t() + 1).sum()
    for function in (torch.erf, torch.rsqrt, torch.sigmoid, torch.nn.functional.gelu, torch.special.erfcx):
        assert function(x).shape == (3, 4), function
    assert torch.nn.functional.rms_norm(x, (4,)).shape == (3, 4)
    assert torch.linalg.vecdot(x, x).shape == (3,)
assert y.shape == ()
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert torch._dynamo is sys.modules["torch._dynamo"]
assert torch._dynamo.config._custom_ops_profile is None
assert type(new_fake_mode()) is not LeanFakeMode
with mode:
    assert torch.sigmoid(torch.empty(3)).shape == (3,)
print("ok")
"""

THREADS = """
import threading
import torch
from flambeau_capture.graph.fake_mode import new_fake_mode

def enter():
    with new_fake_mode():
        torch.ones(2)

thread = threading.Thread(target=enter)
thread.start()
thread.join()
reused = [bytes(n) for n in range(24) for _ in range(3000)]
del reused
for _ in range(20):
    enter()
print("ok")
"""


@pytest.mark.skipif(
    not torch.cuda._is_compiled() or torch.cuda.is_available(), reason="torch swaps no guard of CUDA devices"
)
def test_the_thread_of_the_first_mode_may_end() -> None:
    """In a fresh process: what torch keeps for that thread alone is not what later modes use."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "ok", done.stderr


def test_a_norm_drops_its_dimensions() -> None:
    """Some torch keeps those of one element that are named from the back."""
    with fake_mode.new_fake_mode():
        x = torch.empty(2, 1, 1)
        assert torch.linalg.vector_norm(x, 3, -1).shape == (2, 1)
        assert x.norm(dim=(-1, 1)).shape == (2,)
        assert torch.linalg.vector_norm(x, 3, -1, keepdim=True).shape == (2, 1, 1)
    mode = fake_mode.new_fake_mode()
    mode.shape_env, mode.static_shapes = new_shape_env(), False
    with mode:
        assert mode.from_tensor(torch.empty(5, 3, 1)).norm(dim=-1).dim() == 2


def test_dropout_with_symbolic_sizes_keeps_its_dtype() -> None:
    """In inference mode torch runs a formula that takes the default dtype for its numbers."""
    mode = fake_mode.new_fake_mode()
    mode.shape_env, mode.static_shapes = new_shape_env(), False
    values = mode.from_tensor(torch.ones(5, 4, dtype=torch.float32))
    torch.set_default_dtype(torch.float64)
    try:
        with mode, torch.inference_mode():
            dropped = torch.alpha_dropout(values, 0.5, True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert dropped.dtype == torch.float32


@pytest.mark.parametrize("shrink", [torch.nn.functional.softshrink, torch.nn.functional.hardshrink])
def test_every_size_has_a_derivative_where_small_elements_are_dropped(shrink: Any) -> None:
    """Torch's own fakes of these take plain sizes only."""
    mode = fake_mode.new_fake_mode()
    mode.shape_env, mode.static_shapes = new_shape_env(), False
    x = mode.from_tensor(torch.empty(5, 4).t().requires_grad_())
    with mode:
        (gradient,) = torch.autograd.grad(shrink(x).sum(), x)
    assert gradient.stride() == x.stride()
    assert isinstance(x.shape[0], torch.SymInt)


def test_attributes_are_those_of_torch() -> None:
    """Same names and, but for fresh objects, same values."""
    lean, full = vars(fake_mode.LeanFakeMode()), vars(FakeTensorMode())
    assert lean.keys() == full.keys()
    fresh = {"_stack_trace", "fake_tensor_converter", "old_dispatch_mode_flags"}
    assert {k: v for k, v in lean.items() if k not in fresh} == {k: v for k, v in full.items() if k not in fresh}


def test_another_initialiser_means_the_ordinary_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that stores other attributes is not imitated."""
    fake_mode._known_initialiser.cache_clear()
    monkeypatch.setattr(fake_mode, "_ATTRIBUTES", frozenset({"something_else"}))
    try:
        assert type(fake_mode.new_fake_mode()) is fake_mode.CorrectedFakeMode
    finally:
        fake_mode._known_initialiser.cache_clear()


def test_the_compiler_is_not_loaded_until_it_is_asked_for() -> None:
    """In a fresh process: ops run on fakes without the package; importing it later gives the real one."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "ok", done.stderr


def test_every_reference_defers_its_exclusion() -> None:
    """However many wrappers lie over it: none of torch's references would load the package."""
    fake_mode._defer_exclusions()
    gc.unfreeze()  # frozen objects are not listed
    excluded = [
        function
        for function in gc.get_objects()
        if type(function) is FunctionType
        and function.__code__.co_filename == fake_mode._EXCLUDER
        and function.__module__.startswith(("torch._refs", "torch._decomp"))
    ]
    assert len(excluded) > 50
    for function in excluded:
        assert hasattr(fake_mode._closure_of(function)["fn"], fake_mode._EXCLUSION), function


@pytest.mark.parametrize(
    "make",
    [lambda x: x, lambda x: x * 1, lambda x: x.view(-1), lambda x: (x * 1).view(-1), lambda x: x[0].view(-1)],
    ids=["leaf", "result", "view of a leaf", "view of a result", "view of a view"],
)
def test_what_may_be_written_is_what_eager_lets_be_written(make):
    """Its stand-in has a history to be written in."""
    tensor = make(torch.ones(2, 3, requires_grad=True))
    expected = shapes._may_be_written(tensor)
    try:
        tensor.add_(1)
    except RuntimeError:
        assert not expected
    else:
        assert expected


@pytest.mark.parametrize("shape", [(4,), (3, 2), (0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        lambda x: torch.unique(x, return_inverse=True, return_counts=True, dim=0),
        lambda x: torch.unique(x, dim=0),
        lambda x: torch.unique(x, return_counts=True),
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0),
    ],
)
def test_different_elements_are_counted_in_whole_numbers(function, dtype, shape):
    x = torch.ones(shape, dtype=dtype)

    def kinds(x):
        found = function(x)
        found = found if isinstance(found, tuple) else (found,)
        return [(part.dtype, part.ndim) for part in found], [part + 0 for part in found]

    (told, parts), (wanted, expected) = make_region(kinds, eager, fullgraph=True)(x), kinds(x)
    assert told == wanted
    assert_equal(parts, expected)
