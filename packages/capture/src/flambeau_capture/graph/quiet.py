"""Keeps torch from telling the user what it only meets in a trace: fakes from writing to the log, operators from warning.

In: nothing. Out: contexts. An op that a fake tensor cannot run (its size would have to be known) ends the graph, which the break report
says; torch logs the traceback as an error besides, before it raises. Records of other threads, and of other loggers, pass.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..library import threading

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


_NOTHING: Any = ("ignore", None, Warning, None, 0)


@contextmanager
def no_warnings() -> Iterator[None]:
    """Within it, nothing warns: the program's own call does. `warnings.catch_warnings` would make Python forget which warnings it has shown."""
    before = warnings.filters
    warnings.filters = [_NOTHING]
    try:
        yield
    finally:
        warnings.filters = before
