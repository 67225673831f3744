"""Chooses between the native table of recordings and its Python twin."""

from __future__ import annotations

from typing import Any

from .recorder import Recorder
from .table_py import Miss, PyTable


def make_table(recorder: Recorder, miss: Miss, inputs: int, *, native: bool) -> Any:
    """A table with no recordings, for a program of that many inputs."""
    return PyTable(recorder, miss, inputs)
