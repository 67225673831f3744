"""What a worker does with a source text, as far as no Triton is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from flambeau_runtime import triton_interpreter
from flambeau_runtime.triton_kernels import run_interpreted
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


@pytest.mark.parametrize(
    ("name", "wanted"), [("tan", math.tan), ("expm1", math.expm1), ("rint", round), ("erf", math.erf)]
)
def test_the_device_library_computes(name: str, wanted: Callable[[float], float]) -> None:
    """Each function of one operand by the one of its name."""
    pytest.importorskip("triton")
    text = f"""
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(y + index, libdevice.{name}(tl.load(x + index)))
"""
    x, y = torch.tensor([0.25, -0.5, 1.5, 2.5]), torch.zeros(4)
    run_interpreted(text, "kernel", (1, 1, 1), {"x": x, "y": y, "BLOCK": 4})
    torch.testing.assert_close(y, torch.tensor([float(wanted(value)) for value in x.tolist()]))
