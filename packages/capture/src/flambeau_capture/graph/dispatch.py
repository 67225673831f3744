"""What runs on fakes below transforms of `torch.func`: views of zeros without memory, and the dispatcher's state of this thread, put back afterwards.

In: nothing. Out: a context. Where a run on fakes fails below such a transform, torch words its error with functorch switched off by a variable of the
function that does so. The traceback keeps that: until somebody drops it the thread differentiates nothing, and whatever the thread does then, it gets back
the state in which the run failed.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ..library import functools
from ..signals import GraphBreak
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
        except GraphBreak as broken:
            _forget(broken)
            raise


def _forget(error: BaseException | None) -> None:
    """Drop what the functions that an error, and those behind it, went through have in their variables."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
