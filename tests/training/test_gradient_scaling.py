"""Whole training steps with a gradient scaler (`torch.amp.GradScaler`): one graph, in which the optimizer's step is taken or is not, as eager decides it.

In: optimizers, and batches some of which overflow. Out: losses, scales, weights and the optimizer's state, after every step, are eager's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau_capture import GraphBreakError
from tests.training.test_autocast import DEVICES

Parameters = Any
Step = Callable[[Tensor], Any]

OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True, amsgrad=True),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
}
#: Which of the batches overflow: one in between; the first, which makes no state then, and others.
OVERFLOWS = [(2,), (0, 1, 3)]


def as_it_is(step: Step) -> Step:
    return step


def in_one_graph(step: Step) -> Step:
    return flambeau.compile(step, fullgraph=True)


def trained(
    make: Callable[[Parameters], torch.optim.Optimizer],
    compile: Callable[[Step], Step],
    overflows: tuple[int, ...],
    device: str = "cpu",
    *,
    clips: bool = False,
    scheduled: bool = False,
    steps: int = 5,
) -> list[Any]:
    """What there is to see after every step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2) if scheduled else None

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        if clips:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    compiled, seen = compile(step), []
    for number in range(steps):
        x = torch.randn(3, 4).to(device)
        if number in overflows:
            x[0, 0] = float("inf")
        seen += [compiled(x), scaler.get_scale(), copy.deepcopy(optimizer.state_dict()["state"])]
        seen += [parameter.detach().clone() for parameter in model.parameters()]
        if scheduler is not None:
            scheduler.step()
    return seen


def assert_alike(found: list[Any], expected: list[Any]) -> None:
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("overflows", OVERFLOWS, ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph(name: str, overflows: tuple[int, ...], device: str) -> None:
    make = OPTIMIZERS[name]
    assert_alike(trained(make, in_one_graph, overflows, device), trained(make, as_it_is, overflows, device))


@pytest.mark.parametrize("name", ["momentum", "Adam"])
def test_clipped_gradients_and_a_scheduled_rate(name: str) -> None:
    """A scheduler notes in Python that a step was taken, which breaks where it is new, at the first one alone."""
    make = OPTIMIZERS[name]
    assert_alike(trained(make, in_one_graph, (1,), clips=True), trained(make, as_it_is, (1,), clips=True))

    def then_in_one_graph(step: Step) -> Step:
        first, rest = flambeau.compile(step), in_one_graph(step)
        calls = chain((first, first), repeat(rest))  # the first batch overflows: the step is taken at the second
        return lambda x: next(calls)(x)

    found = trained(make, then_in_one_graph, (0, 3), clips=True, scheduled=True)
    assert_alike(found, trained(make, as_it_is, (0, 3), clips=True, scheduled=True))


class Told(torch.optim.SGD):
    """Counts its steps in Python."""

    taken = 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        return super().step(closure)


class Noisy(torch.optim.SGD):
    """Draws random numbers."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(torch.randn_like(parameter), alpha=0.01)


@pytest.mark.parametrize("make", [lambda p: Told(p, lr=0.1), lambda p: Noisy(p, lr=0.1)], ids=["counts", "draws"])
def test_steps_that_do_more_are_left_to_plain_python(make: Callable[[Parameters], torch.optim.Optimizer]) -> None:
    """Eager does none of it where the step is skipped."""
    with pytest.raises(GraphBreakError, match="a scaled step that may be skipped"):
        trained(make, in_one_graph, (), steps=1)
    assert_alike(trained(make, flambeau.compile, (0, 2)), trained(make, as_it_is, (0, 2)))


@pytest.mark.parametrize("compile", [flambeau.compile, as_it_is], ids=["compiled", "eager"])
def test_counts_of_steps_leave_out_what_is_skipped(compile: Callable[[Step], Step]) -> None:
    optimizers: list[Told] = []

    def make(parameters: Parameters) -> torch.optim.Optimizer:
        optimizers.append(Told(parameters, lr=0.1))
        return optimizers[0]

    trained(make, compile, (0, 2))
    assert optimizers[0].taken == 3


@pytest.mark.parametrize("compile", [flambeau.compile, as_it_is], ids=["compiled", "eager"])
def test_parameters_that_are_parts_of_one_memory(compile: Callable[[Step], Step]) -> None:
    """No one tensor of the frame stands for what is written: plain Python takes the step, and what lies beside stays as it is."""
    memory = torch.ones(8)
    weight = nn.Parameter(memory[2:6])
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale((weight * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    compiled = compile(step)
    compiled(torch.ones(4))
    compiled(torch.full((4,), float("inf")))
    torch.testing.assert_close(memory, torch.tensor([1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0]))


@pytest.mark.parametrize("compile", [flambeau.compile, as_it_is], ids=["compiled", "eager"])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_the_state_of_a_first_step_is_not_known_in_the_rest_of_the_frame(
    kind: Any, compile: Callable[[Step], Step]
) -> None:
    """Two steps in one frame, of which the first overflows and makes no state, and a question about it in between."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = kind([weight], lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(x: Tensor) -> tuple[int, int]:
        known = []
        for row in x.unbind():
            weight.grad = None
            scaler.scale((weight * row).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            known.append(len(optimizer.state))
        return tuple(known)

    assert compile(step)(torch.tensor([[float("inf"), 1.0, 1.0], [1.0, 2.0, 3.0]])) == (0, 1)
    state = optimizer.state[weight]
    expected = (
        {"momentum_buffer": [1.0, 2.0, 3.0]} if kind is torch.optim.SGD else {"step": 1.0, "exp_avg": [0.1, 0.2, 0.3]}
    )
    for name, value in expected.items():
        torch.testing.assert_close(state[name], torch.tensor(value))


def test_two_optimizers_of_one_scaler() -> None:
    """Each is skipped for its own gradients alone."""

    def run(compile: Callable[[Step], Step]) -> list[Any]:
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(3)) for _ in range(2)]
        optimizers = [torch.optim.Adam([weights[0]], lr=0.1), torch.optim.SGD([weights[1]], lr=0.1)]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

        def step(x: Tensor) -> None:
            for weight in weights:
                weight.grad = None
            scaler.scale((weights[0] * x[0]).sum() + (weights[1] * x[1]).sum()).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()

        compiled, seen = compile(step), []
        for bad in (1, None, 0, 1):
            x = torch.ones(2, 3)
            if bad is not None:
                x[bad, 0] = float("nan")
            compiled(x)
            seen += [*(weight.detach().clone() for weight in weights), scaler.get_scale(), len(optimizers[0].state)]
        return seen

    assert_alike(run(in_one_graph), run(as_it_is))
