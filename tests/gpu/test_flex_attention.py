"""Attention with score and mask functions on a GPU: results and gradients against the formulas in float64, and no tensor of both lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import flambeau

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def causal(b: Any, h: Any, m: Any, n: Any) -> Any:
    return m >= n


def window(b: Any, h: Any, m: Any, n: Any) -> Any:
    return (m >= n) & (m - n < 200)


def not_the_first(b: Any, h: Any, m: Any, n: Any) -> Any:
    return m > 3


def everything(b: Any, h: Any, m: Any, n: Any) -> Any:
    return m >= 0


def halved(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    return s / 2


def capped(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    return 10 * torch.tanh(s / 10)


def sloped(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    return s + (n - m) * 0.01 * (h + 1)


def formula(q: Tensor, k: Tensor, v: Tensor, score: Callable[..., Any] | None, mask: Callable[..., Any]) -> Tensor:
    """In the precision of its operands."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    sizes = (*q.shape[:3], k.shape[2])
    places = [
        torch.arange(n, device=q.device).view([-1 if d == at else 1 for d in range(4)]) for at, n in enumerate(sizes)
    ]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores if score is None else score(scores, *places)
    keep = mask(*places)
    shares = scores.masked_fill(~keep, -1e30).softmax(-1).masked_fill(~keep, 0)
    return shares @ v


def close(found: Tensor, wanted: Tensor) -> None:
    """Relative to the whole: single elements round where they are summed."""
    error = (found.double() - wanted).norm() / wanted.norm()
    assert found.isfinite().all() and error < (1e-2 if found.dtype is torch.bfloat16 else 2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("heads", "lengths", "widths", "score", "mask"),
    [
        ((4, 4), (1024, 1024), (64, 64), None, causal),
        ((4, 2), (1000, 1000), (64, 64), sloped, window),
        ((2, 1), (300, 700), (128, 64), capped, not_the_first),
        ((2, 2), (512, 512), (256, 256), None, causal),
        ((2, 2), (257, 257), (96, 40), capped, causal),
        ((16, 16), (2048, 2048), (128, 128), None, causal),
        ((16, 4), (1500, 2048), (128, 128), halved, everything),
    ],
)
def test_results_and_gradients(
    heads: tuple[int, int],
    lengths: tuple[int, int],
    widths: tuple[int, int],
    score: Callable[..., Any] | None,
    mask: Callable[..., Any],
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    shapes = [
        (2, heads[0], lengths[0], widths[0]),
        (2, heads[1], lengths[1], widths[0]),
        (2, heads[1], lengths[1], widths[1]),
    ]
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes)
    blocks = create_block_mask(mask, None, None, *lengths, device="cuda")
    compiled = flambeau.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=True), fullgraph=True
    )
    out = compiled(q, k, v)
    grad = torch.randn_like(out)
    out.backward(grad)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = formula(*wide, score, mask)
    wanted.backward(grad.double())
    close(out, wanted.detach())
    for x, y in zip((q, k, v), wide, strict=True):
        assert x.grad is not None and y.grad is not None
        close(x.grad, y.grad)


def test_documents_in_a_table() -> None:
    """What the mask looks up is read in the kernel."""
    length = 1024
    document = torch.arange(length, device="cuda") // 300
    q, k, v = (torch.randn(1, 2, length, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def mask(b: Any, h: Any, m: Any, n: Any) -> Any:
        return document[m] == document[n]

    blocks = create_block_mask(mask, None, None, length, length, device="cuda")
    compiled = flambeau.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), fullgraph=True)
    close(compiled(q, k, v), formula(q.double(), k.double(), v.double(), None, mask))


def test_no_tensor_of_both_lengths() -> None:
    length = 8192
    q, k, v = (torch.randn(1, 1, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    blocks = create_block_mask(causal, None, None, length, length, device="cuda")
    compiled = flambeau.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), fullgraph=True)
    compiled(q, k, v).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    compiled(q, k, v).sum().backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 2 * length * length // 8


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="of Hopper")
def test_the_library_and_its_setting() -> None:
    """Causal attention of this size is cuDNN's, unless somebody says that it shall not be."""
    q, k, v = (torch.randn(2, 16, 2048, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    blocks = create_block_mask(causal, None, None, 2048, 2048, device="cuda")
    compiled = flambeau.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), fullgraph=True)
    for allowed in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(allowed)
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                compiled(q, k, v).sum().backward()
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)
        taken = [event.key for event in profile.key_averages() if "cudnn_attention" in event.key]
        assert bool(taken) is allowed
