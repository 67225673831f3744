"""Triton kernels of a program, as far as no GPU is needed: what is handed to the compilers, and how often."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from flambeau_runtime.artifact import Artifact, Kernel, Library, Program
from flambeau_runtime.cache import Store
from flambeau_runtime.device import kernels
from flambeau_runtime.triton_kernels import CompileRequest

SOURCE = "import triton\n\n@triton.jit\ndef copy(x, y):\n    pass\n"
META = {"signature": {"x": "*fp32", "y": "*fp32"}, "constexprs": {}, "divisible": ["x", "y"]}


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[CompileRequest]:
    """The requests that reach the compilers, for a device of capability 9.0."""
    seen: list[CompileRequest] = []

    def submit(requests: list[CompileRequest], store: Store) -> list[Future[Any]]:
        seen.extend(requests)
        futures = [Future[Any]() for _ in requests]
        for future in futures:
            future.set_result(object())
        return futures

    monkeypatch.setattr(kernels, "submit_stored", submit)
    monkeypatch.setattr(kernels, "capability", lambda ordinal=None: 90)
    return seen


def _artifact() -> Artifact:
    return Artifact(
        Program([], 0, 0, [], []), [Library("t", "triton", SOURCE)], [Kernel("copy", 0, "copy", 2, 0, meta=META)]
    )


def test_compiling_starts_for_the_current_device(submitted: list[CompileRequest], store: Store) -> None:
    kernels.start_compiling(_artifact(), store)
    assert [(request.entry, request.arch) for request in submitted] == [("copy", 90)]


def test_a_kernel_is_compiled_once_for_each_promise_and_architecture(
    submitted: list[CompileRequest], store: Store
) -> None:
    """The one that is expected already is not compiled again."""
    kernel = kernels.bind_kernels(_artifact(), store)[0]
    del submitted[:]
    found = [kernel.cubin(divisible, arch) for _ in range(2) for divisible in (True, False) for arch in (90, 80)]
    assert [(bool(request.divisible), request.arch) for request in submitted] == [(True, 80), (False, 90), (False, 80)]
    assert found[:4] == found[4:] and len(set(map(id, found))) == 4
