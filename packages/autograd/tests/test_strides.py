"""Results lie as eager's kernels lay them: what fakes and formulas say otherwise is corrected."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lifting import compile_function

TURNED = torch.arange(60.0).view(3, 4, 5).permute(2, 1, 0)
HOLLOW = torch.ones(4, 0, 6)[::2, :, ::3]

CASES = {
    "copysign": lambda turned, hollow: torch.copysign(turned, -turned[0]),
    "div": lambda turned, hollow: torch.div(turned, torch.tensor(2.0), rounding_mode="floor"),
    "floor_divide": lambda turned, hollow: torch.floor_divide(turned, torch.tensor(2.0)),
    "dropout's gradient": lambda turned, hollow: torch.ops.aten.native_dropout_backward(turned, turned > 3, 2.0),
    "diagonal_scatter": lambda turned, hollow: torch.diagonal_scatter(turned[0], turned.new_zeros(3)),
    "diagonal_scatter of a row": lambda turned, hollow: torch.diagonal_scatter(
        turned[0, 0].expand(2, 3), turned.new_zeros(2)
    ),
    "diagonal_scatter with gaps": lambda turned, hollow: torch.diagonal_scatter(turned[::2, 0], turned.new_zeros(3)),
    "nearest": lambda turned, hollow: F.interpolate(turned, 6),
    "nearest-exact": lambda turned, hollow: F.interpolate(turned, 6, mode="nearest-exact"),
    "zeros_like": lambda turned, hollow: torch.zeros_like(hollow),
    "full_like": lambda turned, hollow: torch.full_like(hollow, 2),
    "flip": lambda turned, hollow: torch.flip(hollow, (0,)),
    "a number added to none": lambda turned, hollow: hollow.transpose(0, 1) + 1,
    "a number of none": lambda turned, hollow: torch.full((3, 0), 1.0) * 2,
    "gelu with sizes of one": lambda turned, hollow: F.gelu(turned[:1, :, :1].as_strided((1, 4, 1, 3), (7, 10, 3, 4))),
    "sum with sizes of one": lambda turned, hollow: turned[:1] + turned[:, :1],
    "copy with sizes of one": lambda turned, hollow: turned[:, :1].clone(),
    "relu6": lambda turned, hollow: F.relu6(hollow),
    "angle of complex numbers": lambda turned, hollow: torch.angle(torch.complex(turned, turned)),
    "a mask that is converted": lambda turned, hollow: (turned[0, 0] > 3).expand(4, 3).t() * turned[0].int().t(),
    "another type that is converted": lambda turned, hollow: turned[0, 0].double().expand(4, 3).t() > turned[0].t(),
    "losses of one row": lambda turned, hollow: F.multilabel_margin_loss(
        turned[0, 0], torch.tensor([1, -1, 0]), reduction="none"
    ),
    "a number repeated": lambda turned, hollow: turned.sum().expand(4, 1),
    "the bytes of the same type": lambda turned, hollow: (
        turned[:1, :, :1].as_strided((1, 4), (1, 1)).view(torch.float32)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_strides_are_eagers(name: str) -> None:
    expected = CASES[name](TURNED, HOLLOW)
    found = compile_function(CASES[name], [TURNED, HOLLOW])(TURNED, HOLLOW)
    found = found[0] if isinstance(found, tuple) else found
    assert found.stride() == expected.stride()
    assert torch.equal(found, expected)
