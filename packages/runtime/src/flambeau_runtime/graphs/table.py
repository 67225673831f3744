"""Chooses between the native table and lanes of recordings and their Python twins."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ExtensionError
from ..extension import extension
from .recorder import Recorder
from .table_py import Miss, PyLane, PyTable


def make_table(recorder: Recorder, miss: Miss, inputs: int, *, native: bool) -> Any:
    """A table with no recordings, for a program of that many inputs; the twin where the extension is missing."""
    module = _module(native)
    if module is None:
        return PyTable(recorder, miss, inputs)
    if recorder.asks_itself:
        # The extension asks torch for the stream itself.
        return module.RecordingTable(inputs, miss, torch._C._cuda_isCurrentStreamCapturing, None, recorder.follow)
    return module.RecordingTable(inputs, miss, recorder.unavailable, recorder.stream, recorder.follow)


def make_lane(stream: int, *, native: bool = True) -> Any:
    """A lane of recordings made by work on ``stream``. A native one serves both kinds of table, a twin only its own."""
    module = _module(native)
    return PyLane(stream) if module is None else module.Lane(stream)


def _module(native: bool) -> Any:
    """The extension; None where it is missing or not wanted."""
    try:
        return extension() if native else None
    except ExtensionError:
        return None
