"""Loads of the lanes that a row has, from several arrays in one kernel: each array's own, whatever the compiler makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph


def _cpu_has(feature):
    info = Path("/proc/cpuinfo")
    return info.exists() and feature in info.read_text().split()


@pytest.mark.parametrize("width", [3, 7, 9, 15])
@pytest.mark.parametrize("machine", ["native", "haswell"])
def test_parts_of_a_concatenation(machine, width, monkeypatch):
    """With the registers of this machine, and with those of AVX2, which loads some lanes by another instruction."""
    if machine == "haswell" and not (_cpu_has("avx2") and _cpu_has("fma")):
        pytest.skip("this machine cannot run AVX2")
    monkeypatch.setenv("FLAMBEAU_CXXFLAGS", f"-march={machine}")
    inputs = [torch.arange(4.0 * width).reshape(4, width) + 100 * part for part in range(1, 4)]

    def function(*parts):
        return torch.cat(parts)

    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    assert torch.equal(run(*inputs)[0], function(*inputs))
