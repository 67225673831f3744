"""Networks over patches of an image: DeiT, and ConvMixer and MLP-Mixer as their papers have them.

In: a name of `NETWORKS`, a scale. Out: the network and one batch, made on torch's default device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

BATCH = {"real": 16, "small": 2, "tiny": 2}
SIDE = {"real": 224, "small": 64, "tiny": 32}


class Residual(nn.Module):
    """What a function adds to its argument."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.function(x)
        return out


def _conv_mixer(scale: str) -> nn.Module:
    """Patches of 7, then a depthwise convolution of 9 x 9 and one of 1 x 1 in turn, each with GELU and batch norm."""
    width, depth, patch = {"real": (1536, 20, 7), "small": (64, 4, 4), "tiny": (16, 2, 4)}[scale]

    def finished(convolution: nn.Module) -> nn.Sequential:
        return nn.Sequential(convolution, nn.GELU(), nn.BatchNorm2d(width))

    layers = [finished(nn.Conv2d(3, width, patch, patch))]
    for _ in range(depth):
        depthwise = finished(nn.Conv2d(width, width, 9, groups=width, padding="same"))
        layers += [nn.Sequential(Residual(depthwise)), finished(nn.Conv2d(width, width, 1))]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000 if scale == "real" else 10))
    return nn.Sequential(*layers, head)


class MixerLayer(nn.Module):
    """Two layers over the patches for each channel, then two over the channels for each patch."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.patches, self.channels = (
            nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))
            for size, hidden in ((patches, width // 2), (width, 4 * width))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.channels(self.norms[1](x))
        return out


class Mixer(nn.Module):
    """MLP-Mixer."""

    def __init__(self, side: int, patch: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.Sequential(*(MixerLayer((side // patch) ** 2, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        out: Tensor = self.head(self.norm(self.layers(tokens)).mean(dim=1))
        return out


def _mixer(scale: str) -> nn.Module:
    width, depth, patch = {"real": (768, 12, 16), "small": (64, 4, 8), "tiny": (16, 2, 8)}[scale]
    return Mixer(SIDE[scale], patch, width, depth, 1000 if scale == "real" else 10)


def _deit(scale: str) -> nn.Module:
    from transformers import DeiTConfig, DeiTForImageClassification

    width, layers, heads, patch = {"real": (768, 12, 12, 16), "small": (64, 3, 4, 8), "tiny": (16, 2, 2, 8)}[scale]
    config = DeiTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=SIDE[scale], patch_size=patch, num_labels=1000 if scale == "real" else 10,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return DeiTForImageClassification(config)


#: Name in the tables -> the network at a scale.
NETWORKS: dict[str, Callable[[str], nn.Module]] = {"deit": _deit, "convmixer": _conv_mixer, "mixer": _mixer}


def make(name: str, scale: str) -> tuple[nn.Module, Tensor]:
    """A network in eval mode and a batch of images."""
    return NETWORKS[name](scale).eval(), torch.randn(BATCH[scale], 3, SIDE[scale], SIDE[scale])
