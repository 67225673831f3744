"""Triton kernels in programs, interpreted on the CPU; how cubins are kept."""

from __future__ import annotations

import pytest
import torch

from flambeau_runtime import artifact as a
from flambeau_runtime import load

pytest.importorskip("triton")

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n) * factor, mask=index < n)
"""
META = {"signature": {"x": "*fp32", "y": "*fp32", "n": "i32", "factor": "fp32"}, "constexprs": {"BLOCK": 16}}


def test_a_triton_kernel_runs_in_both_executors(executor, store) -> None:
    program = a.Program(
        [a.Alloc(1, (40,), (1,), torch.float32), a.Launch(0, (0, 1), (40, 2.5), grid=(3, 1, 1))],
        2, 0, [a.InputSpec("tensor", 0, torch.float32, "cpu", (40,), (1,))], [a.OutputSpec("tensor", 1)],
    )  # fmt: skip
    kernel = a.Kernel("triton_scale", 0, "scale", 2, 2, meta=META)
    run = load(a.Artifact(program, [a.Library("t", "triton", SOURCE)], [kernel]), executor=executor, store=store)
    x = torch.randn(40)
    assert torch.equal(run(x)[0], x * 2.5)
