"""Forward-mode differentiation inside of compiled functions (`torch.autograd.forward_ad`): one graph, whose primals, tangents and gradients are eager's.

In: functions of a tensor and a tangent, each without and with a history. Levels entered around a call are in `test_active_modes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

import flambeau
from flambeau_capture import GraphBreakError

Program = Callable[[Tensor, Tensor], Any]

#: What every reason names for which a program here runs in eager.
LEVEL = "a level of forward-mode differentiation"

torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
TANGENTS = {name: torch.randn_like(parameter) for name, parameter in MODEL.named_parameters()}


def a_product(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        return tuple(forward_ad.unpack_dual(torch.sin(dual) * dual))


def fields_of_the_result(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        unpacked = forward_ad.unpack_dual(forward_ad.make_dual(x, t).exp())
        return unpacked.primal + unpacked.tangent


def no_tangent(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        forward_ad.make_dual(x, t)
        unpacked = forward_ad.unpack_dual(x * 2)
        return unpacked.tangent is None, unpacked.primal


def unpacked_outside_of_a_level(x: Tensor, t: Tensor) -> Any:
    unpacked = forward_ad.unpack_dual(x)
    return unpacked.tangent is None, unpacked.primal * 2


def the_arguments_themselves(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(forward_ad.make_dual(x, t)))


def a_factor_twice(x: Tensor, t: Tensor) -> Any:
    """A number's tangent is zeros without memory."""
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual((forward_ad.make_dual(x, t) * 2).float() * 3))


def writes(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone(), t)
        y = torch.zeros_like(x)
        y.add_(dual * 3)
        y[0] = dual[1]
        return forward_ad.unpack_dual(y).tangent + 0


def a_dual_that_outlives_its_level(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t) * 2
    return dual + 1, forward_ad.unpack_dual(dual).tangent is None


def a_module(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(MODEL(forward_ad.make_dual(x, t))))


def tangents_of_parameters(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(p, TANGENTS[name]) for name, p in MODEL.named_parameters()}
        return forward_ad.unpack_dual(torch.func.functional_call(MODEL, duals, x)).tangent


def a_level_by_its_number(x: Tensor, t: Tensor) -> Any:
    level = forward_ad.enter_dual_level()
    found = forward_ad.unpack_dual(forward_ad.make_dual(x, t, level=level).cos(), level=level)
    forward_ad.exit_dual_level(level=level)
    return tuple(found)


def an_own_rule(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(Tripled.apply(forward_ad.make_dual(x, t))).tangent + 0


class Tripled(torch.autograd.Function):
    """A function whose rule for tangents is not its derivative, so that one sees which was asked."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * 7


def left_by_an_exception(x: Tensor, t: Tensor) -> Any:
    try:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, t).sin()
            raise ValueError
    except ValueError:
        return dual * 2


@forward_ad.dual_level()
def decorated(x: Tensor, t: Tensor) -> Any:
    return forward_ad.unpack_dual(forward_ad.make_dual(x, t).tanh()).tangent * 2


def two_levels_in_turn(x: Tensor, t: Tensor) -> Any:
    return a_product(x, t)[1] + a_product(x * 2, t)[1]


def beside_a_transform(x: Tensor, t: Tensor) -> Any:
    return torch.vmap(lambda row: row * 2)(x) + a_product(x, t)[1]


ONE_GRAPH: list[Program] = [
    a_product, fields_of_the_result, no_tangent, unpacked_outside_of_a_level, the_arguments_themselves, a_factor_twice, writes,
    a_dual_that_outlives_its_level, a_module, tangents_of_parameters, a_level_by_its_number, an_own_rule, left_by_an_exception, decorated,
    two_levels_in_turn, beside_a_transform,
]  # fmt: skip


def a_break_within(x: Tensor, t: Tensor) -> Any:
    y = x * 3
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, t).sin()
        flambeau.compiler.graph_break()
        return forward_ad.unpack_dual(dual).tangent + 0


def a_transform_within(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        return forward_ad.unpack_dual(torch.vmap(lambda row: row.sin() * 2)(dual)).tangent + 0


def left_open(x: Tensor, t: Tensor) -> Any:
    forward_ad.enter_dual_level()
    return forward_ad.make_dual(x, t) * 2


PLAIN_PYTHON: list[Program] = [a_break_within, a_transform_within, left_open]


def a_level_within_a_level(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level(), forward_ad.dual_level():
        return x + 1


def a_tangent_of_another_size(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.make_dual(x, t[:1])


def a_tangent_of_integers(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.make_dual(x, t.long())


def without_a_rule(x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return F.scaled_dot_product_attention(*[forward_ad.make_dual(x, t)[None, None]] * 3)


REFUSED: list[Program] = [a_level_within_a_level, a_tangent_of_another_size, a_tangent_of_integers, without_a_rule]


def outcome(program: Program, *, history: bool) -> list[Any]:
    """Results, whether these have a history, whether they are the arguments' memory; and the gradients of their squares."""
    torch.manual_seed(1)
    x, t = torch.randn(4, 4), torch.randn(4, 4)
    x.requires_grad_(history)
    found = program(x, t)
    if forward_ad._current_level >= 0:
        found = (*forward_ad.unpack_dual(found), True)
        forward_ad.exit_dual_level()
    parts = list(found if isinstance(found, tuple) else (found,))
    seen: list[Any] = [x.detach().clone()]
    for part in parts:
        if isinstance(part, Tensor):
            seen += [part.detach().clone(), part.requires_grad, part.data_ptr() in (x.data_ptr(), t.data_ptr())]
        else:
            seen.append(part)
    differentiable = [part for part in parts if isinstance(part, Tensor) and part.requires_grad]
    if differentiable:
        leaves = [*([x] if history else []), *MODEL.parameters()]
        total = torch.stack([part.square().sum() for part in differentiable]).sum()
        seen += torch.autograd.grad(total, leaves, allow_unused=True)
    return seen


def check(program: Program, backend: str, *, history: bool, fullgraph: bool) -> None:
    """The first call and one after it are eager's."""
    expected = outcome(program, history=history)
    compiled = flambeau.compile(program, backend=backend, fullgraph=fullgraph)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled, history=history), expected, rtol=1e-4, atol=1e-4)
    assert forward_ad._current_level == -1


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_levels_are_part_of_the_graph(program: Program, backend: str, history: bool) -> None:
    check(program, backend, history=history, fullgraph=True)


@pytest.mark.falls_back(LEVEL)
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("program", PLAIN_PYTHON, ids=lambda program: program.__name__)
def test_what_is_cut_within_a_level_runs_in_plain_python(program: Program, history: bool) -> None:
    """A result that leaves a graph has no tangent any more."""
    with pytest.raises(GraphBreakError):
        flambeau.compile(program, fullgraph=True)(torch.randn(4, 4), torch.randn(4, 4))
    assert forward_ad._current_level == -1
    check(program, "inductor", history=history, fullgraph=False)


@pytest.mark.falls_back(LEVEL)
@pytest.mark.parametrize("program", REFUSED, ids=lambda program: program.__name__)
def test_errors_are_eagers_and_leave_no_level_open(program: Program) -> None:
    x, t = torch.randn(4, 4), torch.randn(4, 4)
    with pytest.raises(Exception) as expected:  # whatever eager raises
        program(x, t)
    assert forward_ad._current_level == -1
    with pytest.raises(type(expected.value)) as found:
        flambeau.compile(program)(x, t)
    assert str(found.value) == str(expected.value)
    assert forward_ad._current_level == -1
    check(a_product, "inductor", history=False, fullgraph=True)
