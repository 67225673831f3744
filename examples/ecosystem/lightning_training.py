"""lightning: `Trainer.fit` of a module whose network is compiled."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regression(lightning.LightningModule):
    """A network from (n, 8) to (n, 1)."""

    def __init__(self, compile: Callable[..., Any]) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.run = compile(self.network)
        self.losses: list[Tensor] = []

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """The loss of a batch."""
        x, y = batch
        loss = F.mse_loss(self.run(x), y)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam on everything."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step is one epoch of a new trainer; it returns the losses."""
    torch.manual_seed(0)
    module = Regression(compile)
    data = DataLoader(TensorDataset(torch.randn(16, 8), torch.randn(16, 1)), batch_size=4)

    def step() -> list[torch.Tensor]:
        module.losses.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of workers and devices that a small example does not use
            lightning.Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                enable_model_summary=False,
            ).fit(module, data)  # fmt: skip
        return list(module.losses)

    return step
