"""State outside the frame (shared memory, transforms, dispatch guards): compiled calls leave and find it as plain Python does."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager
from torch import Tensor

import flambeau_capture


def write_and_read(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def run(function: object, base: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return function(x, y), base  # type: ignore[operator]


def test_a_cached_graph_refuses_inputs_that_share_memory() -> None:
    """Distinct inputs first, then two views of one tensor, then distinct ones again: always as in plain Python."""
    region = flambeau_capture.make_region(write_and_read, eager)
    for shared in (False, True, False, True):
        results = []
        for function in (write_and_read, region):
            base = torch.arange(6.0)
            other = base[2:5] if shared else torch.ones(3)
            results.append((function(base[1:4], other), base))
        torch.testing.assert_close(results[1], results[0])


def test_shared_memory_at_the_first_call() -> None:
    """The frame runs in plain Python for that call, and is compiled when inputs are distinct."""
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: list[object]) -> object:
        graphs.append(gm)
        return gm.forward

    region = flambeau_capture.make_region(write_and_read, backend)
    base = torch.arange(6.0)
    torch.testing.assert_close(region(base[1:4], base[2:5]), torch.tensor([6.0, 8.0, 8.0]))
    assert graphs == []
    torch.testing.assert_close(region(torch.zeros(3), torch.ones(3)), torch.full((3,), 2.0))
    assert len(graphs) == 1


def test_inputs_that_are_only_read_may_share_memory() -> None:
    """Where another one is written: the parts of what `nonzero` found, say."""
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: list[object]) -> object:
        graphs.append(gm)
        return gm.forward

    def add(x: Tensor, rows: Tensor, columns: Tensor) -> None:
        x[rows, columns] += 1

    region = flambeau_capture.make_region(add, backend)
    for _ in range(3):
        expected, found = torch.zeros(3, 3), torch.zeros(3, 3)
        rows, columns = torch.eye(3).nonzero().unbind(1)
        add(expected, rows, columns)
        region(found, rows, columns)
        torch.testing.assert_close(found, expected)
    assert len(graphs) == 1


def test_a_transform_does_not_spoil_later_calls() -> None:
    """Called under vmap first, compiled outside of it later."""
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: list[object]) -> object:
        graphs.append(gm)
        return gm.forward

    region = flambeau_capture.make_region(lambda x: x.sin() + 1, backend)
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.func.vmap(region)(x), x.sin() + 1)
    assert graphs == []
    torch.testing.assert_close(region(x), x.sin() + 1)
    assert len(graphs) == 1


def test_a_dispatch_guard_is_left_as_in_plain_python() -> None:
    """Entering torch's own guard that switches dispatch off leaves nothing switched off afterwards."""

    def guarded(x: Tensor) -> Tensor:
        with torch._C._DisableTorchDispatch():
            return x + 1

    region = flambeau_capture.make_region(guarded, eager)
    for _ in range(2):
        torch.testing.assert_close(region(torch.ones(2)), torch.full((2,), 2.0))
        assert not torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python)


def test_a_break_in_a_long_loop_does_not_fill_the_stack() -> None:
    """Thousands of rounds with a value read in each run as in plain Python."""

    def loop(x: Tensor) -> tuple[Tensor, float]:
        total = 0.0
        for _ in range(3000):
            x = x + 1
            total += x.sum().item()
        return x, total

    region = flambeau_capture.make_region(loop, eager)
    assert region(torch.zeros(2))[1] == loop(torch.zeros(2))[1]


def test_a_tensor_that_cannot_be_traced_ends_the_attempt() -> None:
    """A sparse argument: plain Python, no chain of resume functions."""
    region = flambeau_capture.make_region(lambda x, y: (x @ y, y + 1), eager)
    sparse, dense = torch.eye(3).to_sparse(), torch.ones(3, 3)
    torch.testing.assert_close(region(sparse, dense), (dense, dense + 1))


@pytest.mark.parametrize("caught", [False, True])
def test_a_graph_that_raises_leaves_the_modes(caught: bool) -> None:
    """A backend that runs the graph as it is has set the grad mode and entered autocast when the operation raises."""

    def index(x: Tensor, places: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
            return x[places]

    def fall_back(x: Tensor, places: Tensor) -> Tensor:
        try:
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16), torch.autocast("cpu", enabled=False):
                y = x[places]
        except IndexError:
            y = x * 2
        return y @ y

    function = fall_back if caught else index
    region = flambeau_capture.make_region(function, eager)
    x = torch.ones(3, requires_grad=True)
    told = []
    for place, run_it in ((0, region), (7, region), (7, function)):
        try:
            result = run_it(x, torch.tensor([place] * 3))
            told.append((result.dtype, result.requires_grad))
        except IndexError as error:
            told.append(str(error))
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16
        assert torch.autocast_increment_nesting() == 1
        assert torch.autocast_decrement_nesting() == 0
    assert told[1] == told[2]
