"""Stores past the caches: the same values arrive, whatever the type and wherever a row begins; what a kernel has read is stored as ever."""

from __future__ import annotations

import pytest
import torch
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_inductor.codegen.cpp import statements


def compiled(function, *inputs):
    """The text of its kernels and what it answers."""
    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    return artifact.libraries[0].source.partition('extern "C"')[2], run(*inputs)


def everything_is_far(machine, monkeypatch):
    """Kernels of any size go past the caches."""
    if machine == "haswell" and not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("this machine cannot run AVX2")
    monkeypatch.setattr(statements, "LARGE", 0)
    monkeypatch.setenv("FLAMBEAU_CXXFLAGS", f"-march={machine} -DFB_FAR_BYTES=0")


@pytest.mark.parametrize(("machine", "columns"), [("native", 64), ("native", 331), ("haswell", 331), ("x86-64", 64)])
def test_values(machine, columns, monkeypatch):
    """Rows that begin at a whole register, and others; each type, sums of rows and columns, and a transposed store."""
    everything_is_far(machine, monkeypatch)
    x = torch.randn(37, columns)

    def function(x, half, other, whole):
        return (
            x + 1, half * 2 + 1, other - 1, whole + 1, x > 0, x.double() * 2, torch.softmax(x, -1), torch.softmax(half, -1), x.sum(-1), x.sum(0),
            (x * 2).t().contiguous(), torch.cumsum(x, 1),
        )  # fmt: skip

    inputs = x, x.bfloat16(), x.half(), (x * 100).long()
    text, found = compiled(function, *inputs)
    assert "whole_lines" not in text
    assert "store_far(far" in text and "fb::streamed(far);" in text and "store_two_far(far" in text
    for ours, theirs in zip(found, function(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_was_read_stays_near(monkeypatch):
    """An update in place: its lines are in a cache, from where they are written back anyway."""
    everything_is_far("native", monkeypatch)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    expected = x + y

    def function(x, y):
        x.copy_(x + y)

    text, _ = compiled(function, x, y)
    assert "store_far" not in text
    torch.testing.assert_close(x, expected, rtol=0, atol=0)


def test_transposes(monkeypatch):
    """A register of each row at a time: past the caches where that is a line of them."""
    everything_is_far("native", monkeypatch)
    x = torch.randn(96, 80)
    text, (found,) = compiled(lambda x: (x.t() * 2).contiguous(), x)
    assert "&& fb::whole_lines;" in text and torch.equal(found, x.t() * 2)


def test_small_kernels_do_without():
    """And so does what a kernel keeps between passes."""
    x = torch.randn(64, 64)
    assert "far" not in compiled(lambda x: torch.softmax(x, -1), x)[0]
