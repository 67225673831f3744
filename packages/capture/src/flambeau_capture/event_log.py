"""The logger of a package and where its events go. Packages that import no sibling carry this file, word for word.

In: events with key-value pairs. Out: what `send_to` was given (`flambeau` gives a logger of its own); without that, structlog once the
program has configured it; until then the standard library's logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import importlib
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter  # as it was first: a program may put one of its own there
from typing import Any, Final

from attrs import frozen

STAGE_BEGUN: Final = "stage_begun"
STAGE_ENDED: Final = "stage_ended"


def load_structlog() -> Any:
    """structlog, loaded for the first event that goes there: it loads rich where that is installed, for tens of milliseconds.

    Python's generator stays as it is: rich draws from it as it is loaded.
    """
    numbers = random.getstate()
    try:
        return importlib.import_module("structlog")
    finally:
        random.setstate(numbers)


class EventLogger:
    """Asks at every event where it goes, so that the order of imports and configuration does not matter.

    Args:
        name: of the loggers of structlog and of the standard library.
    """

    _destination: Any = None
    _made: Any = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(self._destination or self._by_configuration(), method)

    def send_to(self, destination: Any) -> None:
        """Give every event to `destination`, a logger as structlog's are, whatever the program configures; None: as without."""
        self._destination = destination

    def asks_for(self, artifact: str) -> bool:
        """Whether the destination was asked for an artifact by name: one of so many events that making them to be dropped would take long."""
        asks = getattr(self._destination, "asks_for", None)
        return asks is not None and bool(asks(artifact))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Log when a stage begins, and how long it took."""
        self.debug(STAGE_BEGUN, stage=name)
        started = perf_counter()
        try:
            yield
        finally:
            self.debug(STAGE_ENDED, stage=name, seconds=perf_counter() - started)

    def _by_configuration(self) -> Any:
        if self._made is None:
            structlog = load_structlog()
            processors = [structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])]
            wrapper = structlog.stdlib.BoundLogger
            plain = structlog.wrap_logger(logging.getLogger(self._name), processors=processors, wrapper_class=wrapper)
            self._made = structlog, structlog.get_logger(self._name), plain
        structlog, configured, plain = self._made
        return configured if structlog.is_configured() else plain


@frozen(repr=False)
class Text:
    """A value of an event that is put into words only where the event is shown: most events are dropped."""

    make: Callable[[], Any]

    def __repr__(self) -> str:
        return str(self.make())
