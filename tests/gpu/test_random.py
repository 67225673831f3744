"""Random numbers on a CUDA device: compiled programs draw what eager draws, call after call, and leave the generator where eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau_inductor.lowering import philox

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "dropout": lambda x: F.dropout(x * 2, 0.1),
    "two": lambda x: F.dropout(F.dropout(x + 1, 0.5).relu() + x, 0.25),
    "transposed": lambda x: F.dropout((x + 1).t(), 0.3).sum(0),
    "of_an_input": lambda x: F.dropout(x, 0.5) + 1,
    "in_place_transposed": lambda x: F.dropout((x * 2).t(), 0.3, inplace=True).t() + x,
    "filled_transposed": lambda x: x.t() * torch.empty_like(x.t()).uniform_() + torch.empty_like(x.t()).bernoulli_(0.5),
    "rand": lambda x: x * torch.rand(x.shape, device=x.device) + torch.rand_like(x),
    "bernoulli": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "uniform": lambda x: x + torch.empty_like(x).uniform_(-1, 2),
    "randn": lambda x: F.dropout(x + torch.randn_like(x), 0.5) + torch.randn_like(x),
    "functional": lambda x: F.dropout1d(x[None], 0.5)[0] + F.alpha_dropout(x, 0.2),
}
SHAPES = [(67, 301), (256, 512), (1, 3), (2048, 1031), (1024, 4098)]


def run(function: Callable[[Tensor], Any], x: Tensor, calls: int) -> tuple[list[Tensor], int]:
    """Results and gradients of several calls after one seed, and where the generator stands."""
    torch.manual_seed(1234)
    found = []
    for _ in range(calls):
        leaf = x.clone().requires_grad_()
        result = function(leaf)
        result.float().square().sum().backward()
        found += [result.detach().clone(), leaf.grad]
    return found, torch.cuda.default_generators[x.device.index].get_offset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_numbers_as_eager(name: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Values, gradients (the backward sees the forward's mask) and the generator's offset after three calls."""
    function = FUNCTIONS[name]
    x = torch.randn(shape, device="cuda").to(dtype)
    expected, offset = run(function, x, 3)
    actual, reached = run(flambeau.compile(function), x, 3)
    assert reached == offset
    loose = {torch.float16: 2e-2, torch.bfloat16: 1e-1}.get(dtype, 1e-4)
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.equal(ours == 0, theirs == 0) or name == "functional"
        torch.testing.assert_close(ours, theirs, rtol=loose, atol=loose)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("vector", [1, 2, 4, 8])
def test_eager_deals_as_described(dtype: torch.dtype, vector: int) -> None:
    """What in-kernel dropout relies on holds for this torch and this device; where not, dropout would be a library call."""
    if vector > 16 // dtype.itemsize:
        pytest.skip("wider than 16 bytes")
    assert philox.agrees(torch.device("cuda", 0), "dropout", dtype, vector)
    assert philox.agrees(torch.device("cuda", 0), "uniform", torch.float32, 1)


def test_in_kernel() -> None:
    """Dropout of an intermediate is no library call."""
    report = flambeau.compile(lambda x: F.dropout(x.relu(), 0.5))
    x = torch.randn(64, 64, device="cuda")
    with torch.no_grad():
        report(x)
        names: list[str] = []
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            report(x)
            torch.cuda.synchronize()
        names = [event.key for event in profile.key_averages()]
    assert not any("fused_dropout" in name for name in names), names


class Block(nn.Module):
    """A transformer block with every kind of dropout."""

    def __init__(self, width: int, p: float) -> None:
        super().__init__()
        self.norm, self.out_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop, self.p = nn.Dropout(p), p

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.narrow(self.drop(F.gelu(self.wide(self.out_norm(x))))))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
def test_block_trains_as_eager(precision: str) -> None:
    """Three steps of a transformer block with dropout, attention's included, under each precision."""
    torch.manual_seed(0)
    models = [Block(64, 0.2).cuda(), Block(64, 0.2).cuda()]
    models[1].load_state_dict(models[0].state_dict())
    if precision == "bfloat16":
        models = [m.bfloat16() for m in models]
    x = torch.randn(4, 32, 64, device="cuda", dtype=next(models[0].parameters()).dtype)
    losses, gradients, offsets = [], [], []
    for model, call in ((models[0], models[0]), (models[1], flambeau.compile(models[1]))):
        torch.manual_seed(7)
        own = []
        for _ in range(3):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "autocast"):
                loss = call(x).float().square().mean()
            loss.backward()
            own.append(loss.detach())
        losses.append(torch.stack(own))
        gradients.append([p.grad.clone() for p in model.parameters()])
        offsets.append(torch.cuda.default_generators[0].get_offset())
    assert offsets[0] == offsets[1]
    loose = 1e-4 if precision == "float32" else 3e-2
    torch.testing.assert_close(losses[1], losses[0], rtol=loose, atol=loose)
    for ours, theirs in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=10 * loose, atol=loose * float(theirs.abs().max()) + 1e-6)


def test_under_a_cuda_graph() -> None:
    """A captured program draws new numbers at each replay, the ones that eager draws."""
    compiled = flambeau.compile(lambda x: F.dropout(x + 1, 0.5))
    x = torch.randn(512, 300, device="cuda")
    with torch.no_grad():
        compiled(x)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(x)
        torch.manual_seed(3)
        found = []
        for _ in range(3):
            graph.replay()
            found.append(out.clone())
        reached = torch.cuda.default_generators[0].get_offset()
        torch.manual_seed(3)
        expected = [F.dropout(x + 1, 0.5) for _ in range(3)]
    assert torch.cuda.default_generators[0].get_offset() == reached
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
