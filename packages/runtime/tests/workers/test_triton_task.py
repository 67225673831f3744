"""What a worker does with a source text, as far as no Triton is needed."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau_runtime import triton_interpreter
from flambeau_runtime.workers.triton_task import interpret_entry, load_entry

INTERPRETED = """
class Interpreted:
    def __init__(self, fn):
        self.fn = fn

    def __getitem__(self, grid):
        return self.fn

@Interpreted
def kernel(seen):
    seen.append(libdevice.sqrt)
"""


def test_a_text_is_run_once() -> None:
    """The function of the name that is asked for; the same text gives the same one."""
    text = "def one():\n    return 1\n\ndef two():\n    return 2\n"
    assert load_entry(text, "two")() == 2 and load_entry(text, "two") is load_entry(text, "two")


def test_interpreted_kernels_find_the_device_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name that generated modules import."""
    monkeypatch.setattr(triton_interpreter, "install", lambda: None)
    seen: list[Any] = []
    interpret_entry(INTERPRETED, "kernel", (1, 1, 1), {"seen": seen})
    assert len(seen) == 1 and callable(seen[0])
