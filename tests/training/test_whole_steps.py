"""Whole training steps as one graph, compared with eager's over several steps: losses, weights, gradients and what the optimizer keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from tests.comparison import twin_of


class Recurrent(nn.Module):
    """An LSTM whose last state is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        """The usual call."""
        return self.out(self.layer(x[:, None].expand(-1, 3, -1))[0][:, -1])


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(4, 4), nn.Linear(4, 4, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        """The usual call."""
        return self.out(self.table(x.argmax(-1)) + x)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)),
    "recurrent": Recurrent,
    "tied": Tied,
}
Step = Callable[[Tensor, Tensor], Any]


def _plain(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _clipped(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach(), norm

    return step


def _accumulated(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(())
        for part, target in zip(x.chunk(2), y.chunk(2)):
            loss = F.mse_loss(model(part), target) / 2
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


STEPS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Step]] = {
    "plain": _plain,
    "clipped": _clipped,
    "accumulated": _accumulated,
}


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _compare(model: str, step: str, backend: str) -> None:
    seen = []
    torch.manual_seed(0)
    first = MODELS[model]()
    for each, compiled in ((twin_of(first), False), (first, True)):
        optimizer = torch.optim.Adam(each.parameters(), lr=0.01)
        run = STEPS[step](each, optimizer)
        if compiled:
            run = flambeau.compile(run, backend=backend, fullgraph=True)
        for number in range(3):
            torch.manual_seed(number)
            result = run(torch.randn(6, 4), torch.randn(6, 4))
            kept = [(p, p.grad, *(v for v in optimizer.state[p].values())) for p in each.parameters()]
            values = [result, kept, list(each.buffers()), torch.rand(2)]
            seen.append(torch.utils._pytree.tree_map(_copied, values))
    for ours, theirs in zip(seen[3:], seen[:3], strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("model", MODELS)
def test_steps_equal_eagers(model: str, step: str) -> None:
    """As graphs of autograd's, uncompiled."""
    _compare(model, step, "aot_eager")


@pytest.mark.parametrize(("model", "step"), [("batch norm", "plain"), ("recurrent", "accumulated")])
def test_compiled_steps_equal_eagers(model: str, step: str) -> None:
    """Through the whole default stack."""
    _compare(model, step, "inductor")


def test_a_gradient_penalty_is_trained() -> None:
    """A gradient inside of the loss has a gradient itself."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def step(real: Tensor, fake: Tensor) -> Tensor:
        critic.zero_grad()
        mix = (0.3 * real + 0.7 * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + (slope.norm(2, dim=1) - 1).square().mean()
        loss.backward()
        return loss.detach()

    batch = torch.randn(5, 3), torch.randn(5, 3)
    expected = [step(*batch), *(p.grad for p in critic.parameters())]
    found = [flambeau.compile(step, fullgraph=True)(*batch), *(p.grad for p in critic.parameters())]
    torch.testing.assert_close(found, expected)


def test_a_backward_of_what_a_step_handed_back() -> None:
    """A loss whose history the step freed raises; one that another graph made does not."""
    weight = torch.ones(3, requires_grad=True)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = (weight * x).sin().sum()
        loss.backward()
        return loss, (weight * x).exp()

    loss, other = flambeau.compile(step, fullgraph=True)(torch.ones(3))
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()
    other.sum().backward()
    torch.testing.assert_close(weight.grad, torch.ones(3).cos() + torch.ones(3).exp())
