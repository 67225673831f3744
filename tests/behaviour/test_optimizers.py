"""`optimizer.step()` compiled: one graph a step, twenty steps equal to eager, state and learning-rate schedules included."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.optim.optimizer import register_optimizer_step_pre_hook

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from ..comparison import assert_same

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd_foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam_amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adamw_foreach": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "adamw_fused": lambda p: optim.AdamW(p, lr=0.01, fused=True),
    "adamw_tensor_lr": lambda p: optim.AdamW(p, lr=torch.tensor(0.01)),
    "adamw_groups": lambda p: optim.AdamW([{"params": q, "lr": 0.01 * (i + 1)} for i, q in enumerate(p)]),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "adadelta": lambda p: optim.Adadelta(p),
    "adamax": lambda p: optim.Adamax(p),
    "nadam": lambda p: optim.NAdam(p),
}


class Pair:
    """The same model, optimizer and data twice: one is stepped in eager, the other compiled."""

    def __init__(self, make: Callable[[Any], optim.Optimizer]) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.twin = copy.deepcopy(self.model)
        self.optimizer = make(list(self.model.parameters()))
        self.twin_optimizer = make(list(self.twin.parameters()))

    def backward(self, x: Tensor) -> None:
        """New gradients on both sides."""
        for model in (self.model, self.twin):
            model.zero_grad()
            model(x).square().sum().backward()

    def check(self) -> None:
        """Parameters and the optimizers' state are the same."""
        assert_same(dict(self.twin.named_parameters()), dict(self.model.named_parameters()))
        assert_same(self.twin_optimizer.state_dict(), self.optimizer.state_dict())


def _steps(pair: Pair, step: Callable[[], Any], count: int = 20) -> None:
    for _ in range(count):
        pair.backward(torch.randn(3, 4))
        pair.optimizer.step()
        step()
        pair.check()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_is_one_graph(name: str) -> None:
    """The first step makes the state, the second is compiled for good."""
    pair = Pair(OPTIMIZERS[name])
    recorder = Recorder()
    _steps(pair, compile_recorded(pair.twin_optimizer.step, recorder, backend="eager"))
    assert len(recorder.graphs) <= 2
    assert not recorder.breaks


@pytest.mark.parametrize("name", ["sgd_momentum", "adamw", "adamw_foreach"])
def test_step_with_the_default_backend(name: str) -> None:
    """In-place updates of parameters and state reach the real tensors."""
    pair = Pair(OPTIMIZERS[name])
    _steps(pair, compile_recorded(pair.twin_optimizer.step, Recorder()), 5)


SCHEDULES: dict[str, tuple[Callable[[Any], optim.Optimizer], Callable[[Any], Any]]] = {
    "rate": (lambda p: optim.SGD(p, lr=0.1), lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9)),
    "warm-up from nothing": (
        lambda p: optim.AdamW(p, lr=0.1, foreach=True),
        lambda o: optim.lr_scheduler.LambdaLR(o, lambda step: step / 4),
    ),
    "rate and betas": (
        lambda p: optim.AdamW([{"params": [q]} for q in p], lr=0.1),
        lambda o: optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
    ),
    "rate and momentum": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda o: optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
    ),
    "fused": (
        lambda p: optim.AdamW(p, lr=0.1, fused=True),
        lambda o: optim.lr_scheduler.LambdaLR(o, lambda step: step / 4),
    ),
    "fused, with momentum": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9),
    ),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_compiles_nothing_again(name: str, backend: str) -> None:
    """The options of an optimizer are numbers among the graph's inputs from the first step on, and that makes no difference to its state."""
    make, schedule = SCHEDULES[name]
    pair = Pair(make)
    recorder = Recorder()
    schedules = [schedule(o) for o in (pair.optimizer, pair.twin_optimizer)]
    step = compile_recorded(pair.twin_optimizer.step, recorder, backend=backend)
    for _ in range(6):
        _steps(pair, step, 1)
        for each in schedules:
            each.step()
    assert len(recorder.graphs) == 1


def test_options_that_two_groups_share_change_apart() -> None:
    """One tuple of betas is in both groups at first; which tuple it is, is told too."""
    pair = Pair(lambda p: optim.Adam([{"params": p[:2]}, {"params": p[2:]}], lr=0.1))
    recorder = Recorder()

    def step(optimizer: optim.Optimizer) -> bool:
        first, second = optimizer.param_groups
        optimizer.step()
        return first["betas"] is second["betas"]

    compiled = compile_recorded(step, recorder, backend="eager")
    for change in range(4):
        pair.backward(torch.randn(3, 4))
        for optimizer in (pair.optimizer, pair.twin_optimizer):
            if change:
                optimizer.param_groups[change % 2]["betas"] = (0.8 + change / 100, 0.99)
        assert compiled(pair.twin_optimizer) == step(pair.optimizer)
        pair.check()


def test_step_inside_of_a_compiled_function() -> None:
    """A function that does more than the step."""
    pair = Pair(OPTIMIZERS["adamw"])
    recorder = Recorder()

    def update(scale: float) -> Tensor:
        for parameter in pair.twin.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(scale)
        pair.twin_optimizer.step()
        return next(pair.twin.parameters()).sum()

    compiled = compile_recorded(update, recorder, backend="eager")
    _steps(pair, lambda: compiled(1.0), 4)
    assert not recorder.breaks


def test_a_hook_added_later_is_called() -> None:
    """Hooks of one optimizer and of all of them."""
    pair = Pair(OPTIMIZERS["sgd"])
    step = compile_recorded(pair.twin_optimizer.step, Recorder(), backend="eager")
    _steps(pair, step, 2)
    called: list[str] = []
    pair.twin_optimizer.register_step_post_hook(lambda *_: called.append("own"))
    handle = register_optimizer_step_pre_hook(lambda o, *_: called.append(type(o).__name__))
    try:
        pair.backward(torch.randn(3, 4))
        step()
    finally:
        handle.remove()
    assert called == ["SGD", "own"]


@pytest.mark.falls_back("the truth of a tensor")
def test_a_step_that_branches_on_data_runs_in_plain_python() -> None:
    """RAdam asks for the value of its step counter."""
    pair = Pair(lambda p: optim.RAdam(p))
    recorder = Recorder()
    _steps(pair, compile_recorded(pair.twin_optimizer.step, recorder, backend="eager"), 8)
    assert recorder.breaks
    assert all("branch" in broken.reason for broken in recorder.breaks)
