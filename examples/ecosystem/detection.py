"""torchvision: a detector in inference, with boxes that depend on the data, and its losses in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign


class Backbone(torch.nn.Sequential):
    """Images to a map of sixteen channels, an eighth as wide."""

    out_channels = 16


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step detects in two images of unequal sizes, then computes the losses of a training step and their gradients."""
    torch.manual_seed(0)
    layers = []
    for inner, outer in ((3, 8), (8, 16), (16, 16)):
        layers += [torch.nn.Conv2d(inner, outer, 3, stride=2, padding=1), torch.nn.ReLU()]
    model = FasterRCNN(
        Backbone(*layers), num_classes=3, min_size=64, max_size=96, box_detections_per_img=10,
        rpn_anchor_generator=AnchorGenerator(sizes=((16, 32),), aspect_ratios=((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(featmap_names=["0"], output_size=3, sampling_ratio=2),
        rpn_pre_nms_top_n_test=50, rpn_post_nms_top_n_test=20, rpn_pre_nms_top_n_train=50, rpn_post_nms_top_n_train=20,
    )  # fmt: skip
    run = compile(model)
    images = [torch.rand(3, 64, 80), torch.rand(3, 72, 64)]
    targets = [
        {"boxes": torch.tensor([[4.0, 4.0, 40.0, 44.0]]), "labels": torch.tensor([1])},
        {"boxes": torch.tensor([[10.0, 8.0, 50.0, 60.0]]), "labels": torch.tensor([2])},
    ]

    def step() -> list[torch.Tensor]:
        model.eval()
        with torch.no_grad():
            found = run(images)
        model.train()
        torch.manual_seed(1)  # a training step samples among its proposals
        losses = run(images, targets)
        model.zero_grad()
        sum(losses.values()).backward()
        gradients = [value.grad for value in model.parameters()]
        return [*(one["boxes"] for one in found), *(one["scores"] for one in found), *losses.values(), *gradients]

    return step
