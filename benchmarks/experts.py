"""A layer of experts as Mixtral has them: of eight gated feed-forwards each token takes two.

In: a name of `LAYERS`, a scale. Out: the layer in eval mode and tokens for it, made on torch's default device. Where the sizes are Mixtral 8x7B's, products take nearly
all of the time; the narrow layer is bound by what is around them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXPERTS, CHOSEN = 8, 2
#: Tokens at each scale, and by what widths are divided.
TOKENS, SHRUNK = {"real": 4096, "small": 256, "tiny": 24}, {"real": 1, "small": 16, "tiny": 128}
#: Name in the tables -> how experts are computed, width, and width of a feed-forward: by transformers' `grouped_mm`, by its loop over experts that have tokens, or by a loop
#: over all experts.
LAYERS = {
    "mixtral_layer": ("grouped_mm", 4096, 14336),
    "mixtral_layer_hits": ("eager", 4096, 14336),
    "mixtral_layer_loop": ("loop", 4096, 14336),
    "mixtral_layer_narrow": ("grouped_mm", 1024, 3584),
    "mixtral_layer_narrow_hits": ("eager", 1024, 3584),
    "mixtral_layer_narrow_loop": ("loop", 1024, 3584),
}


class Loop(nn.Module):
    """The layer as people write it by hand: each expert in turn."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.empty(EXPERTS, 2 * inner, width))
        self.down = nn.Parameter(torch.empty(EXPERTS, width, inner))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = torch.topk(torch.softmax(self.gate(tokens), dim=-1, dtype=torch.float), CHOSEN, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(tokens.dtype)
        result = torch.zeros_like(tokens)
        for number in range(EXPERTS):
            token, rank = torch.where(chosen == number)
            gate, up = F.linear(tokens[token], self.gate_up[number]).chunk(2, dim=-1)
            rows = F.linear(F.silu(gate) * up, self.down[number])
            result.index_add_(0, token, rows * weights[token, rank, None])
        return result.reshape(x.shape)


def _mixtral(form: str, width: int, inner: int) -> nn.Module:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(
        hidden_size=width, intermediate_size=inner, num_local_experts=EXPERTS, num_experts_per_tok=CHOSEN
    )
    config._experts_implementation = form
    return MixtralSparseMoeBlock(config)


def make(name: str, scale: str) -> tuple[nn.Module, Tensor]:
    """A layer with random weights, and tokens."""
    form, *widths = LAYERS[name]
    width, inner = (size // SHRUNK[scale] for size in widths)
    layer = Loop(width, inner) if form == "loop" else _mixtral(form, width, inner)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=width**-0.5)
    return layer.eval(), torch.randn(1, TOKENS[scale], width)
