"""A model that keeps counters, a history, a table of results and running means: all as plain Python leaves them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import flambeau

TOTALS = {"calls": 0, "elements": 0}


class Meter(nn.Module):
    """Normalises by running statistics, and writes down what it saw."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.calls, self.history, self.results = 0, [], {"first": None}

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        TOTALS["calls"] += 1
        TOTALS["elements"] += x.numel()
        y = torch.relu(self.project(x))
        self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        centred = (y - self.mean) / (y.std() + 1e-3)
        self.history.append(centred.abs().max())
        self.results["last"] = centred.sum(0)
        if self.results["first"] is None:
            self.results["first"] = centred.min()
        for name in ("low", "high"):
            self.results[name] = centred.quantile(0.25 if name == "low" else 0.75) * self.calls
        return torch.tanh(centred) * 2 + centred.mean(-1, keepdim=True)


def everything(model: Meter, run: object, batches: list[Tensor]) -> dict[str, object]:
    TOTALS.update(calls=0, elements=0)
    outputs = [run(batch) for batch in batches]
    return {
        "outputs": outputs, "mean": model.mean, "calls": model.calls, "history": model.history,
        "results": model.results, "order": list(model.results), "totals": dict(TOTALS),
    }  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Meter()
    other, batches = copy.deepcopy(model), [torch.randn(5, 6) for _ in range(3)]
    with torch.no_grad():
        ours, plain = everything(model, flambeau.compile(model), batches), everything(other, other, batches)
    assert ours.pop("order") == plain.pop("order")
    torch.testing.assert_close(ours, plain)
