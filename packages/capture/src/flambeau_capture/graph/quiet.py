"""Keeps torch's fake tensors from writing to the user's log what a trace handles itself.

In: nothing. Out: a context. An op that a fake tensor cannot run (its size would have to be known) ends the graph, which the break report
says; torch logs the traceback as an error besides, before it raises. Records of other threads, and of other loggers, pass.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def quiet_fakes() -> Iterator[None]:
    """Within it, this thread's fake tensors raise without a word."""
    own = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != own

    _LOGGER.addFilter(passes)
    try:
        yield
    finally:
        _LOGGER.removeFilter(passes)
