"""Convolutions that are kernels of our own, in training: what the backward needs is stored beside what follows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import flambeau
from flambeau_runtime import Artifact, executor
from tests.comparison import assert_same, gradients

pytest.importorskip("triton")


class Residual(nn.Module):
    """Convolutions of one and of nine elements, a batch norm, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 24, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(24)
        self.second = nn.Conv2d(24, 16, 1)
        self.last = nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)))
        return F.silu(self.last(F.relu(self.second(y) + x)))


class Rounding(TorchDispatchMode):
    """Convolutions of numbers with the 10 bits of TF32, halves away from zero, as our kernels round them; not those of the backward, which the library computes."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op is torch.ops.aten.convolution.default:
            bits = [operand.view(torch.int32) for operand in args[:2]]
            args = (*(((b + 0x1000) & -0x2000).view(torch.float32) for b in bits), *args[2:])
        return op(*args, **(kwargs or {}))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels of the programs that are loaded, products generated."""
    found: list[str] = []
    real = executor.load

    def load(artifact: Artifact, **rest: Any) -> Any:
        found.extend(kernel.entry for kernel in artifact.kernels)
        return real(artifact, **rest)

    monkeypatch.setattr("flambeau_runtime.load", load)
    monkeypatch.setenv("FLAMBEAU_INDUCTOR_GEMM", "generated")
    monkeypatch.setenv("FLAMBEAU_INDUCTOR_VERIFY", "1")
    return found


@pytest.mark.parametrize("train", [True, False])
def test_step_equals_eager(train: bool, kernels: list[str]) -> None:
    """Results and gradients, of parameters and of the image."""
    torch.manual_seed(0)
    eager = Residual().to(memory_format=torch.channels_last).train(train)
    model = copy.deepcopy(eager)
    images = [
        torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(1))
        .to(memory_format=torch.channels_last)
        .requires_grad_()
        for _ in range(2)
    ]
    with Rounding():
        expected = eager(images[0])
    actual = flambeau.compile(model, options={"cpu_backend": "triton"})(images[1])
    assert_same(actual, expected, rtol=1e-3, atol=1e-4)
    expected.square().sum().backward()
    actual.square().sum().backward()
    assert sum("gemm_convolution" in name for name in kernels) == 3
    assert_same(gradients(model), gradients(eager), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(images[1].grad, images[0].grad, rtol=1e-3, atol=1e-3)
    assert_same(dict(model.named_buffers()), dict(eager.named_buffers()), rtol=1e-3, atol=1e-4)
