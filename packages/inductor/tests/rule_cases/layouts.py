"""Cases of the rules for the order of dimensions in memory."""

import torch

from .case import Case, floats

aten = torch.ops.aten


CASES = {
    "same_layout": Case(
        lambda x: x.exp().view(3, 4) + 1,
        floats((3, 4)),
        (
            (lambda x: x.exp().view(4, 3) + 1, floats((3, 4))),
            (lambda x: x.exp().view(3, 4), floats((3, 4))),
            (lambda x: aten.permute(x.expand(3, 3), [1, 0]) + 1, floats((1, 1))),
            (lambda x: aten.as_strided(aten.alias(x[1]), [2], [1]) + 1, floats((3, 4))),
        ),
        cuda=False,
    ),
    "two_transposes": Case(
        lambda x: x.permute(2, 0, 1).permute(1, 2, 0) + 1,
        floats((3, 4, 5)),
        (
            (lambda x: x.permute(2, 0, 1).permute(2, 0, 1) + 1, floats((3, 3, 3))),
            (lambda x: x.t().t(), floats((3, 4))),
            (lambda x: x.t().exp().t() + 1, floats((3, 4))),
        ),
        cuda=False,
    ),
}  # fmt: skip
