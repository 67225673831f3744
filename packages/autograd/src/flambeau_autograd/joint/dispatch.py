"""The dispatcher's state of this thread, put back after a trace.

In: nothing. Out: a context. Where a run on fakes fails below a transform of `torch.func`, torch words its error with functorch switched off by a
variable of the function that does so. The traceback keeps that: until somebody drops it, the thread differentiates nothing, and whatever it
does then, it gets back the state in which the run failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def dispatch_kept() -> Iterator[None]:
    """The included and excluded keys stay as they are now, also where an error comes through."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        try:
            yield
        except Exception as error:
            _forget(error)
            raise


def _forget(error: BaseException | None) -> None:
    """Drop what the functions that an error, and those behind it, went through have in their variables."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
