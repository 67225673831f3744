"""A model whose settings change between calls: flags, numbers, lists, globals, and what its inputs are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import flambeau

SHARPNESS = {"value": 1.0}


class Switched(nn.Module):
    """What it computes depends on attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.kind, self.residual, self.rounds, self.weights = "relu", True, 1, [1.0, 0.5]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = functional.layer_norm(self.first(x), (8,))
        y = torch.relu(y) if self.kind == "relu" else torch.sin(y)
        for _ in range(self.rounds):
            y = self.second(y) * 0.5 + y.mean(-1, keepdim=True)
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        for weight in self.weights:
            y = y + weight * torch.sigmoid(y * SHARPNESS["value"])
        return torch.softmax(x + y if self.residual else y, -1)


def walk(model: Switched, run: Callable[..., Tensor], x: Tensor) -> list[Tensor]:
    """One setting after the other, each of which counts."""
    found = [run(x)]
    model.kind = "sine"
    found.append(run(x))
    model.residual = False
    found.append(run(x))
    model.rounds = 3
    found.append(run(x))
    model.weights.append(2.0)
    found.append(run(x))
    SHARPNESS["value"] = 3.0
    found += [run(x), run(x, x > 0), run(x.double().float().t().contiguous().t()), run(x[:5])]
    model.kind, model.residual, model.rounds, model.weights, SHARPNESS["value"] = "relu", True, 1, [1.0, 0.5], 1.0
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    model, x = Switched(), torch.randn(8, 8)
    with torch.no_grad():
        torch.testing.assert_close(walk(model, flambeau.compile(model), x), walk(model, model, x))
