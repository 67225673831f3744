"""The logger of capture and the names of its events; only `flambeau` (the api package) configures output."""

from __future__ import annotations

from typing import Any, Final

import structlog

logger: Any = structlog.get_logger("flambeau.capture")

FRAME_CAPTURED: Final = "frame_captured"
FRAME_SKIPPED: Final = "frame_skipped"
GRAPH_BREAK: Final = "graph_break"
RECOMPILE: Final = "recompile"
RECOMPILE_LIMIT: Final = "recompile_limit"
GUARDS: Final = "guards"
GRAPH_CODE: Final = "graph_code"
BYTECODE: Final = "bytecode"
FALLBACK: Final = "fallback"
