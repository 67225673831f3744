"""Whole training steps compiled as one function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "training steps"


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def _batches(n: int = 3) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(n)]


def _with(make: Callable[[Any], torch.optim.Optimizer]) -> Made:
    model = _mlp()
    optimizer = make(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, _batches(), model


@program(SECTION)
def step_with_sgd() -> Made:
    return _with(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


@program(SECTION)
def step_with_adam() -> Made:
    return _with(lambda p: torch.optim.Adam(p, lr=0.01))


@program(SECTION)
def step_with_adamw() -> Made:
    return _with(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1))


@program(SECTION)
def step_with_rmsprop() -> Made:
    return _with(lambda p: torch.optim.RMSprop(p, lr=0.01))


@program(SECTION)
def step_written_by_hand() -> Made:
    model = _mlp()

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss.detach()

    return step, _batches(), model


@program(SECTION)
def step_through_autograd_grad() -> Made:
    model = _mlp()

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        params = list(model.parameters())
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, g in zip(params, grads):
                p.sub_(g, alpha=0.1)
        return loss.detach()

    return step, _batches(), model


@program(SECTION)
def step_of_detached_weights() -> Made:
    def step(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        w = w.detach().requires_grad_()
        loss = F.mse_loss(x @ w, y)
        loss.backward()
        return w.detach() - 0.1 * w.grad

    return step, [(torch.randn(4, 2), torch.randn(5, 4), torch.randn(5, 2))]


@program(SECTION)
def step_clipping_the_norm() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        loss = F.cross_entropy(model(x) * 10, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm

    return step, _batches(), model


@program(SECTION)
def step_clipping_values() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        return loss.detach()

    return step, _batches(), model


@program(SECTION)
def step_with_a_grad_scaler() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, _batches(2), model


@program(SECTION)
def step_under_autocast() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, _batches(2), model


@program(SECTION)
def step_with_a_scheduler() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step, _batches(), model


@program(SECTION)
def step_accumulating_gradients() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(())
        for xs, ys in zip(x.chunk(2), y.chunk(2)):
            loss = F.cross_entropy(model(xs), ys) / 2
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step, _batches(), model


@program(SECTION)
def optimizer_step_alone() -> Made:
    model = _mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for p in model.parameters():
        p.grad = torch.randn_like(p)

    def step() -> None:
        optimizer.step()

    return step, [(), ()], model


@program(SECTION)
def loss_and_backward_alone() -> Made:
    model = _mlp()

    def step(x: Tensor, y: Tensor) -> None:
        F.cross_entropy(model(x), y).backward()

    return step, _batches(), model


@program(SECTION)
def step_of_a_gan() -> Made:
    g, d = nn.Linear(2, 3), nn.Linear(3, 1)
    opt_g, opt_d = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (g, d))

    def step(real: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        opt_d.zero_grad()
        loss_d = F.softplus(-d(real)).mean() + F.softplus(d(g(z).detach())).mean()
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = F.softplus(-d(g(z))).mean()
        loss_g.backward()
        opt_g.step()
        return loss_d.detach(), loss_g.detach()

    return step, [(torch.randn(4, 3), torch.randn(4, 2))] * 2, [g, d]


@program(SECTION)
def step_with_an_average_of_weights() -> Made:
    model = _mlp()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters()):
                p.lerp_(q, 0.1)
        return loss.detach()

    return step, _batches(), [model, average]


@program(SECTION)
def step_with_l1_penalty_and_metrics() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        out = model(x)
        penalty = sum(p.abs().sum() for p in model.parameters())
        loss = F.cross_entropy(out, y) + 1e-3 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "accuracy": (out.argmax(-1) == y).float().mean()}

    return step, _batches(), model


@program(SECTION)
def step_reporting_a_python_number() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, _batches(), model


@program(SECTION)
def step_with_a_closure() -> Made:
    w = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([w], max_iter=3)

    def step(x: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = (w - x).pow(2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return step, [(torch.randn(3),)], w


@program(SECTION)
def epoch_over_a_list_of_batches() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def epoch(batches: list[tuple[Tensor, Tensor]]) -> Tensor:
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    return epoch, [(_batches(2),)], model


@program(SECTION)
def evaluation_after_training_mode() -> Made:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

    def evaluate(x: Tensor) -> Tensor:
        model.eval()
        with torch.no_grad():
            out = model(x)
        model.train()
        return out

    return evaluate, [(torch.randn(3, 4),)], model


@program(SECTION)
def frozen_part_of_a_model() -> Made:
    model = _mlp()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            features = model[1](model[0](x))
        loss = F.cross_entropy(model[2](features), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, _batches(), model
