"""torch's op database under forward mode: every op that says it has a rule for tangents, of dual tensors within one graph.

In: the first sample of every tenth such op (every op in the slow suite), float64, all floating operands with tangents. Out: primals, tangents
and the gradients of both equal eager's; operands are written as eager writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

import flambeau
from flambeau.errors import FlambeauError
from flambeau_capture import GraphBreakError

from .database import UNDETERMINED

pytestmark = pytest.mark.judges_itself

#: Part of a reason for which an op ends the graph, with tangents as without.
ENDS_THE_GRAPH = (
    "_DisableTorchDispatch",
    "reads the values of a tensor",
    "depends on the values inside a tensor",
    "cannot be an argument of a graph operation",
    "unsafe_",
    "was captured: its code runs in plain Python",
)
STEP = 10
#: Stands in arguments where a dual tensor goes.
DUAL = object()


def _ops() -> list[OpInfo]:
    """Without those of torch.masked, which define a class and so end the graph, and of max_unpool: windows that overlap are written in any order."""
    return [
        op
        for op in op_db
        if op.supports_forward_ad
        and not op.name.startswith(("masked.", "nn.functional.max_unpool"))
        and torch.float64 in op.supported_dtypes("cpu")
        and op.name not in UNDETERMINED
    ]


def _program(op: OpInfo, spec: Any, rest: list[Any]) -> Callable[..., list[Any]]:
    """The op on dual tensors in the places where `rest` says so: primals and tangents of all its results."""

    def program(tensors: list[torch.Tensor], tangents: list[torch.Tensor]) -> list[Any]:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x, t) for x, t in zip(tensors, tangents, strict=True)]
            parts = iter(duals)
            args, kwargs = pytree.tree_unflatten([next(parts) if x is DUAL else x for x in rest], spec)
            results = [x for x in pytree.tree_leaves(op.op(*args, **kwargs)) if isinstance(x, torch.Tensor)]
            return [part for x in results for part in forward_ad.unpack_dual(x)]

    return program


def _outcome(program: Callable[..., list[Any]], given: list[torch.Tensor], *, history: bool) -> list[Any]:
    torch.manual_seed(0)
    tangents = [torch.randn_like(x) for x in given]
    tensors = [x.clone(memory_format=torch.preserve_format).requires_grad_(history) for x in given]
    found = program(tensors, tangents)
    seen = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in (*found, *tensors, *tangents)]
    ends = [x for x in found if isinstance(x, torch.Tensor) and x.requires_grad and x.numel()]
    if ends:
        torch.manual_seed(0)
        # Linear in each result: what is rounded about a corner, as that of `abs`, has no gradient to compare.
        total = torch.stack([(x * torch.randn_like(x)).real.sum() for x in ends]).sum()
        seen += torch.autograd.grad(total, tensors, allow_unused=True)
    return seen


def _check(op: OpInfo) -> None:
    sample = next(iter(op.sample_inputs("cpu", torch.float64, requires_grad=False)), None)
    assert sample is not None
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    differentiable = [isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) for x in leaves]
    given = [x for x, own in zip(leaves, differentiable, strict=True) if own]
    program = _program(op, spec, [DUAL if own else x for x, own in zip(leaves, differentiable, strict=True)])
    for history in (False, True):
        try:
            expected = _outcome(program, given, history=history)
        except RuntimeError as error:
            if history:
                return  # eager has tangents of the op, but no gradients of these
            pytest.skip(f"eager has no tangents of it: {error}")
        try:
            found = _outcome(flambeau.compile(program, fullgraph=True), given, history=history)
        except (FlambeauError, GraphBreakError) as error:
            assert any(reason in str(error) for reason in ENDS_THE_GRAPH), error
            found = _outcome(flambeau.compile(program), given, history=history)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert forward_ad._current_level == -1


@pytest.mark.parametrize("op", _ops()[::STEP], ids=lambda op: op.formatted_name)
def test_tangents_are_eagers(op: OpInfo) -> None:
    _check(op)


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for i, op in enumerate(_ops()) if i % STEP], ids=lambda op: op.formatted_name)
def test_tangents_of_every_op_are_eagers(op: OpInfo) -> None:
    _check(op)
