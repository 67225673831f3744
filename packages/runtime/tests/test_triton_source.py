"""Kernels cut out of the module they share."""

from __future__ import annotations

from flambeau_runtime.triton_kernels import CompileRequest
from flambeau_runtime.triton_source import alone

MODULE = """
import triton
import triton.language as tl
LIMIT: tl.constexpr = 3


@triton.jit
def inner(a):
    return a + 1


@triton.jit
def helper(a):
    return inner(a)


# model.py:3 in forward
@triton.jit
def add_0(x, y):
    tl.store(y, helper(tl.load(x)))


# model.py:9 in forward
@triton.jit
def add_1(x, y):
    tl.store(y, helper(tl.load(x)))


@triton.jit
def plain(x):
    tl.store(x, LIMIT)
"""


def test_a_kernel_takes_along_what_it_calls() -> None:
    """Helpers of helpers too, and statements that are no functions; nothing else."""
    source, entry = alone(MODULE, "add_0")
    assert entry == "add"
    assert source.count("def ") == 3 and "def inner" in source and "def helper" in source and "LIMIT" in source
    compile(source, "kernel", "exec")
    assert alone(MODULE, "plain")[0].count("def ") == 1


def test_equal_kernels_are_one_request() -> None:
    """Two kernels that differ in number and position only are compiled once."""
    meta = {"signature": {"x": "*fp32", "y": "*fp32"}}
    assert CompileRequest.from_meta(MODULE, "add_0", meta) == CompileRequest.from_meta(MODULE, "add_1", meta)
    assert alone(MODULE, "add_0") != alone(MODULE, "plain")


def test_names_that_would_clash_or_are_missing() -> None:
    """A kernel keeps its number where the plain name is taken; an unknown one is left to who compiles it."""
    clashing = MODULE.replace("def plain", "def add")
    assert alone(clashing, "add_1")[1] == "add_1"
    assert alone(MODULE, "missing") == (MODULE, "missing")
