"""The logger of this package and the names of its events."""

from __future__ import annotations

import logging
from typing import Any

import structlog

CACHE_HIT = "cache hit"
CACHE_MISS = "cache miss"
CACHE_CORRUPT = "cache entry is corrupt and was removed"
CACHE_UNWRITABLE = "cache folder cannot be written; entries stay in memory"
CACHE_EVICTED = "cache evicted entries"
COMPILED = "compiled a library"
COMPILER_UNAVAILABLE = "no working C++ compiler; library calls are used instead of fused kernels"


_SILENT = structlog.make_filtering_bound_logger(logging.WARNING)


def get_logger(artifact: str | None = None) -> Any:
    """The structlog logger ``flambeau.runtime``; ``artifact`` is the log artifact its events belong to.

    Where nobody configured structlog, only warnings are shown.
    """
    logger = structlog.get_logger("flambeau.runtime")
    if not structlog.is_configured():
        logger = structlog.wrap_logger(None, wrapper_class=_SILENT)
    return logger if artifact is None else logger.bind(artifact=artifact)
