"""Kernels of this folder are checked in the kernel IR before they are printed."""

from __future__ import annotations

import pytest

from flambeau_inductor.codegen.cpp.generate import KernelWriter
from flambeau_inductor.kernel_ir import Kernel
from flambeau_inductor.kernel_ir.verify import verify


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel that a test generates."""
    build = KernelWriter.kernel

    def checked(writer: KernelWriter) -> Kernel:
        found = build(writer)
        verify(found)
        return found

    monkeypatch.setattr(KernelWriter, "kernel", checked)
