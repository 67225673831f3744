"""What runs the command in this process."""

from __future__ import annotations

import inspect

import pytest
from click.testing import CliRunner


@pytest.fixture
def runner() -> CliRunner:
    """Keeps what is printed and the messages apart, as click 8.2 always does."""
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart)
