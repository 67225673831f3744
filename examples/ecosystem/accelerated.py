"""accelerate: a loop under `Accelerator`, with accumulated gradients, clipping and a model that is unwrapped to be saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step is an epoch; it returns the losses and the weights as they would be saved."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = DataLoader(TensorDataset(torch.randn(16, 16), torch.randint(0, 4, (16,))), batch_size=4)
    run, optimizer, data = accelerator.prepare(compile(model), optimizer, data)

    def step() -> list[torch.Tensor]:
        losses = []
        for x, y in data:
            with accelerator.accumulate(run):
                loss = F.cross_entropy(run(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(run.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        saved = accelerator.unwrap_model(run, keep_torch_compile=False).state_dict()
        return [*losses, *(value.clone() for value in saved.values())]

    return step
