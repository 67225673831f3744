"""Images of changing sizes made larger and smaller: one graph for all sizes, results and gradients of eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.*")

RESIZED: dict[str, Callable[[Tensor], Tensor]] = {
    "by the older name": lambda x: F.upsample(x, scale_factor=2),
    "between corners": lambda x: F.upsample_bilinear(x, scale_factor=2),
    "repeated": lambda x: F.upsample_nearest(x, (x.shape[2] + 3, x.shape[3] * 2)),
    "smooth, without moire": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", antialias=True),
    "linear, without moire": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "smooth": lambda x: F.interpolate(x, (7, 9), mode="bicubic", align_corners=True),
    "means": lambda x: F.interpolate(x, (x.shape[2] // 2, x.shape[3] // 2), mode="area"),
}


@pytest.mark.parametrize("name", RESIZED)
def test_sizes_stay_symbols(name: str) -> None:
    resize, recorder = RESIZED[name], Recorder()
    compiled = compile_recorded(resize, recorder, backend="aot_eager", dynamic=True)
    for height, width in ((4, 6), (8, 5), (6, 7)):
        image, other = (
            torch.arange(3.0 * height * width).sin().view(1, 3, height, width).requires_grad_() for _ in "ab"
        )
        results = compiled(image), resize(other)
        torch.testing.assert_close(*results)
        for result in results:
            result.pow(2).sum().backward()
        torch.testing.assert_close(image.grad, other.grad)
    assert len(recorder.graphs) == 1 and not recorder.eager_graphs
