"""Modules below a graph break: each `forward` is what gets compiled, and no module uses up the limit of another."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from flambeau_capture import disable, make_region

from ..comparison import assert_same, run_as_it_is

#: Sizes that depend on values end the graph, which is what these tests are about.
BREAKING: dict[str, Any] = {"capture_dynamic_output_shape_ops": False, "capture_scalar_outputs": False}


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


@pytest.mark.falls_back("the result shape of nonzero depends on data")
def test_modules_do_not_share_a_limit() -> None:
    """A mixture of experts compiles with no limit reached, and at last compiles nothing more."""
    torch.manual_seed(0)
    net = Net()
    records: list[Any] = []
    compiled = make_region(net, run_as_it_is, observer=records.append, fail_on_recompile_limit_hit=True, **BREAKING)
    x = torch.randn(64, 8)
    for _ in range(3):
        assert_same(compiled(x), net(x))
    known = len(records)
    assert_same(compiled(x), net(x))
    assert len(records) == known
    names = {record.code.co_qualname for record in records if record.graph is not None}
    assert any("Mixture.forward.round_at" in name and ".resume_at" in name for name in names)
    assert not any("_call_impl" in record.code.co_qualname for record in records)


@pytest.mark.falls_back("the recompile limit was reached")
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

    compiled = make_region(disable(run, recursive=False), run_as_it_is, observer=records.append, recompile_limit=3)
    x = torch.ones(2)
    for module in (first, second):
        for size in range(6):
            assert_same(compiled(module, x, "k" * size), x * size)
    assert len(records) == 6


def _logged(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A decorator that breaks, before and behind the call."""

    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        print(end="")
        y = function(x)
        print(end="")
        return y + 1

    return wrapper


@pytest.mark.falls_back("print() or input() is called")
def test_functions_under_one_decorator_do_not_share_a_limit() -> None:
    """Each of twelve has its graphs where the wrapper's frames, and those of what follows their breaks, are compiled by themselves."""
    names: dict[str, Any] = {}
    exec("\n".join(f"def f{n}(x):\n    return x * x.shape[0] + {n}" for n in range(12)), names)
    wrapped = [_logged(names[f"f{n}"]) for n in range(12)]

    def run(x: Tensor) -> list[Tensor]:
        out = []
        for function in wrapped:
            print(end="")
            out.append(function(x))
        return out

    compiled = make_region(run, run_as_it_is, observer=(records := []).append, recompile_limit=2, dynamic=False)
    x, y = torch.ones(2), torch.ones(3)
    for given in (x, y):
        records.clear()
        assert_same(compiled(given), run(given))
        # What follows the second break is the same for all.
        assert sum(record.graph is not None for record in records if "wrapper" in record.code.co_qualname) == 12 + 1
    records.clear()
    assert_same([compiled(x), compiled(y)], [run(x), run(y)])
    assert not records


@pytest.mark.falls_back("the recompile limit was reached in")
def test_the_limit_of_one_decorated_function_is_told() -> None:
    """It is no higher than before, and leaves another's as it was."""

    def first(x: Tensor, kind: str) -> Tensor:
        return x * len(kind)

    def second(x: Tensor, kind: str) -> Tensor:
        return x + len(kind)

    def decorated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Tensor:
            return function(*args)

        return wrapper

    def run(function: Callable[..., Tensor], x: Tensor, kind: str) -> Tensor:
        print(end="")
        return function(x, kind)

    compiled = make_region(
        disable(run, recursive=False), run_as_it_is, observer=(records := []).append, recompile_limit=3
    )
    for function in (decorated(first), decorated(second)):
        for size in range(6):
            assert_same(compiled(function, torch.ones(2), "k" * size), run(function, torch.ones(2), "k" * size))
    outer = [record for record in records if "wrapper" in record.code.co_qualname]
    assert len(outer) == 6


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


@pytest.mark.falls_back("print() or input() is called")
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


class Chooses(nn.Module):
    """Computes, then loops with breaks; its experts are of the class that the model is of."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).softmax(-1).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            out.index_add_(0, rows, expert(x[rows]))
        return out


@pytest.mark.falls_back("the result shape of where depends on data")
def test_what_comes_before_a_loop_is_compiled_and_its_rounds() -> None:
    """Once for all rounds and both modules, but for empty selections; a frame of one module says nothing about another of its class."""
    torch.manual_seed(0)
    net = nn.Sequential(Chooses(), nn.ReLU(), Chooses())
    records: list[Any] = []
    compiled = make_region(net, run_as_it_is, observer=records.append, **BREAKING)
    x = torch.randn(32, 8)
    for _ in range(3):
        assert_same(compiled(x), net(x))
    graphs: dict[str, list[int]] = {}
    for record in records:
        if record.operations:
            graphs.setdefault(re.sub(r"_at_\d+", "", record.code.co_qualname), []).append(record.operations)
    assert set(graphs["Chooses.forward"]) == {4}
    assert graphs["Chooses.forward.round"] == [1]
    assert set(graphs["Chooses.forward.round.resume"]) == {5}
    assert len(graphs["Chooses.forward.round.resume"]) < 8
    assert "Sequential.forward" not in graphs


@pytest.mark.falls_back("print() or input() is called", "the truth of a tensor")
def test_loops_that_break_do_as_in_plain_python() -> None:
    """A loop of each kind, alone, nested, with `else`, over every kind of iterator."""

    def run(x: Tensor, kind: int) -> Any:
        seen = []
        y = x * 2
        match kind:
            case 0:
                for i, (a, b) in enumerate(zip([x, y], range(5), strict=False)):
                    print(end="")
                    seen.append(a * b + i)
                else:
                    y = y + 100
            case 1:
                for i in range(3):
                    for j in iter([1, 2]):
                        if y.sum() > 1000:
                            break
                        y = y + i * j
                    else:
                        continue
                    break
            case 2:
                while y.sum() < 50:
                    y = y + 3
                    seen.append(len(seen))
            case 3:
                for key, value in {"a": 1, "b": y}.items():
                    print(end="")
                    seen.append((key, value))
            case 4:
                for part in (y * i for i in range(2)):
                    print(end="")
                    seen.append(part)
            case 5:
                try:
                    for i in range(3):
                        print(end="")
                        if i == 1:
                            raise KeyError(i)
                        y = y - 1
                except KeyError as error:
                    seen.append(str(error))
        return y.relu(), seen

    compiled = make_region(run, run_as_it_is)
    x = torch.linspace(-1, 2, 6)
    for kind in (0, 1, 2, 3, 4, 5, 0, 1):
        for _ in range(2):
            assert_same(compiled(x, kind), run(x, kind))
