"""Captured programs print; the log stays out of their output."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quiet(quiet_log):
    return quiet_log
