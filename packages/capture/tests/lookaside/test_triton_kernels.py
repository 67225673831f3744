"""Launches of Triton kernels in captured code: by the interpreter, since there may be no GPU."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

triton = pytest.importorskip("triton")
tl = triton.language


def doubled(x, out, n, block: tl.constexpr):
    where = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + where, tl.load(x + where, where < n) * 2, where < n)


@pytest.mark.parametrize("wrap", [torch.library.wrap_triton, lambda kernel: kernel])
def test_a_launch_is_the_only_break(monkeypatch, wrap):
    """Nothing of Triton is captured, nor of the kernel, which the interpreter runs as Python."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = triton.jit(doubled)

    def launches(x):
        out = torch.empty_like(x)
        wrap(kernel)[(triton.cdiv(len(x), 16),)](x + 1, out, len(x), 16)
        return out + 1

    records: list = []
    x = torch.randn(20)
    assert torch.equal(make_region(launches, eager, observer=records.append)(x), launches(x))
    assert [(found.code, found.reason) for record in records for found in record.breaks] == [
        ("triton-kernel", "a Triton kernel is launched: doubled on a grid")
    ]
    assert [record.operations for record in records] == [2, 1]


def test_only_a_kernel_can_be_wrapped():
    with pytest.raises(RuntimeError, match="triton.jit"):
        make_region(lambda x: torch.library.wrap_triton(len)[(1,)](x), eager)(torch.ones(2))
