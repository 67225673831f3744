"""Kernels of this folder run under Triton's interpreter: it is chosen before Triton is imported."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest

from flambeau_inductor.codegen.triton import kernel
from flambeau_inductor.kernel_ir import Kernel
from flambeau_inductor.kernel_ir.verify import verify
from flambeau_runtime.workers import triton_task

if triton_task.interpreter_loaded() is None:
    try:
        triton_task.import_interpreter()
    except ImportError:
        pass


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel that a test generates is checked before it is printed."""
    build = kernel.Generator.kernel

    def checked(generator: kernel.Generator) -> Kernel:
        found = build(generator)
        verify(found)
        return found

    monkeypatch.setattr(kernel.Generator, "kernel", checked)
