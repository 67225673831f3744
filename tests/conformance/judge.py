"""Run a program of a database compiled and in eager, and say how they differ.

In: a `Program`, a backend. Out: a `Finding`: the first difference in one line ("" for none), and why graphs ran in eager, if any did.
Compared are: results, their kinds and sharing (with the arguments too), arguments and module state afterwards, gradients, exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import flambeau
from tests.comparison import assert_same, relative_error
from tests.witness import watch

from .programs import Program, copied

#: Relative and absolute tolerance by the narrowest type among the results; for what is further off, float64 decides.
TOLERANCES = {
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.complex32: (2e-3, 1e-3),
}
USUAL = (1e-4, 1e-5)
#: How much further from the exact result than eager's own may be.
FACTOR = 3.0


@frozen
class Finding:
    """What one program did: `fault` is the difference, `eager` why graphs were not compiled, `graphs` how many were, `raised` whether
    eager raises."""

    label: str
    fault: str
    eager: tuple[str, ...] = ()
    graphs: int = 0
    raised: bool = False


@frozen
class Outcome:
    """One side: an exception's type and text, or what came back."""

    error: type[BaseException] | None
    text: str
    result: Any = None
    arguments: Any = None
    state: Any = None
    gradients: Any = None


def judge(program: Program, backend: str) -> Finding:
    """Both sides of one program; one that must be whole and breaks, though eager runs it, is at fault."""
    flambeau.compiler.reset()
    theirs = _outcome(program, lambda function: function)
    # A call that eager refuses breaks the graph, so that eager says why: only what eager takes can be whole.
    whole = program.whole and theirs.error is None
    compiled = partial(flambeau.compile, backend=backend, dynamic=False, fullgraph=whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
        witness = watch(patch)
        ours = _outcome(program, compiled)
    fault = _difference(program, ours, theirs)
    told = tuple(dict.fromkeys(reason.splitlines()[0] for reason in witness.in_eager))
    return Finding(program.label, fault, told, witness.graphs, theirs.error is not None)


def _outcome(program: Program, compiled: Callable[[Any], Any]) -> Outcome:
    function, args, kwargs = program.make()
    called = compiled(function)
    torch.manual_seed(2)
    try:
        for _ in range(program.steps):
            result = called(*args, **kwargs)
        gradients = _gradients(result, function, (args, kwargs)) if program.determined else None
    except Exception as error:
        return Outcome(type(error), (str(error).splitlines() or [""])[0])
    state = dict(function.state_dict()) if isinstance(function, nn.Module) else None
    return Outcome(None, "", result, (args, kwargs), state, gradients)


def _gradients(result: Any, function: Any, arguments: Any) -> list[Tensor | None]:
    outputs = [
        t for t in pytree.tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad and t.grad_fn is not None
    ]
    leaves = [t for t in pytree.tree_leaves(arguments) if isinstance(t, Tensor) and t.requires_grad and t.is_leaf]
    leaves += list(function.parameters()) if isinstance(function, nn.Module) else []
    if not outputs or not leaves:
        return []
    torch.manual_seed(3)
    # Not `randn_like`: numbers are drawn in the order of memory, and layouts may differ.
    tangents = [torch.randn(t.shape, dtype=torch.float64).to(t.dtype).to(t.device) for t in outputs]
    return list(torch.autograd.grad(outputs, leaves, tangents, allow_unused=True))


def _difference(program: Program, ours: Outcome, theirs: Outcome) -> str:
    if theirs.error is not None or ours.error is not None:
        if ours.error is theirs.error:
            return ""
        mine = "nothing" if ours.error is None else f"{ours.error.__name__}: {ours.text}"
        wanted = "nothing" if theirs.error is None else f"{theirs.error.__name__}: {theirs.text}"
        return f"raises {mine} instead of {wanted}"[:500]
    if program.raises:
        return ""
    if not program.determined:
        ours, theirs = _without_values(ours), _without_values(theirs)
    rtol, atol = _tolerance(theirs)
    try:
        assert_same(ours.result, theirs.result, inputs=(ours.arguments, theirs.arguments), rtol=rtol, atol=atol)
        assert_same(ours.state, theirs.state, rtol=rtol, atol=atol)
    except AssertionError as error:
        if not _is_rounding(program, ours.result, theirs.result, lambda exact: exact.result, str(error)):
            return "result: " + _first_lines(error)
    try:
        assert_same(ours.gradients, theirs.gradients, strides=False, rtol=rtol, atol=atol)
    except AssertionError as error:
        if not _is_rounding(program, ours.gradients, theirs.gradients, lambda exact: exact.gradients, str(error)):
            return "gradient: " + _first_lines(error)
    return ""


def _first_lines(error: AssertionError) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:5] if line.strip())[:300]


def _tolerance(outcome: Outcome) -> tuple[float, float]:
    tensors = [t for t in pytree.tree_leaves((outcome.result, outcome.arguments)) if isinstance(t, Tensor)]
    found = [TOLERANCES[t.dtype] for t in tensors if t.dtype in TOLERANCES]
    return max(found, default=USUAL)


def _without_values(outcome: Outcome) -> Outcome:
    def zeros(value: Any) -> Any:
        return value.detach().zero_() if isinstance(value, Tensor) else value

    return Outcome(None, "", pytree.tree_map(zeros, outcome.result), None, None, None)


def _is_rounding(program: Program, ours: Any, theirs: Any, part: Callable[[Outcome], Any], text: str) -> bool:
    """Whether values alone differ and ours are as near as eager's to what eager computes from the same arguments in float64."""
    if "are not close" not in text and "not equal" not in text.lower():
        return False
    exact = part(_outcome(_widened(program), lambda function: function))
    triples = zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), pytree.tree_leaves(exact), strict=False)
    if exact is None or len(pytree.tree_leaves(exact)) != len(pytree.tree_leaves(theirs)):
        return False
    for mine, wanted, true in triples:
        if not (isinstance(true, Tensor) and isinstance(mine, Tensor)):
            continue
        if not true.dtype.is_floating_point and torch.equal(mine, wanted):
            continue
        if not true.dtype.is_floating_point or mine.shape != true.shape:
            return False
        if relative_error(mine, true) > FACTOR * relative_error(wanted, true) + 1e-6:
            return False
    return True


def _widened(program: Program) -> Program:
    def make() -> Any:
        function, args, kwargs = program.make()
        if hasattr(function, "double"):
            function = function.double()

        def wide(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return value.detach().double().requires_grad_(value.requires_grad)

        args, kwargs = pytree.tree_map(wide, copied((args, kwargs)))
        return function, args, kwargs

    return Program(program.label, make, steps=program.steps)
