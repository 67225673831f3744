"""`explain` runs the call once, effects included, and looks into what is compiled already."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau.explanation import Explanation
from flambeau.records import ProgramRecord
from flambeau_runtime.artifact import Artifact, InputSpec, Item, Program
from flambeau_runtime.graphs import GraphDecision

X = torch.ones(3)


class Counted:
    """Effects of every kind that a program has outside of its result."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.total = torch.zeros(3)

    def plain(self, x: Tensor) -> Tensor:
        self.seen.append(1)
        self.total.add_(x)
        return x + 1

    def breaking(self, x: Tensor) -> Tensor:
        y = x + 1
        print("effect")
        self.seen.append(1)
        self.total.add_(x)
        return y * 2

    def looping(self, x: Tensor) -> Tensor:
        for number in range(3):
            x = x + 1
            print(number)
            self.seen.append(number)
        self.total.add_(x)
        return x

    def branching(self, x: Tensor) -> Tensor:
        self.seen.append(1)
        if x.sum() > 0:
            self.total.add_(x)
        return x * 2

    def drawing(self, x: Tensor) -> Tensor:
        self.seen.append(1)
        return x + torch.rand(3)


def effects(name: str, run: Any, capsys: pytest.CaptureFixture[str]) -> tuple[Any, ...]:
    torch.manual_seed(0)
    counted = Counted()
    result = run(getattr(counted, name))
    return counted.seen, counted.total.tolist(), result.tolist(), capsys.readouterr().out, torch.rand(1).item()


@pytest.mark.parametrize("name", ["plain", "breaking", "looping", "branching", "drawing"])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_effects_happen_once(name: str, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lists, tensors, output, random numbers: as after one plain call."""
    found = effects(name, lambda f: flambeau.explain(f, backend=backend)(X).result, capsys)
    assert found == effects(name, lambda f: f(X), capsys)


def test_what_is_compiled_already_is_looked_into() -> None:
    """A function and a module; nothing of theirs changes."""
    function = flambeau.compile(lambda x: x.exp() + 1, backend="eager")
    model = flambeau.compile(nn.Linear(3, 2), backend="eager")
    for compiled in (function, model):
        found = flambeau.explain(compiled, backend="eager")(X)
        assert found.graph_count == 1 and found.op_count >= 1
    assert function.codes() == []


def test_compiling_what_is_compiled_looks_at_the_original() -> None:
    """The new settings hold."""
    first = flambeau.compile(lambda x: (print(end=""), x + 1)[1], backend="eager")
    with pytest.raises(RuntimeError, match="one graph"):
        flambeau.compile(first, fullgraph=True, backend="eager")(X)


def test_what_nested_programs_launch_is_counted() -> None:
    """Twelve calls of one layer: its kernels and products count in the program of the whole, on a CPU nothing waits."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(256, 256)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.linear(torch.sin(x))) + x

    with torch.no_grad():
        found = flambeau.explain(nn.Sequential(*(Layer() for _ in range(12))))(torch.ones(64, 256))
    assert [repeat.calls for repeat in found.repeats] == [12]
    (program,) = found.programs
    assert sum(program.library_calls.values()) >= 12
    assert program.kernels >= 24 and program.host_waits == ()


def test_where_the_host_waits_is_told() -> None:
    """For programs on a GPU; with CUDA graphs their decisions say it."""
    inputs = [InputSpec("tensor", 0, torch.float32, "cuda")]
    artifact = Artifact(Program([Item(0, 0)], 1, 1, inputs, []))
    record = ProgramRecord("forward", 0, {}, 0, False, artifact)
    wait = "reads a number from a tensor (s0 = item t0)"
    assert record.host_waits == (wait,)
    assert f"the host waits for the GPU, forward: {wait}" in str(Explanation((), (), (record,), (), {}, None))
    decided = (GraphDecision("plain", wait, "forward"),)
    assert "waits for the GPU" not in str(Explanation((), (), (record,), (), {}, None, cuda_graphs=decided))


def test_kernels_tell_the_modules_that_they_compute() -> None:
    """Those of the backward, too: by their paths in the model."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 8), nn.Tanh())
    found = flambeau.explain(model)(torch.ones(3, 8, requires_grad=True))
    kernels = [kernel for program in found.programs if program.artifact for kernel in program.artifact.kernels]
    assert len(kernels) >= 4
    paths = [set(kernel.meta["modules"]) for kernel in kernels]
    known = {name for name, _ in model.named_modules()}
    assert all(path and path <= known for path in paths)
    assert {"1"} in paths and {"3", "2"} in paths, (
        "the softplus alone; the gradient of tanh with that of the bias below"
    )
    assert "in 3, 2" in str([program.artifact.text() for program in found.programs if program.artifact])


def test_our_own_functions_are_no_part_of_the_program() -> None:
    """What makes an object again after its graph is ours: it is not told of as a function that was not looked at."""

    class Pair:
        def __init__(self, x: Tensor) -> None:
            self.first, self.second = x * 2, x + 1

    found = flambeau.explain(lambda x: Pair(x), measure=False)(torch.ones(3))
    assert found.result.first.tolist() == [2.0] * 3
    assert len(found.graphs) == 1 and found.left == ()
