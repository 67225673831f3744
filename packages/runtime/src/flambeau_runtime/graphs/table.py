"""Chooses between the native table of recordings and its Python twin."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ExtensionError
from ..native import extension
from .recorder import Recorder
from .table_py import Miss, PyTable


def make_table(recorder: Recorder, miss: Miss, inputs: int, *, native: bool) -> Any:
    """A table with no recordings, for a program of that many inputs; the twin where the extension is missing."""
    if not native:
        return PyTable(recorder, miss, inputs)
    try:
        module = extension()
    except ExtensionError:
        return PyTable(recorder, miss, inputs)
    if recorder.device == "cuda":
        # The extension asks torch for the stream itself.
        return module.RecordingTable(inputs, miss, torch._C._cuda_isCurrentStreamCapturing, None, recorder.follow)
    return module.RecordingTable(inputs, miss, recorder.unavailable, recorder.stream, recorder.follow)
