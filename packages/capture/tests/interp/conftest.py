"""Captured programs print; the log stays out of their output."""

from __future__ import annotations

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet_log():
    """Only errors are logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()
