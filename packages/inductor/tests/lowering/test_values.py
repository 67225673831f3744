"""Shapes of lazy tensors."""

from itertools import product

import torch

from flambeau_inductor.expr import Int
from flambeau_inductor.lowering.values import broadcast_sizes


def test_shapes_are_joined_as_torch_joins_them():
    """Every pair and triple of shapes of up to three dimensions that torch joins."""
    shapes = [shape for rank in range(4) for shape in product((1, 3), repeat=rank)]
    shapes += [(2, 1, 3), (2, 3), (4, 1, 1), (0,), (0, 1)]
    for some in [*product(shapes, repeat=2), *zip(shapes, shapes[1:], shapes[2:], strict=False)]:
        try:
            wanted = torch.broadcast_shapes(*some)
        except RuntimeError:
            continue
        assert broadcast_sizes(*(tuple(map(Int, shape)) for shape in some)) == tuple(map(Int, wanted)), some
