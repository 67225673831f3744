"""Cases of the rules for gradients of tables of rows."""

import torch

from .case import Case, floats

aten = torch.ops.aten


def embedded(grad, indices, padding=-1, scaled=False):
    """The gradient of an embedding's table."""
    return aten.embedding_dense_backward(grad, indices, 50, padding, scaled)


def looked_up(x, grad, indices):
    """Of a table that something else has a gradient for."""
    return x.cos() + embedded(grad, indices)


ROWS = [*floats((50, 8), (3, 4, 8)), torch.randint(0, 9, (3, 4))]

CASES = {
    "gradient_into_a_table": Case(
        looked_up,
        ROWS,
        (
            (lambda x, grad, at: x.cos() + embedded(grad, at, 3), ROWS),
            (lambda x, grad, at: x.cos() + embedded(grad, at, -1, True), ROWS),
            (lambda x, grad, at: torch.add(x.cos(), embedded(grad, at), alpha=2), ROWS),
            (lambda x, grad, at: (lambda e: (x.cos() + e) * e)(embedded(grad, at)), ROWS),
            (lambda x, grad, at: (lambda c: (c + embedded(grad, at)) * c)(x.cos()), ROWS),
            (lambda x, grad, at: x + embedded(grad, at), ROWS),
            (lambda x, grad, at: x.cos() + embedded(grad, at), [floats((8, 50))[0].t(), *ROWS[1:]]),
            (looked_up, [ROWS[0], ROWS[1].view(12, 8), ROWS[2]]),
            (looked_up, [ROWS[0], ROWS[1], ROWS[2].int()]),
            (looked_up, [ROWS[0][:1], *ROWS[1:]]),
            (looked_up, [*(x.bfloat16() for x in ROWS[:2]), ROWS[2]]),
        ),
        tolerance=1e-6,
        cuda=False,
    ),
}  # fmt: skip
