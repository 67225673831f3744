"""Modules below a graph break: each `forward` is what gets compiled, and no module uses up the limit of another."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from flambeau_capture import disable, make_region

from ..comparison import assert_same


class Expert(nn.Module):
    """One of a mixture; every one has a width of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Mixture(nn.Module):
    """Sends rows to experts by data, so that the frame breaks in a loop."""

    def __init__(self, experts: int, number: int) -> None:
        super().__init__()
        self.number = number
        self.gate = nn.Linear(8, experts)
        self.experts = nn.ModuleList([Expert(8 + 2 * i) for i in range(experts)])

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero().squeeze(-1)
            if rows.numel():
                out[rows] = expert(x[rows])
        return out + self.number


class Block(nn.Module):
    """Attention-like part, then the mixture."""

    def __init__(self, number: int, experts: int = 12) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mixture = Mixture(experts, number)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mixture(self.norm(x))


class Net(nn.Module):
    """Twelve blocks: more of each kind than the limit."""

    def __init__(self, blocks: int = 12) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(i) for i in range(blocks)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _eager(graph: Any, inputs: Any) -> Any:
    return graph.forward


def test_modules_do_not_share_a_limit() -> None:
    """A mixture of experts compiles with no limit reached, and at last compiles nothing more."""
    torch.manual_seed(0)
    net = Net()
    records: list[Any] = []
    compiled = make_region(net, _eager, observer=records.append, fail_on_recompile_limit=True)
    x = torch.randn(64, 8)
    for _ in range(3):
        assert_same(compiled(x), net(x))
    known = len(records)
    assert_same(compiled(x), net(x))
    assert len(records) == known
    names = {record.code.co_qualname for record in records if record.graph is not None}
    assert "Expert.forward" in names
    assert not any("_call_impl" in record.code.co_qualname for record in records)


def test_the_limit_of_one_module_is_exact() -> None:
    """Past it that module's method runs in plain Python; another module of the class still compiles."""
    records: list[Any] = []

    class Scale(nn.Module):
        def forward(self, x: Tensor, kind: str) -> Tensor:
            return x * len(kind)

    first, second = Scale(), Scale()

    def run(module: nn.Module, x: Tensor, kind: str) -> Tensor:
        print(end="")
        return module(x, kind)

    compiled = make_region(disable(run, recursive=False), _eager, observer=records.append, recompile_limit=3)
    x = torch.ones(2)
    for module in (first, second):
        for size in range(6):
            assert_same(compiled(module, x, "k" * size), x * size)
    assert len(records) == 6


class Printing(nn.Module):
    """Breaks, and has hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.inner.register_forward_hook(lambda module, args, output: output * 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        print("half way")
        return self.inner(y)


def test_hooks_below_a_break_are_honoured() -> None:
    """Those there are, and those that come later."""
    torch.manual_seed(0)
    net = nn.Sequential(Printing(), Printing())
    compiled = compile_recorded(net, Recorder(), backend="eager")
    x = torch.randn(2, 8)
    for call in range(4):
        assert_same(compiled(x), net(x))
        if call == 1:
            net[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
            net[1].inner.register_forward_hook(lambda module, args, output: output - 3)
            net.register_forward_hook(lambda module, args, output: output / 2)
