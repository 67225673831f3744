"""torchvision's convolutional networks with random weights.

In: a name of `NETWORKS`. Out: the network and one batch, made on torch's default device. torchvision is needed only when one of
them is made: `available()` says whether it is there.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor, nn

#: Name in the tables -> torchvision's name.
NETWORKS = {
    "tv_resnet18": "resnet18",
    "tv_resnet50": "resnet50",
    "tv_resnext50": "resnext50_32x4d",
    "tv_mobilenet_v2": "mobilenet_v2",
    "tv_mobilenet_v3": "mobilenet_v3_large",
    "tv_efficientnet_b0": "efficientnet_b0",
    "tv_densenet121": "densenet121",
    "tv_regnet_y_400mf": "regnet_y_400mf",
    "tv_shufflenet_v2": "shufflenet_v2_x1_0",
    "tv_squeezenet1_1": "squeezenet1_1",
    "tv_vgg16": "vgg16",
    "tv_convnext_tiny": "convnext_tiny",
    "tv_mnasnet1_0": "mnasnet1_0",
}
BATCH = {"real": 16, "small": 2, "tiny": 2}
SIDE = {"real": 224, "small": 96, "tiny": 64}


def available() -> bool:
    """Whether torchvision can be imported here."""
    return importlib.util.find_spec("torchvision") is not None


def make(name: str, scale: str) -> tuple[nn.Module, Tensor]:
    """A network in eval mode and a batch of images.

    Raises:
        ModuleNotFoundError: without torchvision.
    """
    if not available():
        raise ModuleNotFoundError(f"{name} needs torchvision, which is not installed here")
    from torchvision import models

    network = models.get_model(NETWORKS[name], weights=None, num_classes=1000)
    return network.eval(), torch.randn(BATCH[scale], 3, SIDE[scale], SIDE[scale])
