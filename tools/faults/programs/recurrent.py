"""A gated recurrent network written out, and its gradients over three steps beside eager's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import flambeau


class Cell(nn.Module):
    """Update and reset gates, and what is proposed."""

    def __init__(self, inputs: int = 6, width: int = 10) -> None:
        super().__init__()
        self.width = width
        self.inward, self.across = nn.Linear(inputs, 3 * width), nn.Linear(width, 3 * width)
        self.readout = nn.Linear(width, 1)

    def forward(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        state = steps.new_zeros(steps.shape[1], self.width)
        outputs = []
        for x in steps:
            a, b = self.inward(x).chunk(3, -1), self.across(state).chunk(3, -1)
            reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            proposed = torch.tanh(a[2] + reset * b[2])
            state = (1 - update) * proposed + update * state
            outputs.append(self.readout(state))
        return torch.stack(outputs), state


def step(run: nn.Module, model: nn.Module, steps: Tensor) -> list[Tensor]:
    model.zero_grad()
    outputs, state = run(steps)
    (outputs.square().mean() + state.abs().sum()).backward()
    return [outputs.detach(), state.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


if __name__ == "__main__":
    torch.manual_seed(0)
    model, steps = Cell(), torch.randn(3, 3, 6)
    torch.testing.assert_close(
        step(flambeau.compile(model), model, steps), step(model, model, steps), rtol=1e-4, atol=1e-5
    )
