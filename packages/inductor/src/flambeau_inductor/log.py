"""Event names of inductor's log. Libraries log, applications configure: nothing is set up here."""

from __future__ import annotations

import structlog

logger: structlog.stdlib.BoundLogger = structlog.get_logger("flambeau.inductor")

PASS_DONE = "pass_done"
LIBRARY_CALL = "library_call"
LOWERED = "lowered"
STAGE_DONE = "stage_done"
