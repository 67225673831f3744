"""A compiled module inside of a checkpoint: its forward is repeated for the backward, and ended by a hook on saved tensors once that has all it needs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import flambeau

from ..comparison import assert_same


class Counting(nn.Module):
    """A change that is made after the graph has run."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x).tanh()


class Handling(Counting):
    """A handler of the program that covers the graph."""

    def forward(self, x):
        try:
            return self.inner(x).tanh()
        except ValueError:
            return x


BLOCKS = {
    "dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU()),
    "statistics": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)),
    "an effect": Counting,
    "a handler": Handling,
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
@pytest.mark.parametrize("early", [True, False], ids=["early stop", "to the end"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_checkpoint_around_a_compiled_module(block, early, backend):
    """Results, gradients and the module afterwards are as of the module that is not compiled, in both passes of two steps."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = BLOCKS[block]()
        call = flambeau.compile(module, backend=backend) if compiled else module
        steps = []
        for _ in range(2):
            x = torch.rand(3, 4, requires_grad=True)
            with torch.utils.checkpoint.set_checkpoint_early_stop(early):
                result = checkpoint(call, x, use_reentrant=False)
                result.sum().backward()
            steps.append((result, x.grad))
        gradients = [parameter.grad for parameter in module.parameters()]
        steps.append((gradients, list(module.state_dict().values()), getattr(module, "calls", None)))
        seen.append(steps)
    assert_same(seen[1], seen[0])


class Full(Exception):
    pass


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_what_a_hook_on_saved_tensors_raises(backend):
    """It is the program's exception: no graph is run again for it, and the hook is called no second time."""
    calls = []

    def pack(tensor):
        calls.append(1)
        raise Full("no room")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), pytest.raises(Full, match="no room"):
        flambeau.compile(lambda x: x.exp() + 1, backend=backend)(torch.ones(3, requires_grad=True))
    assert len(calls) == 1
