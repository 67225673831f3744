"""A compiled backward lets go of what the forward saved as soon as it was used, unless the graph is kept."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from flambeau_runtime.artifact import Free


@pytest.mark.parametrize("keep", [False, True])
def test_saved_tensors_die_with_the_backward(keep: bool) -> None:
    """After a backward nothing that was saved is alive; with `retain_graph=True` it is, and a second backward works."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    compiled = flambeau.compile(model)
    compiled(torch.randn(4, 8)).sum().backward()
    alive: list[weakref.ref[Tensor]] = []

    def pack(tensor: Tensor) -> Tensor:
        if not any(tensor is p for p in model.parameters()):
            alive.append(weakref.ref(tensor))
        return tensor

    x = torch.randn(4, 8)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = compiled(x).sum()
    del x
    loss.backward(retain_graph=keep)
    gc.collect()
    if keep:
        loss.backward()
    else:
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    gc.collect()
    assert alive and not any(ref() is not None for ref in alive)


def test_backward_frees_as_it_goes() -> None:
    """The backward's program drops each saved activation before the layers in front of it have run."""
    layers = 6
    model = nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(16, 16), nn.Tanh())))
    recorder = Recorder()
    compile_recorded(model, recorder)(torch.randn(4, 16)).sum().backward()
    (backward,) = (p.artifact.program for p in recorder.programs if p.kind == "backward")
    given = {spec.register for spec in backward.inputs if spec.kind == "tensor"}
    freed = [len(given.intersection(i.regs)) if isinstance(i, Free) else 0 for i in backward.instructions]
    half = len(freed) // 2
    assert sum(freed) >= layers + 1, backward
    assert sum(freed[:half]) >= layers // 2, freed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_peak_is_not_above_eager(precision: str) -> None:
    """Peak bytes of a training step of a deep residual network, without and with autocast."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.wide, self.narrow = nn.LayerNorm(512), nn.Linear(512, 2048), nn.Linear(2048, 512)

        def forward(self, x: Tensor) -> Tensor:
            return x + F.dropout(self.narrow(F.gelu(self.wide(self.norm(x)))), 0.1, self.training)

    model = nn.Sequential(*(Residual() for _ in range(8))).cuda()
    x = torch.randn(16, 512, 512, device="cuda")
    peaks = []
    for call in (model, flambeau.compile(model)):
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "autocast"):
                loss = call(x).float().square().mean()
            loss.backward()
            del loss
            peak = torch.cuda.max_memory_allocated() - before
        peaks.append(peak)
    assert peaks[1] <= peaks[0] * 1.02, peaks
