"""`flex_attention` with the masks that people write it for.

In: a name of `ATTENTION`, a scale. Out: a module that holds query, key and value as parameters, so that a training step has their
gradients, and calls `flex_attention` with its block mask; made on torch's default device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS = 8
#: How many keys of the past a query of a sliding window sees, and how many tokens a document has.
WINDOW, DOCUMENT = 1024, 768
#: By what the lengths in the names are divided.
SHRUNK = {"real": 1, "small": 8, "tiny": 32}
_Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The past."""
    return query >= key


def window(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The near past."""
    return (query >= key) & (query - key < WINDOW)


def document(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The past of the same document."""
    return (query >= key) & (query // DOCUMENT == key // DOCUMENT)


#: Name in the tables -> the mask, how many tokens, and how wide a head is: 64 where the name does not say it.
ATTENTION: dict[str, tuple[_Mask, int, int]] = {
    f"flex_{mask.__name__}_{length // 1024}k" + (f"_{width}" if width != 64 else ""): (mask, length, width)
    for length, width in ((4096, 64), (8192, 64), (4096, 128))
    for mask in (causal, window, document)
}


class FlexAttention(nn.Module):
    """Attention of one batch whose operands are its parameters."""

    def __init__(self, mask: _Mask, length: int, width: int, train: bool) -> None:
        super().__init__()
        # The CPU refuses operands that require gradients, whether or not any is asked for.
        made = [nn.Parameter(torch.randn(1, HEADS, length, width), requires_grad=train) for _ in range(3)]
        self.query, self.key, self.value = made
        device = str(self.query.device)
        self.block_mask = create_block_mask(mask, None, None, length, length, device=device)

    def forward(self) -> Tensor:
        out: Tensor = flex_attention(self.query, self.key, self.value, block_mask=self.block_mask)
        return out


def make(name: str, scale: str, train: bool) -> nn.Module:
    """One of `ATTENTION`, in float32; to be trained on a GPU alone."""
    mask, length, width = ATTENTION[name]
    return FlexAttention(mask, length // SHRUNK[scale], width, train)
