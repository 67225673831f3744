"""What a backend assumes about sizes while it compiles guards the entry."""

from __future__ import annotations

import torch

from flambeau_capture import make_region


def test_a_size_that_the_backend_specialises_is_guarded():
    """The backend turns the symbolic size into a number: another size must be compiled again."""

    def backend(gm, inputs):
        size = int(inputs[-1].shape[0]) if inputs else 0
        return lambda *args: (torch.full((1,), float(size)),)

    backend.wants_real_inputs = False
    region = make_region(lambda x: x.sum().reshape(1), backend, dynamic=True)
    assert [region(torch.ones(n)).item() for n in (3, 5, 3, 7)] == [3.0, 5.0, 3.0, 7.0]
