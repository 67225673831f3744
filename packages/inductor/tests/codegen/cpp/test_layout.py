"""How the iterations of a kernel are laid out over threads."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor import compile_graph
from flambeau_runtime.artifact import Launch


@pytest.mark.parametrize("size, divides", [(100, False), (1 << 20, True)])
def test_only_much_work_is_divided(size: int, divides: bool) -> None:
    """A slice for another thread has to be worth the hand-over."""
    x = torch.empty(size)
    program = compile_graph(make_fx(lambda x: x + 1)(x), (x,)).program
    (launch,) = (step for step in program.instructions if isinstance(step, Launch))
    assert isinstance(launch.extent, int) and (launch.grain < launch.extent) is divides
