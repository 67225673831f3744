"""Attention of lengths that change, in training: one program for all of them, whichever of the library's kernels it calls."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import flambeau
from tests.comparison import relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = (33, 48, 100, 7)
KINDS = {
    "efficient, float32": (SDPBackend.EFFICIENT_ATTENTION, torch.float32),
    "efficient, bfloat16": (SDPBackend.EFFICIENT_ATTENTION, torch.bfloat16),
    "flash": (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, torch.bfloat16),
    "math": (SDPBackend.MATH, torch.float32),
    "any, float32": (None, torch.float32),
    "any, float16": (None, torch.float16),
}


class Attention(nn.Module):
    def __init__(self, mask: str) -> None:
        super().__init__()
        self.operands, self.joined, self.mask = nn.Linear(64, 192), nn.Linear(64, 64), mask

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.operands(x).view(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mask = None
        if self.mask == "bias":
            places = torch.arange(length, device=x.device)
            mask = ((places[:, None] - places[None, :]) * -0.1).to(x.dtype)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.mask == "causal")
        return x + self.joined(found.transpose(1, 2).reshape(batch, length, 64))


def _step(run: Any, model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    result = run(x)
    result.square().mean().backward()
    found = [result.detach(), x.grad, *(p.grad for p in model.parameters())]
    model.zero_grad()
    return [part.clone() for part in found]


@pytest.mark.parametrize("mask", ["none", "causal", "bias"])
@pytest.mark.parametrize("kind", KINDS)
def test_training(kind: str, mask: str) -> None:
    """Results and gradients no further from those in float64 than twice eager's."""
    backend, dtype = KINDS[kind]
    if mask == "bias" and backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        pytest.skip("the kernel takes no bias, or not its layout")
    torch.manual_seed(0)
    model = Attention(mask).cuda().to(dtype)
    exact = Attention(mask).cuda().double()
    exact.load_state_dict(model.state_dict())
    compiled = flambeau.compile(model, dynamic=True, fullgraph=True)
    with sdpa_kernel(backend) if backend is not None else nullcontext():
        for length in LENGTHS:
            x = torch.randn(2, length, 64, device="cuda", dtype=dtype)
            ours, theirs = _step(compiled, model, x), _step(model, model, x)
            with sdpa_kernel(SDPBackend.MATH):
                right = _step(exact, exact, x.double())
            for found, eager, wanted in zip(ours, theirs, right, strict=True):
                allowed = 2 * relative_error(eager.double(), wanted) + 10 * torch.finfo(dtype).eps
                assert relative_error(found.double(), wanted) <= allowed, length
