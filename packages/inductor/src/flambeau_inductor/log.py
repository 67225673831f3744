"""The logger of inductor and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: what `send_to` was given (`flambeau` gives a logger of its own); without that, structlog once the
program has configured it; until then the standard library's logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import structlog
from attrs import frozen

NAME: Final = "flambeau.inductor"

_CONFIGURED: Any = structlog.get_logger(NAME)
_UNCONFIGURED: Any = structlog.wrap_logger(
    logging.getLogger(NAME),
    processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
    wrapper_class=structlog.stdlib.BoundLogger,
)


class _Logger:
    """Asks at every event where it goes, so that the order of imports and configuration does not matter."""

    destination: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.destination or (_CONFIGURED if structlog.is_configured() else _UNCONFIGURED), name)


logger: Any = _Logger()


def send_to(destination: Any) -> None:
    """Give every event to `destination`, a logger as structlog's are, whatever the program configures; None: as without."""
    logger.destination = destination


@frozen(repr=False)
class Text:
    """A value of an event that is put into words only where the event is shown: most events are dropped."""

    make: Callable[[], str]

    def __repr__(self) -> str:
        return self.make()


PASS_DONE: Final = "pass_done"
RULE_APPLIED: Final = "rule_applied"
LIBRARY_CALL: Final = "library_call"
LOWERED: Final = "lowered"
KERNEL_DECLINED: Final = "kernel_declined"
STAGE_DONE: Final = "stage_done"
STAGE_TEXT: Final = "stage_text"
FUSION: Final = "fusion"
MEASURED: Final = "measured"
