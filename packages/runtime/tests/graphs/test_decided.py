"""Branches and loops that data decides: part of a recording where it has conditions, and for every other one the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flambeau_runtime import artifact as a
from flambeau_runtime import load
from flambeau_runtime.graphs import GraphDecision, GraphSettings, host_waits, load_graphed
from flambeau_runtime.graphs.classify import classify
from flambeau_runtime.graphs.cuda import CudaRecorder
from flambeau_runtime.graphs.split import split

from .fake import FakeRecorder


def call(op: str, *args: Any, outs: Any = (), overload: str = "", **kwargs: Any) -> a.Call:
    return a.Call(f"aten::{op}", overload, args, kwargs, outs)


def tensors(*registers: int, device: str = "cpu") -> list[a.InputSpec]:
    return [a.InputSpec("tensor", register, torch.float32, device) for register in registers]


def out(*registers: int) -> list[a.OutputSpec]:
    return [a.OutputSpec("tensor", register) for register in registers]


def unary(op: str, *more: a.Instruction, device: str = "cpu") -> a.Program:
    return a.Program([call(op, a.Reg(0), outs=(1,)), *more], 4, 2, tensors(0, device=device), out(1))


def below(limit: float) -> a.Program:
    """The condition of a loop: whether the element is below a limit."""
    return a.Program([call("lt", a.Reg(0), limit, overload="Scalar", outs=(1,))], 2, 0, tensors(0), out(1))


def cond(yes: a.Program, no: a.Program, decides: Any = a.Reg(1), outs: Any = (2,)) -> a.Subprogram:
    return a.Subprogram("cond", (yes, no), (decides, a.Reg(0)), outs)


IS_POSITIVE = [call("sum", a.Reg(0), outs=(3,)), call("gt", a.Reg(3), 0.0, overload="Scalar", outs=(1,))]
BRANCH = [*IS_POSITIVE, cond(unary("sin"), unary("neg"))]
NESTED = [*IS_POSITIVE, cond(a.Program(BRANCH, 4, 0, tensors(0), out(2)), unary("exp"))]
LOOP = [a.Subprogram("while", (below(10.0), unary("exp")), (a.Reg(0),), (2,))]
CALLED = [a.Subprogram("call", (a.Program(BRANCH, 4, 0, tensors(0), out(2)),), (a.Reg(0),), (2,))]


def artifact_of(instructions: list[Any], inputs: list[a.InputSpec] | None = None) -> a.Artifact:
    return a.Artifact(a.Program(instructions, 8, 4, inputs or tensors(0), out(2)))


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize(("instructions", "times"), [(BRANCH, 5), (NESTED, 8), (LOOP, 5), (CALLED, 5)])
def test_a_replay_decides_anew(instructions: list[Any], times: int, native: bool) -> None:
    """However small, the whole program is one recording, made once; each replay goes the way of its own input.

    ``times`` is how often replays decide.
    """
    artifact, recorder, decisions = artifact_of(instructions), FakeRecorder(native=native), list[GraphDecision]()
    recorder.decided = 0
    plain = load(artifact)
    graphed = load_graphed(artifact, report=decisions.append, recorder=recorder, native=native)
    for value in (2.0, 2.0, -1.0, 0.5, 11.0, -3.0):
        x = torch.tensor([value])
        (found,) = graphed(x)
        assert torch.equal(found, plain(x)[0])
        if value == 11.0:
            assert found.data_ptr() != x.data_ptr()
        del found
    assert (recorder.warmed, recorder.recorded, recorder.replayed) == (1, 1, 5)
    assert recorder.decided == times
    assert [decision.kind for decision in decisions] == ["recorded"]


def test_a_number_decides_when_the_recording_is_made() -> None:
    """Recordings are kept apart by numbers: nothing is left to decide at a replay."""
    inputs = [*tensors(0), a.InputSpec("scalar", 0)]
    artifact, recorder = artifact_of([cond(unary("sin"), unary("neg"), a.Scalar(0))], inputs), FakeRecorder()
    recorder.decided = 0
    graphed = load_graphed(artifact, recorder=recorder)
    x = torch.tensor([2.0])
    for number in (1, 1, 1, 0, 0, 0):
        assert torch.equal(graphed(x, number)[0], x.sin() if number else -x)
    assert (recorder.recorded, recorder.replayed, recorder.decided) == (2, 4, 0)


def test_a_segment_with_a_branch_is_recorded_however_small() -> None:
    """Left plain, it would stop the host."""
    reads = [
        call("sum", a.Reg(2), outs=(4,)),
        a.Item(0, 4),
        call("mul", a.Reg(0), a.Scalar(0), overload="Scalar", outs=(5,)),
    ]
    artifact = artifact_of([*BRANCH, *reads])
    parts = split(artifact, classify(artifact, "cpu", conditions=True), GraphSettings(smallest_segment=9))
    assert [part.recorded for part in parts] == [True, False]
    parts = split(artifact, classify(artifact, "cpu"), GraphSettings(smallest_segment=9))
    assert [part.recorded for part in parts] == [False]


CHECKED = unary("neg", a.Compute(0, "lt", (1, 2)), a.Check(a.Scalar(0), "no"))
GIVES_A_NUMBER = a.Program([], 1, 0, tensors(0), [a.OutputSpec("scalar", 3)])
ASKS_A_NUMBER = a.Program([], 1, 0, tensors(0), [a.OutputSpec("scalar", False)])
REFUSED = [
    (cond(unary("sin"), unary("neg")), ""),
    (cond(unary("bernoulli"), unary("neg")), "random numbers are drawn where data decides"),
    (cond(unary("neg"), a.Program([a.Subprogram("call", (unary("bernoulli"),), (a.Reg(0),), (1,))], 2, 0, tensors(0), out(1))),
     "random numbers are drawn where data decides"),
    (cond(unary("neg"), unary("nonzero")), "waits for the device"),
    (cond(CHECKED, unary("neg")), "a number is checked where data decides"),
    (cond(unary("neg"), unary("neg", a.Item(0, 1))), "reads a number from a tensor"),
    (cond(GIVES_A_NUMBER, GIVES_A_NUMBER, outs=(S := a.Scalar(1),)), "control flow that is decided by data gives a number"),
    (a.Subprogram("while", (below(3.0), unary("exp")), (a.Reg(0),), (2,)), ""),
    (a.Subprogram("while", (ASKS_A_NUMBER, unary("exp")), (a.Reg(0),), (2,)), "a loop is decided by a number"),
    (a.Subprogram("while", (GIVES_A_NUMBER, GIVES_A_NUMBER), (3,), (S,)), "control flow that is decided by data gives a number"),
]  # fmt: skip


@pytest.mark.parametrize(("instruction", "reason"), REFUSED)
def test_what_a_recording_cannot_decide(instruction: a.Subprogram, reason: str) -> None:
    (*_, verdict) = classify(artifact_of([*IS_POSITIVE, instruction]), "cpu", conditions=True)
    assert (verdict.kind, verdict.reason) == ("plain" if reason else "device", reason)


def test_what_another_device_decides_is_plain() -> None:
    """A condition, or a loop's state, where recordings cannot read it."""
    here, there = tensors(0), tensors(1, device="meta")
    artifact = artifact_of([cond(unary("sin"), unary("neg"))], [*here, *there])
    assert classify(artifact, "cpu", conditions=True)[0].reason == "control flow is decided on another device"
    assert classify(artifact_of(LOOP, tensors(0, device="meta")), "cpu", conditions=True)[0].kind == "plain"


def test_what_depends_on_data_decides_plainly() -> None:
    """A number that was read, though a recording has conditions."""
    artifact = artifact_of(
        [call("sum", a.Reg(0), outs=(3,)), a.Item(0, 3), cond(unary("sin"), unary("neg"), a.Scalar(0))]
    )
    assert [v.kind for v in classify(artifact, "cpu", conditions=True)] == ["device", "plain", "plain"]


class Always(CudaRecorder):
    """Does every part at once, as on a device where the condition is what each part wants."""

    @contextmanager
    def _part(self, condition: torch.Tensor, wanted: bool, *, again: bool = False) -> Iterator[Any]:
        yield SimpleNamespace(decide=lambda condition: None)


def test_results_of_both_branches_lie_in_memory_of_their_own() -> None:
    """One that is an operand, or another result too, is copied: what the second branch leaves must not meet it there."""
    x, y = torch.arange(3.0), torch.ones(3)
    made = x + y
    results = Always().choose(torch.tensor(1), lambda: (made, made, x, None), lambda: (y, y + 1, y + 2, None), (x, y))
    assert [None if part is None else part.tolist() for part in results] == [[1.0] * 3, [2.0] * 3, [3.0] * 3, None]
    assert x.tolist() == [0.0, 1.0, 2.0] and y.tolist() == [1.0] * 3
    assert len({part.data_ptr() for part in (x, y, *results[:3])}) == 5


def test_what_a_loop_carries_changes_places() -> None:
    """A step that swaps what it is given."""
    x, y = torch.zeros(2), torch.ones(2)
    carried = Always().repeat((x, y), lambda values: values[0].sum() < 3, lambda values: (values[1], values[0]))
    assert [part.tolist() for part in carried] == [[1.0, 1.0], [0.0, 0.0]]
    assert x.tolist() == [0.0, 0.0] and y.tolist() == [1.0, 1.0]


def test_where_the_host_waits_without_recordings() -> None:
    """For what lies on a GPU, not for what the CPU knows already."""
    instructions = [
        *IS_POSITIVE,
        cond(unary("sin", device="cuda"), unary("neg", device="cuda")),
        a.Item(0, 3),
        call("nonzero", a.Reg(2), outs=(5,)),
        a.Item(1, 6),
        cond(unary("sin", device="cuda"), unary("neg", device="cuda"), a.Reg(6), (7,)),
    ]
    inputs = [*tensors(0, device="cuda"), *tensors(6)]
    assert host_waits(artifact_of(instructions, inputs)) == (
        "control flow is decided by data (t2 = cond(t1, t0))",
        "reads a number from a tensor (s0 = item t3)",
        "waits for the device (aten::nonzero)",
    )
    assert host_waits(artifact_of(instructions)) == ()
