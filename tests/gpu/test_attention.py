"""Attention written out, and the library's under computed masks, on a GPU: results and gradients against float64, and no memory for all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LENGTH = 1024


def distances(q: Tensor, k: Tensor) -> Tensor:
    """Key less query, by position."""
    return torch.arange(k.shape[-2], device=q.device) - torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)


def written(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """A sliding window, two heads to one of keys."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    d = distances(q, k)
    return torch.softmax((q @ k.mT * 0.125).masked_fill((d > 0) | (d <= -200), -math.inf), -1) @ v


def padded(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """The library's, under a causal mask and what is known of keys."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(distances(q, k) <= 0) & exists[:, None, None, :])


def with_empty_rows(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """Rows of which nothing takes part: 0, or in cuDNN, to which torch says the least number for what is masked, the mean of all values."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=distances(q, k) <= -5)


def with_rows_of_all(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """The same as cuDNN has it."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    d = distances(q, k)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=(d <= -5) | (torch.arange(LENGTH, device=q.device) < 5).unsqueeze(-1)
    )


def biased(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """The library's, with a number in memory for each pair."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


def plain(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """The library's, without a mask."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v)


def causal(q: Tensor, k: Tensor, v: Tensor, exists: Tensor, bias: Tensor) -> Tensor:
    """The library's causal mask."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


FUNCTIONS = [written, padded, with_empty_rows, biased, plain, causal]


@pytest.mark.parametrize("rows", ["of a head together", "of a query together"])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_training(function: Callable[..., Tensor], width: int, rows: str) -> None:
    """Whatever the layout of the result's gradient: torch computes cuDNN's gradients wrongly in eager for all but the first that it sees, so that only the exact ones count."""
    torch.manual_seed(0)
    made = [torch.randn(2, LENGTH, heads, width, device="cuda", dtype=torch.bfloat16) for heads in (4, 2, 2, 4)]
    *operands, tangent = (x.transpose(1, 2) for x in made)
    if rows == "of a head together":
        tangent = tangent.contiguous()
    exists = torch.arange(LENGTH, device="cuda") < torch.tensor([[LENGTH], [700]], device="cuda")
    bias = torch.randn(LENGTH, LENGTH, device="cuda")
    found: dict[str, list[Tensor]] = {}
    for name, run, dtype in (
        ("exact", function, torch.float64),
        ("other", with_rows_of_all if function is with_empty_rows else function, torch.float64),
        ("eager", function, torch.bfloat16),
        ("ours", flambeau.compile(function, fullgraph=True), torch.bfloat16),
    ):
        leaves = [x.detach().to(dtype).requires_grad_() for x in operands]
        out = run(*leaves, exists, bias)
        found[name] = [out.detach(), *torch.autograd.grad(out, leaves, tangent.to(dtype))]
    assert all(
        ours.isfinite().all() and ours.stride() == eager.stride()
        for ours, eager in zip(found["ours"], found["eager"], strict=True)
    )
    errors = (_largest_error(found["ours"], found[exact]) for exact in ("exact", "other"))
    assert min(errors) < 1e-2


def _largest_error(found: list[Tensor], exact: list[Tensor]) -> float:
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


def test_memory() -> None:
    """Less than a tensor of a number for each pair takes."""
    operands = [torch.randn(1, 8, 4096, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    run = flambeau.compile(lambda q, k, v: torch.softmax(q @ k.mT * 0.125, -1) @ v, fullgraph=True)
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        torch.autograd.grad(run(*operands).sum(), operands)
        used = torch.cuda.max_memory_allocated() - held
    assert used < 2 * 8 * 4096 * 4096 / 4
