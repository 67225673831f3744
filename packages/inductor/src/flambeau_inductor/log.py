"""The logger of inductor and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: what `send_to` was given (`flambeau` gives a logger of its own); without that, structlog once the
program has configured it; until then the standard library's logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import functools
import importlib
import logging
import random
import sys
from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

NAME: Final = "flambeau.inductor"


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


@frozen(repr=False)
class Text:
    """A value of an event that is put into words only where the event is shown: most events are dropped."""

    make: Callable[[], Any]

    def __repr__(self) -> str:
        return str(self.make())


PASS_DONE: Final = "pass_done"
RULE_APPLIED: Final = "rule_applied"
LIBRARY_CALL: Final = "library_call"
LOWERED: Final = "lowered"
KERNEL_DECLINED: Final = "kernel_declined"
STAGE_BEGUN: Final = "stage_begun"
STAGE_DONE: Final = "stage_done"
STAGE_TEXT: Final = "stage_text"
LOOPS_ORDERED: Final = "loops_ordered"
FUSION: Final = "fusion"
SCHEDULE: Final = "schedule"
ORIGINS: Final = "origins"
POSITIONS: Final = "positions"
MEASURED: Final = "measured"
