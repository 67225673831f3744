"""What ran below a transform, and failed, leaves nothing behind in the thread."""

from __future__ import annotations

import gc

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from flambeau_capture.graph.dispatch import dispatch_kept
from flambeau_capture.signals import GraphBreak


def state():
    return str(torch._C._dispatch_tls_local_include_set()), str(torch._C._dispatch_tls_local_exclude_set())


def worded():
    guard = torch._C._DisableFuncTorch()
    raise RuntimeError(f"below {guard}")


def test_a_guard_in_a_traceback_is_let_go():
    before, kept = state(), []
    try:
        with dispatch_kept():
            try:
                worded()
            except RuntimeError as error:
                raise GraphBreak("operator-error", "it raised") from error
    except GraphBreak as broken:
        kept.append(broken)
    assert state() == before
    kept.clear()
    gc.collect()
    assert state() == before


def test_a_guard_in_a_traceback_would_stay():
    before = state()
    with pytest.raises(RuntimeError) as caught:
        worded()
    assert state() != before
    del caught
    gc.collect()
    assert state() == before


@pytest.mark.parametrize("view", [lambda z: z.view(12), lambda z: z.reshape(3, 4), lambda z: z.as_strided((2,), (1,))])
def test_views_of_zeros_without_memory_are_fakes(view):
    with dispatch_kept(), FakeTensorMode():
        fake = view(torch._efficientzerotensor((4, 3)))
    real = view(torch._efficientzerotensor((4, 3)))
    assert type(fake) is FakeTensor
    assert fake._is_zerotensor() and real._is_zerotensor()
    assert (fake.shape, fake.stride(), str(fake.device)) == (real.shape, real.stride(), "cpu")
    assert (real * torch.inf).equal(torch.zeros(real.shape))
