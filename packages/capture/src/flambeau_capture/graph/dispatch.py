"""What runs on fakes below transforms of `torch.func` and levels of forward-mode differentiation: views of zeros without memory, and the dispatcher's
state of this thread, put back afterwards.

In: nothing. Out: contexts. Where a run on fakes fails below such a transform, torch words its error with functorch switched off by a variable of the
function that does so. The traceback keeps that: until somebody drops it the thread differentiates nothing, and whatever the thread does then, it gets back
the state in which the run failed.
"""

from __future__ import annotations

import traceback
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from ..library import functools
from .quiet import no_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator


@functools.cache
def _views_of_zeros() -> torch.library.Library:
    """Of zeros without memory, of which forward mode is full, torch takes these views by the kernel itself, past all modes: fakes became tensors of the
    device `meta`. Registered for the process: where there is no mode, that kernel is what comes next."""
    own = torch.library.Library("aten", "IMPL")
    with no_warnings():
        for name in ("view", "as_strided", "_reshape_alias"):
            own.impl(name, torch.library.fallthrough_kernel, "ZeroTensor", allow_override=True)
    return own


@contextmanager
def dispatch_kept() -> Iterator[None]:
    """The included and excluded keys stay as they are now, also where a graph break comes through."""
    _views_of_zeros()
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        try:
            yield
        except Exception as error:
            _forget(error)
            raise


def dispatcher(*, keeps_sizes: bool) -> AbstractContextManager[Any]:
    """What an operation runs in on fakes; `keeps_sizes`: where torch has decompositions in Python that keep symbolic sizes, by these."""
    if forward_ad._current_level >= 0:
        return _in_a_level(keeps_sizes=keeps_sizes)
    return torch._C._EnablePythonDispatcher() if keeps_sizes else nullcontext()


@contextmanager
def _in_a_level(*, keeps_sizes: bool) -> Iterator[None]:
    with dispatch_kept(), torch._C._EnablePythonDispatcher() if keeps_sizes else nullcontext():
        yield


def _forget(error: BaseException | None) -> None:
    """Drop what the functions that an error, and those behind it, went through have in their variables."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
