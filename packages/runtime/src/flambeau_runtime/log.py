"""The logger of runtime and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: what `send_to` was given (`flambeau` gives a logger of its own); without that, structlog once the
program has configured it; until then the standard library's logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import functools
import importlib
import logging
import random
import sys
from typing import Any, Final

NAME: Final = "flambeau.runtime"


class _Logger:
    """Asks at every event where it goes, so that the order of imports and configuration does not matter."""

    destination: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.destination or _by_configuration(), name)


logger: Any = _Logger()


def load_structlog() -> Any:
    """structlog, loaded for the first event that goes there: it loads rich where that is installed, for tens of milliseconds.

    Python's generator stays as it is: rich draws from it as it is loaded.
    """
    numbers = random.getstate()
    try:
        return importlib.import_module("structlog")
    finally:
        random.setstate(numbers)


@functools.cache
def _loggers() -> tuple[Any, Any]:
    """structlog's logger, and the one for as long as the program has not configured structlog."""
    structlog = load_structlog()
    unconfigured = structlog.wrap_logger(
        logging.getLogger(NAME),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return structlog.get_logger(NAME), unconfigured


def _by_configuration() -> Any:
    configured, unconfigured = _loggers()
    return configured if sys.modules["structlog"].is_configured() else unconfigured


def send_to(destination: Any) -> None:
    """Give every event to `destination`, a logger as structlog's are, whatever the program configures; None: as without."""
    logger.destination = destination


CACHE_HIT: Final = "cache hit"
CACHE_MISS: Final = "cache miss"
CACHE_CORRUPT: Final = "cache entry is corrupt and was removed"
CACHE_UNWRITABLE: Final = "cache folder cannot be written; entries stay in memory"
CACHE_UNTRUSTED: Final = (
    "the cache folder {folder} is not used, entries stay in memory: {reason} "
    "(what lies there is loaded and run; FLAMBEAU_CACHE_SHARED=1 uses it all the same)"
)
CACHE_FOREIGN: Final = "a cache entry that others put there, or may change, is not read"
SCRATCH_REFUSED: Final = "the folder for temporary files is not used to build kernels"
CACHE_EVICTED: Final = "cache evicted entries"
FOLDED: Final = "what follows from frozen inputs was computed"
FOLDED_OFTEN: Final = "frozen inputs change often; a program without freezing would do less"
COMPILED: Final = "compiled a library"
COMPILER_BROKE: Final = "the C++ compiler broke down; a library is compiled again with fewer optimisations"
COMPILER_UNAVAILABLE: Final = "no working C++ compiler; library calls are used instead of fused kernels"
