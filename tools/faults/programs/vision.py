"""Trains a small convolutional network for a step: loss, gradients and running statistics beside eager's."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

import flambeau


class Network(nn.Module):
    """Two stages of convolution, norm and activation, a pool each, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1, stride=2)
        self.norm, self.other = nn.BatchNorm2d(6), nn.BatchNorm2d(8)
        self.classes = nn.Linear(8, 5)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.first(images)))
        x = functional.max_pool2d(x, 2)
        x = functional.silu(self.other(self.second(x)))
        x = x + 0.5 * torch.sigmoid(x).mean((2, 3), keepdim=True)
        scores = self.classes(functional.dropout(x.mean((2, 3)), 0.0))
        return functional.cross_entropy(scores, labels, label_smoothing=0.1)


def step(run: nn.Module, images: Tensor, labels: Tensor) -> list[Tensor]:
    loss = run(images, labels)
    loss.backward()
    return [loss.detach(), *(p.grad for p in run.parameters()), *run.buffers()]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Network()
    images, labels = torch.randn(3, 3, 11, 9), torch.tensor([0, 4, 2])
    expected = step(copy.deepcopy(model), images, labels)
    torch.testing.assert_close(step(flambeau.compile(model), images, labels), expected, rtol=1e-4, atol=1e-5)
