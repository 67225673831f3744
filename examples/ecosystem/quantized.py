"""torchao: weights in int8 and in float8, computed in the activations' type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

KINDS = {"int8": Int8WeightOnlyConfig, "float8": Float8WeightOnlyConfig}


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step runs a model of each kind of weights on the same rows."""
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    models = []
    for config in KINDS.values():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).eval()
        quantize_(model, config())
        models.append(compile(model))

    def step() -> list[torch.Tensor]:
        with torch.no_grad():
            return [model(x) for model in models]

    return step
