"""timm: a training script with its optimizer, schedule, label smoothing and averaged weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step is one of training; it returns the loss and the averaged weights' answer."""
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5
    )
    averaged = ModelEmaV3(model, decay=0.9)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-5)
    criterion = LabelSmoothingCrossEntropy(smoothing=0.1)
    run = compile(model)
    evaluate = compile(averaged.module)
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,))
    epoch = 0

    def step() -> list[torch.Tensor]:
        nonlocal epoch
        loss = criterion(run(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update(model)
        epoch += 1
        schedule.step(epoch)
        with torch.no_grad():
            return [loss.detach(), evaluate(images)]

    return step
