"""Compiled optimizer steps equal eager's over many steps, in one graph where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from tests.comparison import twin_of

STEPS = 20
Maker = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Maker] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "adamw_single": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "adamw_tensor_lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, fused=True),
}
#: With state that lives on the device.
ON_DEVICE: dict[str, Maker] = {
    "adamw_capturable": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True, capturable=True),
    "adam_capturable_tensor_lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-2, device="cuda"), capturable=True),
    "adamw_fused_tensor_lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2, device="cuda"), fused=True),
    "adamw_fused_capturable": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True, capturable=True),
}
KEPT_IN_EAGER = ("adamw_fused", "adamw_fused_tensor_lr")


def make_model() -> nn.Module:
    """A small model with weights of several shapes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, step: Callable[[], Any], device: str) -> list[Tensor]:
    """Losses of `STEPS` steps on fixed batches."""
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(6, 8, generator=generator).to(device)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        step()
        losses.append(loss.detach())
    return losses


def compare(maker: Maker, device: str = "cpu") -> Recorder:
    """Train with a compiled and an eager step; the records of the compiled one."""
    model = make_model().to(device)
    eager = twin_of(model)
    ours, theirs = maker(list(model.parameters())), maker(list(eager.parameters()))
    recorder = Recorder()
    step = compile_recorded(ours.step, recorder)
    torch.testing.assert_close(train(model, ours, step, device), train(eager, theirs, theirs.step, device))
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        assert ours.state[a].keys() == theirs.state[b].keys()
        for key, value in theirs.state[b].items():
            torch.testing.assert_close(ours.state[a][key], value)
    return recorder


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_step(name: str) -> None:
    """Weights and optimizer state after twenty steps; the step is one graph without library calls."""
    check(compare(OPTIMIZERS[name]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [*OPTIMIZERS, *ON_DEVICE])
def test_compiled_step_on_a_gpu(name: str) -> None:
    """The same on a CUDA device, where lists of tensors are the default.

    torch keeps a fused step whose count is on the device and that is not capturable away from compilers: a graph break.
    """
    recorder = compare({**OPTIMIZERS, **ON_DEVICE}[name], "cuda")
    if name not in KEPT_IN_EAGER:
        check(recorder)


def check(recorder: Recorder) -> None:
    """One graph a compilation, in kernels only."""
    assert not recorder.breaks
    assert not recorder.eager_graphs
    assert all(program.kernels and not program.library_calls for program in recorder.programs)


def test_a_step_of_a_gradient_scaler() -> None:
    """`_amp_update_scale_` writes two tensors and gives the first of them back."""

    def train(compile: Callable[[Callable[[], None]], Callable[[], None]]) -> tuple[Any, Any]:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

        def update() -> None:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

        compiled, scales = compile(update), []
        for number in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((2, 8), float("inf") if number == 2 else 1.0)).sum()).backward()
            compiled()
            scales.append((scaler.get_scale(), scaler._get_growth_tracker()))
        return scales, model.state_dict()

    expected, weights = train(lambda step: step)
    found, ours = train(lambda step: compile_recorded(step, Recorder()))
    assert found == expected
    torch.testing.assert_close(ours, weights, equal_nan=True)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["Adam", "NAdam"])
def test_first_steps_are_as_near_as_eagers(name: str, foreach: bool) -> None:
    """Eager computes with counters as Python's numbers: `1 - beta ** step` has lost digits in the precision of a weight."""

    def train(x: Tensor, y: Tensor) -> Tensor:
        weight = nn.Parameter(x.clone())
        optimizer = getattr(torch.optim, name)([weight], lr=0.1, foreach=foreach)
        for _ in range(2):
            weight.grad = 2 * (weight.detach() - y)
            optimizer.step()
        return weight.detach()

    torch.manual_seed(0)
    x, y = torch.rand(5), torch.rand(5)
    compiled = compile_recorded(train, Recorder())
    torch.testing.assert_close(compiled(x, y), train(x, y), rtol=2e-7, atol=2e-7)
