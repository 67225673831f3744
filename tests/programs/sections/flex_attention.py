"""`flex_attention`: scores, block masks, grouped heads, captured buffers, the log-sum-exp, gradients, changing lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, or_masks

from ..registry import Made, program

SECTION = "flex_attention"


def _qkv(length: int = 16, heads: int = 2, kv_heads: int | None = None, width: int = 8) -> tuple[Tensor, ...]:
    return tuple(torch.randn(1, h, length, width) for h in (heads, kv_heads or heads, kv_heads or heads))


def _on_gpu() -> tuple[Tensor, ...]:
    """A CPU has no backward of `flex_attention`."""
    return tuple(part.cuda().requires_grad_() for part in _qkv(128, width=16))


def _causal(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
    return q >= kv


@program(SECTION)
def flex_plain() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v)

    return f, [_qkv(), _qkv(24)]


@program(SECTION)
def flex_with_relative_bias() -> Made:
    def bias(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return score + (q - kv) * 0.1

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=bias)

    return f, [_qkv()]


@program(SECTION)
def flex_with_alibi_slopes() -> Made:
    slopes = torch.tensor([0.5, 0.25])

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def alibi(score: Tensor, b: Tensor, h: Tensor, qi: Tensor, ki: Tensor) -> Tensor:
            return score - slopes[h] * (qi - ki).abs()

        return flex_attention(q, k, v, score_mod=alibi)

    return f, [_qkv()]


@program(SECTION)
def flex_with_a_causal_block_mask() -> Made:
    mask = create_block_mask(_causal, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask)

    return f, [_qkv()]


@program(SECTION)
def flex_with_a_block_mask_argument() -> Made:
    def window(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return (q - kv).abs() <= 4

    masks = [create_block_mask(m, None, None, 16, 16, device="cpu", BLOCK_SIZE=8) for m in (_causal, window)]

    def f(q: Tensor, k: Tensor, v: Tensor, mask: object) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask)

    return f, [(*_qkv(), masks[0]), (*_qkv(), masks[0])]


@program(SECTION)
def flex_making_the_mask_inside() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = create_block_mask(_causal, None, None, q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=8)
        return flex_attention(q, k, v, block_mask=mask)

    return f, [_qkv()]


@program(SECTION)
def flex_with_documents() -> Made:
    document = torch.tensor([0] * 6 + [1] * 10)

    def same(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return document[q] == document[kv]

    mask = create_block_mask(and_masks(_causal, same), None, None, 16, 16, device="cpu", BLOCK_SIZE=8)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask, scale=0.3)

    return f, [_qkv()]


@program(SECTION)
def flex_with_grouped_heads() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, enable_gqa=True)

    return f, [_qkv(heads=4, kv_heads=2)]


@program(SECTION)
def flex_returning_the_lse() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return flex_attention(q, k, v, return_lse=True)

    return f, [_qkv()]


@program(SECTION, needs="cuda")
def flex_with_gradients() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 0.5)

    return f, [_on_gpu()]


@program(SECTION, raises=True)
def flex_with_gradients_on_a_cpu() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k * 2, v)

    return f, [tuple(part.requires_grad_() for part in _qkv())]


@program(SECTION, needs="cuda")
def flex_with_a_learned_bias() -> Made:
    bias = nn.Parameter(torch.randn(2, 128, 128, device="cuda"))

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + bias[h, i, j]

        return flex_attention(q, k, v, score_mod=add)

    return f, [_on_gpu()], bias


@program(SECTION)
def flex_soft_capped() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor, cap: float) -> Tensor:
        def soft(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return cap * torch.tanh(score / cap)

        return flex_attention(q, k, v, score_mod=soft)

    return f, [(*_qkv(), 20.0), (*_qkv(), 5.0)]


@program(SECTION)
def flex_in_a_module() -> Made:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.mask = create_block_mask(_causal, None, None, 8, 8, device="cpu", BLOCK_SIZE=8)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (p.unflatten(-1, (2, 8)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
            return self.out(flex_attention(q, k, v, block_mask=self.mask).transpose(1, 2).flatten(2))

    return Attention().requires_grad_(False), [(torch.randn(2, 8, 16),)]


@program(SECTION)
def flex_over_changing_lengths() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def mask(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i >= j, score, -float("inf"))

        return flex_attention(q, k, v, score_mod=mask)

    return f, [_qkv(8), _qkv(12), _qkv(20)]


@program(SECTION)
def flex_with_a_prefix_mask() -> Made:
    prefix = torch.tensor([4])

    def within(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return kv < prefix[b]

    mask = create_block_mask(or_masks(within, _causal), 1, None, 16, 16, device="cpu", BLOCK_SIZE=8)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask)

    return f, [_qkv()]
