"""Mixed precision: results, dtypes and gradients of compiled modules under autocast equal eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from tests.comparison import twin_of

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
    ),
]


class Block(nn.Module):
    """Linear layers, attention, norms and a loss: ops of autocast's lower, full and widest lists."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.out_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, 7, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return self.head(self.out_norm(x + F.gelu(self.out(y))))


class Shared(nn.Module):
    """One weight used twice: autocast casts it once."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.relu(self.linear(x)))


class Inside(nn.Module):
    """Regions of its own: on, and off again inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = self.first(x)
            with torch.autocast(x.device.type, enabled=False):
                z = self.second(y.float())
            w = y @ self.second.weight
        return z, w + z.sum()


def step(call: Callable[..., Any], model: nn.Module, x: Tensor, *, ambient: bool, backward_inside: bool) -> Any:
    """Output and gradients of one step."""
    leaf = x.clone().requires_grad_()
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=ambient):
        found = call(leaf)
        outputs = found if isinstance(found, tuple) else (found,)
        loss = torch.stack([o.float().square().mean() for o in outputs]).sum()
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    gradients = [leaf.grad, *(p.grad for p in model.parameters())]
    model.zero_grad()
    return [o.detach() for o in outputs], gradients


def compare(ours: Any, theirs: Any) -> None:
    """Equal dtypes; values within bfloat16's resolution of each tensor's largest."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2 * float(b.abs().max()) + 1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backward_inside", [False, True])
@pytest.mark.parametrize(("kind", "shape"), [(Block, (2, 12, 32)), (Shared, (5, 16)), (Inside, (5, 16))])
def test_step_under_autocast(kind: type[nn.Module], shape: tuple[int, ...], backward_inside: bool, device: str) -> None:
    """Two steps; then a step without autocast, which is another compilation."""
    model = kind().to(device)
    eager, compiled = twin_of(model), flambeau.compile(model)
    x = torch.randn(shape, device=device)
    for ambient in (True, True, False):
        arguments = {"ambient": ambient, "backward_inside": backward_inside}
        ours, theirs = step(compiled, model, x, **arguments), step(eager, eager, x, **arguments)
        compare(ours[0], theirs[0])
        compare(ours[1], theirs[1])


@pytest.mark.parametrize("device", DEVICES)
def test_shared_weight_is_cast_once(device: str) -> None:
    """Both uses meet in one half-precision gradient, as with eager's cache of casts: the result is the same to the bit."""
    model = Shared().to(device)
    eager, compiled = twin_of(model), flambeau.compile(model)
    x = torch.randn(5, 16, device=device)
    for cache in (True, False):
        for call in (compiled, eager):
            with torch.autocast(device, dtype=torch.bfloat16, cache_enabled=cache):
                call(x).float().sum().backward()
        for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=0 if device == "cpu" else 1e-2, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_grad_scaler(device: str) -> None:
    """Five scaled steps, one with an overflow that the scaler must skip: losses, scale and weights equal eager's."""
    model = Block().to(device)
    models = [model, twin_of(model)]
    batches = [torch.randn(2, 12, 32, device=device) for _ in range(5)]
    labels = torch.randint(0, 7, (2, 12), device=device)
    found = []
    for module, call in ((models[0], flambeau.compile(models[0])), (models[1], models[1])):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2)
        losses = []
        for number, batch in enumerate(batches):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(call(batch).flatten(0, 1), labels.flatten())
            scaler.scale(loss * (float("inf") if number == 2 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        found.append((losses, scaler.get_scale()))
    assert found[0][1] == found[1][1]
    compare(found[0][0], found[1][0])
    compare([p.detach() for p in models[0].parameters()], [p.detach() for p in models[1].parameters()])


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_penalty_under_autocast(device: str) -> None:
    """The backward is differentiated again, outside the region: the forward that is run for it is cast as the first one was."""
    model = Shared().to(device)
    eager = twin_of(model)
    x = torch.randn(5, 16, device=device)
    found = []
    for module, call in ((model, flambeau.compile(model)), (eager, eager)):
        leaf = x.clone().requires_grad_()
        with torch.autocast(device, dtype=torch.bfloat16):
            out = call(leaf)
        assert out.dtype == torch.bfloat16
        (gradient,) = torch.autograd.grad(out.float().sum(), leaf, create_graph=True)
        assert not torch.is_autocast_enabled(device)
        (gradient.norm(dim=-1) - 1).square().mean().backward()
        found.append([gradient.detach(), *(p.grad for p in module.parameters() if p.grad is not None)])
    compare(*found)
