"""The logger of capture and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: structlog once the program (or `flambeau`) has configured it; until then the standard library's
logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

NAME: Final = "flambeau.capture"


class _Plain:
    """The standard library's logger with structlog's way of calling."""

    def __init__(self) -> None:
        self.logger = logging.getLogger(NAME)

    def debug(self, event: str, **values: Any) -> None:
        """An event for those who look for it."""
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, **values: Any) -> None:
        """An event worth knowing."""
        self._log(logging.INFO, event, values)

    def warning(self, event: str, **values: Any) -> None:
        """An event that costs the user something."""
        self._log(logging.WARNING, event, values)

    def _log(self, level: int, event: str, values: dict[str, Any]) -> None:
        if self.logger.isEnabledFor(level):
            self.logger.log(level, "%s %s", event, " ".join(f"{name}={value}" for name, value in values.items()))


class _Logger:
    """Asks at every event which of the two it is, so that the order of imports and configuration does not matter."""

    def __init__(self) -> None:
        self.plain = _Plain()
        self.structured: Any = structlog.get_logger(NAME)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.structured if structlog.is_configured() else self.plain, name)


logger: Any = _Logger()

FRAME_CAPTURED: Final = "frame_captured"
FRAME_SKIPPED: Final = "frame_skipped"
GRAPH_BREAK: Final = "graph_break"
RECOMPILE: Final = "recompile"
RECOMPILE_LIMIT: Final = "recompile_limit"
GUARDS: Final = "guards"
GRAPH_CODE: Final = "graph_code"
BYTECODE: Final = "bytecode"
FALLBACK: Final = "fallback"
