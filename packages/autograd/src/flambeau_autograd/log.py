"""The logger of the package and the names of its events."""

from __future__ import annotations

from typing import Any

import structlog

TRACED = "autograd.traced"
PASS = "autograd.pass"
PARTITIONED = "autograd.partitioned"
NATIVE_MISSING = "autograd.native_missing"


def logger() -> Any:
    """The structlog logger `flambeau.autograd`."""
    return structlog.get_logger("flambeau.autograd")
