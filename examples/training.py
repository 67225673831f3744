"""Training: forward and backward are compiled, the optimizer and the loop are plain PyTorch.

Run it with `python examples/training.py`. It trains a model compiled and in eager from the same start and compares the losses.
"""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

import flambeau


class Classifier(nn.Module):
    """Two layers with a norm: (n, 20) to (n, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 64)
        self.norm = nn.LayerNorm(64)
        self.second = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of each row."""
        return self.second(F.gelu(self.norm(self.first(x))))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> list[float]:
    """Losses of `steps` steps of Adam on all of the data."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train twice, compare."""
    torch.manual_seed(0)
    x = torch.randn(256, 20)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    model = Classifier()
    eager_losses = train(copy.deepcopy(model), x, y, steps=30)
    losses = train(flambeau.compile(model, fullgraph=True), x, y, steps=30)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(eager_losses), rtol=1e-3, atol=1e-4)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, in eager {eager_losses[-1]:.4f}")
    accuracy = (model(x).argmax(dim=-1) == y).float().mean()
    print(f"the original module was trained too (they share parameters): accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
