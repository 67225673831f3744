"""Ordinary code of language models: attention, caches, routing, decoding."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "ordinary models"


@program(SECTION)
def multi_head_attention() -> Made:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            b, t, c = x.shape
            q, k, v = (p.view(b, t, 2, c // 2).transpose(1, 2) for p in self.qkv(x).split(c, -1))
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // 2)
            scores = scores.masked_fill(torch.ones(t, t).tril() == 0, float("-inf"))
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))

    return Attention(), [(torch.randn(2, 4, 8),), (torch.randn(2, 6, 8),), (torch.randn(2, 7, 8),)]


@program(SECTION)
def attention_by_the_library() -> Made:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    return lambda x: layer(x, x, x, need_weights=True), [(torch.randn(2, 4, 8),)], layer


@program(SECTION)
def transformer_encoder_layer() -> Made:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), [(torch.randn(2, 4, 8),)]


@program(SECTION)
def cross_attention_with_a_padding_mask() -> Made:
    def f(q: Tensor, kv: Tensor, lengths: Tensor) -> Tensor:
        valid = torch.arange(kv.shape[1]) < lengths[:, None]
        return F.scaled_dot_product_attention(q, kv, kv, attn_mask=valid[:, None])

    return f, [(torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.tensor([5, 2]))]


@program(SECTION)
def rotary_embedding() -> Made:
    def rotate(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    def f(x: Tensor) -> Tensor:
        t, d = x.shape[-2:]
        freqs = 1 / (10000 ** (torch.arange(0, d, 2).float() / d))
        angles = torch.outer(torch.arange(t).float(), freqs).repeat(1, 2)
        return x * angles.cos() + rotate(x) * angles.sin()

    return f, [(torch.randn(1, 2, 4, 8),), (torch.randn(1, 2, 6, 8),)]


@program(SECTION)
def rotary_by_complex_numbers() -> Made:
    freqs = torch.polar(torch.ones(4, 2), torch.outer(torch.arange(4.0), torch.tensor([1.0, 0.1])))

    def f(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs).flatten(-2).type_as(x)

    return f, [(torch.randn(2, 4, 4),)]


@program(SECTION)
def sinusoidal_positions_cached() -> Made:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: dict[int, Tensor] = {}

        def forward(self, x: Tensor) -> Tensor:
            n = x.shape[1]
            if n not in self.cache:
                steps = torch.arange(n).unsqueeze(1) * torch.exp(torch.arange(0, 4, 2) * (-math.log(1e4) / 4))
                self.cache[n] = torch.cat((steps.sin(), steps.cos()), 1)
            return x + self.cache[n]

    return Positions(), [(torch.randn(2, 3, 4),), (torch.randn(2, 3, 4),), (torch.randn(2, 5, 4),)]


@program(SECTION)
def alibi_bias() -> Made:
    def f(scores: Tensor) -> Tensor:
        h, t = scores.shape[1], scores.shape[-1]
        slopes = torch.tensor([2 ** (-8 * (i + 1) / h) for i in range(h)])
        distance = torch.arange(t)[None] - torch.arange(t)[:, None]
        return (scores + slopes[:, None, None] * distance).softmax(-1)

    return f, [(torch.randn(1, 2, 4, 4),), (torch.randn(1, 2, 5, 5),)]


@program(SECTION)
def static_kv_cache() -> Made:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(4, 12)
            self.register_buffer("k", torch.zeros(1, 8, 4))
            self.register_buffer("v", torch.zeros(1, 8, 4))

        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            q, k, v = self.proj(x).chunk(3, -1)
            self.k.index_copy_(1, position, k)
            self.v.index_copy_(1, position, v)
            mask = torch.arange(8) <= position[:, None]
            return F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)

    model = Cached().requires_grad_(False)
    return model, [(torch.randn(1, 1, 4), torch.tensor([i])) for i in range(3)]


@program(SECTION)
def growing_kv_cache() -> Made:
    def f(x: Tensor, past: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        k, v = x * 2, x * 3
        if past is not None:
            k, v = torch.cat((past[0], k), 1), torch.cat((past[1], v), 1)
        return F.scaled_dot_product_attention(x, k, v), [k, v]

    start = [torch.randn(1, 2, 4), torch.randn(1, 2, 4)]
    longer = [torch.randn(1, 3, 4), torch.randn(1, 3, 4)]
    return f, [(torch.randn(1, 1, 4), None), (torch.randn(1, 1, 4), start), (torch.randn(1, 1, 4), longer)]


@program(SECTION)
def rms_norm_and_swiglu() -> Made:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.up, self.gate, self.down = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    return Block(), [(torch.randn(2, 3, 4),)]


@program(SECTION)
def routing_to_experts_dense() -> Made:
    class Moe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
            mask = F.one_hot(chosen, 3).float() * weights.unsqueeze(-1)
            return sum(mask[..., i].sum(-1, keepdim=True) * e(x) for i, e in enumerate(self.experts))

    return Moe(), [(torch.randn(5, 4),)]


@program(SECTION)
def routing_to_experts_by_index() -> Made:
    class Moe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            weight, chosen = self.gate(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows = torch.where(chosen == i)[0]
                out.index_add_(0, rows, expert(x[rows]) * weight[rows, None])
            return out

    return Moe(), [(torch.randn(5, 4),)]


@program(SECTION)
def greedy_decoding() -> Made:
    embed, head = nn.Embedding(10, 4), nn.Linear(4, 10)

    def f(ids: Tensor) -> Tensor:
        with torch.no_grad():
            for _ in range(3):
                logits = head(embed(ids).mean(1))
                ids = torch.cat((ids, logits.argmax(-1, keepdim=True)), 1)
        return ids

    return f, [(torch.tensor([[1, 2]]),), (torch.tensor([[3, 4, 5]]),)]


@program(SECTION)
def sampling_with_top_k_and_top_p() -> Made:
    def f(logits: Tensor, k: int, p: float) -> Tensor:
        values, _ = logits.topk(k)
        logits = logits.masked_fill(logits < values[..., -1:], -math.inf)
        ordered, where = logits.sort(descending=True)
        drop = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1) > p
        logits = logits.masked_fill(drop.scatter(-1, where, drop), -math.inf)
        return torch.multinomial(logits.softmax(-1), 1)

    return f, [(torch.randn(2, 8), 4, 0.9), (torch.randn(2, 8), 4, 0.9)]


@program(SECTION)
def beam_search_step() -> Made:
    def f(scores: Tensor, logits: Tensor, sequences: Tensor) -> tuple[Tensor, Tensor]:
        b, vocabulary = logits.shape
        total = scores[:, None] + logits.log_softmax(-1)
        best, flat = total.flatten().topk(b)
        beams = torch.div(flat, vocabulary, rounding_mode="floor")
        return best, torch.cat((sequences[beams], (flat % vocabulary)[:, None]), 1)

    return f, [(torch.zeros(3), torch.randn(3, 5), torch.zeros(3, n, dtype=torch.int64)) for n in (1, 2, 3)]


@program(SECTION)
def lora_layer() -> Made:
    class Lora(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(4, 4).requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(4, 2))
            self.merged, self.scale = False, 0.5

        def forward(self, x: Tensor) -> Tensor:
            out = self.base(x)
            return out if self.merged else out + (x @ self.a.T @ self.b.T) * self.scale

    return Lora(), [(torch.randn(2, 4),)]


@program(SECTION)
def embedding_with_tied_weights() -> Made:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8, 4, padding_idx=0)
            self.head = nn.Linear(4, 8, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids).cumsum(1))

    return Tied(), [(torch.tensor([[1, 2, 0], [3, 4, 5]]),)]


@program(SECTION)
def causal_linear_attention() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        state = torch.zeros(q.shape[0], q.shape[-1], v.shape[-1])
        outs = []
        for i in range(q.shape[1]):
            state = 0.9 * state + k[:, i, :, None] * v[:, i, None]
            outs.append((q[:, i, None] @ state).squeeze(1))
        return torch.stack(outs, 1)

    return f, [tuple(torch.randn(2, 4, 3, requires_grad=True) for _ in range(3))]


@program(SECTION)
def sliding_window_mask() -> Made:
    def f(scores: Tensor, window: int) -> Tensor:
        i = torch.arange(scores.shape[-1])
        near = (i[:, None] - i[None]).abs() < window
        return torch.where(near, scores, torch.finfo(scores.dtype).min).softmax(-1)

    return f, [(torch.randn(5, 5), 2), (torch.randn(5, 5), 3)]
