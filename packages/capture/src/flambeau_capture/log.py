"""The logger of capture and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: structlog once the program (or `flambeau`) has configured it; until then the standard library's
logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import structlog
from attrs import frozen

NAME: Final = "flambeau.capture"

_CONFIGURED: Any = structlog.get_logger(NAME)
_UNCONFIGURED: Any = structlog.wrap_logger(
    logging.getLogger(NAME),
    processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
    wrapper_class=structlog.stdlib.BoundLogger,
)


class _Logger:
    """Asks at every event which of the two it is, so that the order of imports and configuration does not matter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_CONFIGURED if structlog.is_configured() else _UNCONFIGURED, name)


logger: Any = _Logger()


@frozen(repr=False)
class Text:
    """A value of an event that is put into words only where the event is shown: most events are dropped."""

    make: Callable[[], str]

    def __repr__(self) -> str:
        return self.make()


GRAPH_BREAK: Final = "graph_break"
RECOMPILE: Final = "recompile"
RECOMPILE_LIMIT: Final = "recompile_limit"
GUARDS: Final = "guards"
FALLBACK: Final = "fallback"
RECOMPILE_FAILURES: Final = "recompile_failures"
BYTECODE: Final = "bytecode"
SIDE_EFFECTS: Final = "side_effects"
DYNAMIC: Final = "dynamic_shapes"
