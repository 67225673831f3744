"""Random exact programs give eager's bits: results and their layout, what is left in the arguments, what shares memory, gradients."""

from __future__ import annotations

import pytest
import torch

import flambeau

from ..comparison import outcome
from .random_programs import Program, program

#: Programs that are not compiled as yet, and why: by default they run in eager, with a warning; here that is an error.
REFUSED = {165: "FB392: in the backward of a concatenation, a changing size that only a sum of sizes tells"}


@pytest.mark.parametrize("block", range(6))
def test_a_slice(block: int) -> None:
    """The first programs."""
    check_all(range(block * 12, block * 12 + 12))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(25))
def test_many(block: int) -> None:
    """Those that follow."""
    check_all(range(100 + block * 60, 160 + block * 60))


def check_all(seeds: range) -> None:
    """Each program twice, the second time with other numbers."""
    for seed in seeds:
        if seed in REFUSED:
            with pytest.raises(AssertionError, match="FB392"):
                check(program(seed))
        else:
            check(program(seed))


def check(wanted: Program) -> None:
    """The same as eager, with gradients where an argument can have one. Numbers are whole and equal; shares of gradients are close."""
    flambeau.compiler.reset()
    function = wanted.function()
    compiled = flambeau.compile(function, dynamic=wanted.dynamic)
    for inputs in (wanted.inputs, wanted.others):
        for kind in ("plain", "inner") if wanted.seed % 3 == 0 else ("plain",):
            told = f"seed {wanted.seed}, dynamic={wanted.dynamic}, {kind}\n{wanted.source}"
            exact, tensors = outcome(function, inputs, kind)
            ours, our_tensors = outcome(compiled, inputs, kind)
            assert ours == exact, told
            torch.testing.assert_close(
                our_tensors, tensors, rtol=1e-13, atol=1e-13, msg=lambda text, told=told: f"{text}\n{told}"
            )
