"""What a compiled forward keeps for its backward is never more than what eager keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import flambeau
from tests.comparison import twin_of
from tests.models import zoo


def kept_bytes(call: Callable[[], Any], held: list[Tensor]) -> int:
    """Bytes of the storages that autograd saves during `call`, without those of `held` (parameters, buffers, inputs)."""
    known = {tensor.untyped_storage().data_ptr() for tensor in held}
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    total = sum(tensor.untyped_storage().nbytes() for tensor in found.values())
    del result
    return total


@pytest.mark.parametrize("name", [name for name in zoo.ZOO if name != "moe"])
def test_model_keeps_no_more_than_eager(name: str) -> None:
    """Every shared model in training mode; the second compiled call, after everything was compiled."""
    case = zoo.make(name)
    model = case.model.train()
    held = [*model.parameters(), *model.buffers(), *(v for v in case.inputs.values() if isinstance(v, Tensor))]
    eager = kept_bytes(lambda: case.loss(model(**case.inputs)), held)
    compiled = flambeau.compile(model)
    case.loss(compiled(**case.inputs)).backward()
    ours = kept_bytes(lambda: case.loss(compiled(**case.inputs)), held)
    assert 0 < ours <= eager


def test_hooks_see_the_compiled_graph_only() -> None:
    """A first call under hooks, which compiles, shows them what later calls show: real tensors that the backward needs."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    compiled = flambeau.compile(model)
    x = torch.randn(4, 8)
    seen: list[list[tuple[int, ...]]] = []
    for _ in range(2):
        shapes: list[tuple[int, ...]] = []

        def pack(tensor: Tensor, shapes: list[tuple[int, ...]] = shapes) -> Tensor:
            assert type(tensor) in (Tensor, torch.nn.Parameter)
            shapes.append(tuple(tensor.shape))
            return tensor.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = compiled(x).square().sum()
        loss.backward()
        seen.append(shapes)
    assert seen[0] == seen[1]
    eager = twin_of(model)
    eager.zero_grad()
    eager(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, 2 * theirs.grad)


def test_checkpoint_region_keeps_its_inputs_only() -> None:
    """Attention without dropout is computed again in a checkpointed region; what a mask needs is kept, the numbers are eager's."""

    class Block(torch.nn.Module):
        def __init__(self, p: float) -> None:
            super().__init__()
            self.wide, self.out, self.p = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32), p

        def inner(self, x: Tensor) -> Tensor:
            q, k, v = self.wide(x).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p).transpose(1, 2).reshape(x.shape)
            return x + F.dropout(self.out(y), self.p, self.p > 0)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False).sin()

    for p, limit in ((0.0, 2 * 16 * 32), (0.3, 2 * 2 * 16 * 32 + 2 * 4 * 16 * 16)):
        model = Block(p)
        eager, compiled = twin_of(model), flambeau.compile(model)
        x = torch.randn(2, 16, 32)
        results = []
        for module, call in ((model, compiled), (eager, eager)):
            torch.manual_seed(0)
            leaf = x.clone().requires_grad_()
            call(leaf).square().sum().backward()
            results.append([leaf.grad, *(q.grad for q in module.parameters())])
        torch.testing.assert_close(results[0], results[1])
        leaf = x.clone().requires_grad_()
        assert kept_bytes(functools.partial(compiled, leaf), [*model.parameters()]) <= 4 * limit
