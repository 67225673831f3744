"""Random exact programs give eager's bits: results and their layout, what is left in the arguments, what shares memory, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

from .random_programs import Program, program

FACTS = ("shape", "dtype", "requires_grad")
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
            with pytest.raises(AssertionError, match="BackendError"):
                check(program(seed))
        else:
            check(program(seed))


def check(wanted: Program) -> None:
    """The same as eager, with gradients where an argument can have one."""
    flambeau.compiler.reset()
    function = wanted.function()
    compiled = flambeau.compile(function, dynamic=wanted.dynamic)
    for inputs in (wanted.inputs, wanted.others):
        for trained in (False, True) if wanted.seed % 3 == 0 else (False,):
            expected, actual = (outcome(call, inputs, trained) for call in (function, compiled))
            assert actual == expected, f"seed {wanted.seed}, dynamic={wanted.dynamic}\n{wanted.source}"


class Same:
    """A tensor that is compared by its facts and its bits."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same):
            return False
        ours, theirs = self.tensor, other.tensor
        return all(getattr(ours, fact) == getattr(theirs, fact) for fact in FACTS) and torch.equal(ours, theirs)

    def __repr__(self) -> str:
        return f"{self.tensor.dtype}{self.tensor.tolist()}, strides {self.tensor.stride()}"


def outcome(call: Callable[..., Any], inputs: tuple[Tensor, Tensor], trained: bool) -> Any:
    """What a call gives back, what it leaves in its arguments, which of them results share memory with, and gradients; or what it raises."""
    arguments = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) for t in inputs]
    leaves = [t.requires_grad_() for t in arguments if trained and t.is_floating_point()]
    given = [t * 1 if t.requires_grad else t for t in arguments]
    try:
        results = call(*given)
        roots = [t.sum() for t in results if t.requires_grad]
        gradients = torch.autograd.grad(roots, leaves, allow_unused=True) if roots else ()
    except Exception as error:
        return type(error)
    shared = [[_place(result) == _place(argument) for argument in given] for result in results]
    found = [*results, *given]
    # Where nothing depends on an argument that was written, eager gives no gradient and we give zeros. A share of a third is not exact.
    given_back = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, gradients, strict=False)]
    return [Same(t) for t in found], shared, [Same(g.round(decimals=9)) for g in given_back]


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
