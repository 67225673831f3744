"""`guard_filter_fn`: what it is shown, what it drops, which answers are refused, and what stays checked without guards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from both_ways import eager

from flambeau_capture import CompileRecord, graph_break, make_region, reset
from flambeau_capture.config import Config
from flambeau_capture.errors import CaptureError
from flambeau_capture.guard_filter import GuardEntry
from flambeau_capture.guards import spec as gs

scale = 2.0


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * scale


def seen_by_filter(function: Any, *args: Any, **config: Any) -> list[GuardEntry]:
    """The entries that a filter gets for the first call."""
    shown: list[list[GuardEntry]] = []

    def choose(entries: list[GuardEntry]) -> list[bool]:
        shown.append(entries)
        return [True] * len(entries)

    make_region(function, eager, guard_filter_fn=choose, **config)(*args)
    (entries,) = shown
    return entries


def test_entries_say_what_each_guard_is_about() -> None:
    """Name, kind, value, whether it is global, torch.compile's word for the kind, and the spec."""
    model, x = Model(), torch.ones(3)

    def run(model: Model, x: torch.Tensor) -> torch.Tensor:
        return model(x)

    entries = seen_by_filter(run, model, x)
    tensors = {e.name: e for e in entries if e.guard_type == "TENSOR_MATCH"}
    weight = next(name for name in tensors if "weight" in name)
    assert tensors["x"].value is x and not tensors["x"].is_global
    assert tensors[weight].value is model.weight and weight.startswith("model.")
    assert tensors["x"].derived_guard_types == ("TENSOR_MATCH",)
    assert isinstance(tensors["x"].orig_guard, gs.TensorMatch)
    (factor,) = (e for e in entries if e.name == "G['scale']" and e.guard_type == "CONSTANT_MATCH")
    assert factor.is_global and factor.has_value and factor.value == 2.0
    (state,) = (e for e in entries if e.guard_type == "GLOBAL_STATE")
    assert (state.name, state.has_value, state.value, state.is_global) == ("", False, None, False)


def test_what_is_absent_has_no_value() -> None:
    """A guard on a missing key names the dict; a list of many things has no name."""

    def f(x: torch.Tensor, y: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        return x + y if "z" not in extra else x

    entries = seen_by_filter(f, torch.ones(2), torch.ones(2), {})
    assert any(e.guard_type == "NO_TENSOR_ALIASING" and e.name == "" and not e.has_value for e in entries)
    assert any(e.name == "extra" and e.value == {} for e in entries)


def test_dropped_guards_are_not_checked() -> None:
    """The constant is the one of the compile; what is kept still makes new entries."""
    compiles: list[CompileRecord] = []

    def choose(entries: list[GuardEntry]) -> list[bool]:
        return [entry.name != "n" for entry in entries]

    region = make_region(lambda x, n: x * n, eager, guard_filter_fn=choose, observer=compiles.append, dynamic=False)
    assert region(torch.ones(2), 3).tolist() == [3.0, 3.0]
    assert region(torch.ones(2), 4).tolist() == [3.0, 3.0]
    assert len(compiles) == 1
    assert not any("L['n']" in str(guard) for guard in compiles[0].guards)
    assert region(torch.ones(3), 4).tolist() == [4.0, 4.0, 4.0]
    assert len(compiles) == 2


def test_a_frame_without_guards_serves_every_call() -> None:
    """Nothing is checked, with one graph and with a break in the middle."""
    seen: list[Any] = []

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        graph_break()
        seen.append(float(y.sum()))
        return y * 2

    for function in (lambda x: x + 1, broken):
        compiles: list[CompileRecord] = []
        region = make_region(
            function, eager, guard_filter_fn=lambda entries: [False] * len(entries), observer=compiles.append
        )
        for size in (2, 3, 4):
            assert region(torch.ones(size)).tolist() == function(torch.ones(size)).tolist()
        assert len(compiles) == (1 if function is not broken else 2)


def test_relations_of_sizes_always_stay() -> None:
    """Kernels rely on them: a filter that drops everything is not asked about them."""
    compiles: list[CompileRecord] = []
    region = make_region(
        lambda x, y: x + y,
        eager,
        guard_filter_fn=lambda entries: [False] * len(entries),
        observer=compiles.append,
        dynamic=True,
    )
    assert region(torch.ones(3), torch.ones(3)).tolist() == [2.0] * 3
    assert compiles[0].guards
    assert {type(guard) for guard in compiles[0].guards} == {gs.ShapeExpression}
    assert region(torch.ones(5), torch.ones(5)).tolist() == [2.0] * 5
    assert len(compiles) == 1
    with pytest.raises(RuntimeError, match="size of tensor"):
        region(torch.ones(5), torch.ones(4))
    entries = seen_by_filter(lambda x, y: x + y, torch.ones(3), torch.ones(3), dynamic=True)
    assert not any(isinstance(entry.orig_guard, gs.ShapeExpression) for entry in entries)


def _raises(entries: Any) -> Any:
    raise KeyError("weight")


@pytest.mark.parametrize(
    "choose, words",
    [
        (_raises, "guard_filter_fn raised KeyError"),
        (lambda entries: [True], "and returned 1 answers"),
        (lambda entries: [*([True] * len(entries)), False], r"was asked about \d+ guards .* and returned \d+ answers"),
        (lambda entries: None, "returned NoneType"),
        (lambda entries: ["yes"] * len(entries), "'yes' among its answers"),
    ],
)
def test_bad_filters_are_errors_before_anything_is_compiled(choose: Any, words: str) -> None:
    """Also where faults of our own would be suppressed: this one is the user's."""
    called: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        called.append(graph)
        return graph.forward

    region = make_region(lambda x: x + 1, backend, guard_filter_fn=choose, suppress_errors=True)
    with pytest.raises(CaptureError, match=words):
        region(torch.ones(2))
    assert not called


def test_two_regions_of_one_function_keep_their_own_entries() -> None:
    """The one that dropped its guard has no part in the other's answers, whichever came first."""

    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    def drop(entries: list[GuardEntry]) -> list[bool]:
        return [entry.name != "n" for entry in entries]

    for order in ((0, 1), (1, 0)):
        reset()
        regions = [
            make_region(f, eager, dynamic=False, guard_filter_fn=drop),
            make_region(f, eager, dynamic=False),
        ]
        wanted = [3.0, 4.0]
        for number in order:
            regions[number](torch.ones(1), 3)
        for number in order:
            assert regions[number](torch.ones(1), 4).item() == wanted[number]


def test_the_filter_is_no_part_of_the_key_and_has_no_variable() -> None:
    """Graphs compiled with and without it are the same graphs; a callable cannot come from the environment."""
    assert Config(guard_filter_fn=_raises).key() == Config().key()
    assert Config.from_environment({"FLAMBEAU_CAPTURE_GUARD_FILTER_FN": "1"}).guard_filter_fn is None
