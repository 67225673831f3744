"""Programs divided into recorded segments and plain parts: the parts, the reasons, and equal results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve

from flambeau_runtime import artifact as a
from flambeau_runtime import load
from flambeau_runtime.graphs import GraphDecision, GraphSettings, load_graphed
from flambeau_runtime.graphs.classify import classify
from flambeau_runtime.graphs.split import Part, passes_random_state, split

from .fake import FakeRecorder

SMALL = GraphSettings(smallest_program=1, smallest_segment=1)


def call(op: str, *args: Any, outs: Any = (), overload: str = "", **kwargs: Any) -> a.Call:
    return a.Call(f"aten::{op}", overload, args, kwargs, outs)


def artifact_of(
    instructions: list[Any], inputs: list[a.InputSpec], outputs: list[a.OutputSpec], **parts: Any
) -> a.Artifact:
    return a.Artifact(a.Program(instructions, 32, 32, inputs, outputs), **parts)


def tensor(register: int, device: str = "cpu", dtype: torch.dtype = torch.float32, **flags: Any) -> a.InputSpec:
    return a.InputSpec("tensor", register, dtype, device, **flags)


def out(*registers: int) -> list[a.OutputSpec]:
    return [a.OutputSpec("tensor", register) for register in registers]


def sine(target: int, source: int) -> a.Call:
    return call("sin", a.Reg(source), outs=(target,))


def shape(parts: tuple[Part, ...]) -> list[tuple[bool, int]]:
    """Whether each part is recorded, and its instructions."""
    return [(part.recorded, len(part.program.instructions)) for part in parts]


class Case:
    """A program run plainly and with recordings."""

    def __init__(self, artifact: a.Artifact, settings: GraphSettings = SMALL, native: bool = True) -> None:
        self.recorder = FakeRecorder()
        self.decisions: list[GraphDecision] = []
        self.plain = load(artifact)
        self.graphed = load_graphed(
            artifact,
            name="test",
            report=self.decisions.append,
            recorder=self.recorder,
            settings=settings,
            native=native,
        )

    def check(self, *inputs: Any) -> None:
        """Equal results, and equal effects on the inputs."""
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        expected, found = self.plain(*copies), self.graphed(*inputs)
        for ours, theirs in zip((*found, *inputs), (*expected, *copies), strict=True):
            if isinstance(ours, torch.Tensor):
                assert torch.equal(ours, theirs)
            else:
                assert ours == theirs


READS_A_NUMBER = artifact_of(
    [
        sine(1, 0),
        sine(2, 1),
        call("sum", a.Reg(2), outs=(3,)),
        a.Item(0, 3),
        a.Compute(1, "mul", (a.Scalar(0), 2.0)),
        call("mul", a.Reg(1), a.Scalar(1), overload="Scalar", outs=(4,)),
        sine(5, 2),
        sine(6, 5),
        a.Free((1, 2, 3, 5)),
    ],
    [tensor(0)],
    [*out(4, 6), a.OutputSpec("scalar", a.Scalar(1))],
)


def test_a_number_read_in_the_middle_divides_the_program() -> None:
    """Before, the read with what depends on it, after."""
    parts = split(READS_A_NUMBER, classify(READS_A_NUMBER, "cpu"), SMALL)
    assert shape(parts) == [(True, 3), (False, 3), (True, 3)]
    assert (parts[1].reason, parts[1].position) == ("reads a number from a tensor", "s0 = item t3")
    for part in parts:
        evolve(READS_A_NUMBER, program=part.program).validate()
    case = Case(READS_A_NUMBER)
    for _ in range(6):
        case.check(torch.randn(4))
    assert case.recorder.recorded == 2 and case.recorder.replayed == 10
    assert [d.position for d in case.decisions if d.kind == "plain"] == ["s0 = item t3"]


def test_small_segments_stay_plain() -> None:
    """A segment that would not pay joins the plain parts around it, with the reason."""
    parts = split(READS_A_NUMBER, classify(READS_A_NUMBER, "cpu"), GraphSettings(smallest_segment=3))
    assert shape(parts) == [(True, 3), (False, 6)]
    assert parts[1].reason == "reads a number from a tensor"
    one = artifact_of([sine(1, 0)], [tensor(0)], out(1))
    (part,) = split(one, classify(one, "cpu"), GraphSettings())
    assert (part.recorded, part.reason) == (False, "1 device steps are too few to pay")


def test_results_of_a_dynamic_size() -> None:
    """What depends on the number of found places is plain; what does not is recorded."""
    artifact = artifact_of(
        [
            sine(1, 0),
            call("gt", a.Reg(1), 0.0, overload="Scalar", outs=(2,)),
            call("nonzero", a.Reg(2), outs=(3,)),
            a.Size(0, 3, 0),
            a.Alloc(4, (a.Scalar(0), 1), (1, 1), torch.int64, "cpu"),
            a.Copy(4, 3),
            sine(5, 1),
            sine(6, 5),
        ],
        [tensor(0)],
        [*out(4, 6), a.OutputSpec("scalar", a.Scalar(0))],
    )
    parts = split(artifact, classify(artifact, "cpu"), SMALL)
    assert [part.recorded for part in parts] == [True, False, True]
    case = Case(artifact)
    for _ in range(8):
        case.check(torch.randn(5))
    assert case.recorder.recorded == 2


def test_writes_through_a_view_reach_every_part() -> None:
    """A view of an input is written in one segment and read in another, with a host read between."""
    artifact = artifact_of(
        [
            a.View(1, 0, (2,), (1,), 1),
            call("mul_", a.Reg(1), 2.0, overload="Scalar"),
            call("sum", a.Reg(0), outs=(2,)),
            a.Item(0, 2),
            call("add_", a.Reg(1), a.Scalar(0), overload="Scalar"),
            a.View(3, 0, (3,), (1,), 0),
            call("mul_", a.Reg(1), 3.0, overload="Scalar"),
            sine(4, 3),
            sine(5, 1),
        ],
        [tensor(0, mutated=True)],
        out(4, 5),
    )
    case = Case(artifact)
    x = torch.randn(3)
    for _ in range(6):
        case.check(x)
    for _ in range(6):
        case.check(torch.randn(3))


def test_memory_of_the_program_written_across_parts() -> None:
    """A buffer made in one segment is written in place in later ones, plain and recorded."""
    artifact = artifact_of(
        [
            sine(1, 0),
            call("sum", a.Reg(1), outs=(2,)),
            a.Item(0, 2),
            call("add_", a.Reg(1), a.Scalar(0), overload="Scalar"),
            call("mul_", a.Reg(1), 2.0, overload="Scalar"),
            sine(3, 1),
            call("max", a.Reg(1), outs=(4,)),
            a.Item(1, 4),
            call("add_", a.Reg(1), a.Scalar(1), overload="Scalar"),
            sine(5, 1),
        ],
        [tensor(0)],
        out(1, 3, 5),
    )
    for native in (True, False):
        case = Case(artifact, native=native)
        for _ in range(12):
            case.check(torch.randn(4))
        assert case.recorder.replayed > 10


def test_source_freed_before_its_view() -> None:
    """A view outlives the register it was made from."""
    artifact = artifact_of(
        [
            sine(1, 0),
            a.View(2, 1, (2,), (1,), 2),
            a.Free((1,)),
            call("sum", a.Reg(2), outs=(3,)),
            a.Item(0, 3),
            call("mul", a.Reg(2), a.Scalar(0), overload="Scalar", outs=(4,)),
            sine(5, 2),
        ],
        [tensor(0)],
        out(4, 5),
    )
    case = Case(artifact)
    for _ in range(5):
        case.check(torch.randn(4))


def test_a_held_result_is_recorded_with_its_call() -> None:
    """The copy into the predicted layout is part of the recording, and a view of it is made again where it is used."""
    artifact = artifact_of(
        [
            sine(1, 0),
            a.Hold(1, (3, 2), (2, 1), torch.float32, "cpu", "aten::sin"),
            a.View(2, 1, (4,), (1,), 1),
            call("sum", a.Reg(2), outs=(3,)),
            a.Item(0, 3),
            call("mul_", a.Reg(2), a.Scalar(0), overload="Scalar"),
            sine(4, 1),
            sine(5, 2),
        ],
        [tensor(0)],
        out(1, 4, 5),
    )
    parts = split(artifact, classify(artifact, "cpu"), SMALL)
    assert shape(parts) == [(True, 4), (False, 3), (True, 3)]
    assert parts[2].tensors == (1,)
    case = Case(artifact)
    for _ in range(6):
        case.check(torch.randn(3, 2))
        case.check(torch.randn(2, 3).t())


def test_a_view_made_before_its_source_is_held_is_not_made_again() -> None:
    """It lies on the tensor that the register held then."""
    artifact = artifact_of(
        [
            sine(1, 0),
            a.View(2, 1, (4,), (1,), 1),
            a.Hold(1, (3, 2), (2, 1), torch.float32, "cpu", "aten::sin"),
            call("sum", a.Reg(2), outs=(3,)),
            a.Item(0, 3),
            call("mul", a.Reg(2), a.Scalar(0), overload="Scalar", outs=(4,)),
            sine(5, 1),
        ],
        [tensor(0)],
        out(4, 5),
    )
    case = Case(artifact)
    for _ in range(5):
        case.check(torch.randn(2, 3).t())


def test_what_is_held_is_as_dynamic_as_before() -> None:
    """And its dtype is known from there on: it is no mask."""
    index = a.Hold(2, (a.Scalar(0), 1), (1, 1), torch.int64, "cuda", "aten::nonzero")
    artifact = artifact_of(
        [
            call("nonzero", a.Reg(0), outs=(2,)),
            a.Size(0, 2, 0),
            index,
            call("argmax", a.Reg(0), 0, outs=(3,)),
            a.Hold(3, (4,), (1,), torch.int64, "cuda", "aten::argmax"),
            call("index", a.Reg(0), (a.Reg(3),), overload="Tensor", outs=(4,)),
        ],
        [tensor(0, "cuda")],
        out(4),
    )
    assert [v.kind for v in classify(artifact, "cuda")] == ["plain", "plain", "plain", "device", "host", "device"]


def test_sizes_from_inputs_are_not_dynamic() -> None:
    """A symbolic size keys recordings; nothing is divided."""
    artifact = artifact_of(
        [a.Size(0, 0, 0), a.Alloc(1, (a.Scalar(0),), (1,), torch.float32, "cpu"), a.Copy(1, 0), sine(2, 1)],
        [tensor(0)],
        [*out(2), a.OutputSpec("scalar", a.Scalar(0))],
    )
    assert shape(split(artifact, classify(artifact, "cpu"), SMALL)) == [(True, 4)]
    case = Case(artifact)
    for _ in range(4):
        for size in (2, 3, 5):
            case.check(torch.randn(size))
    assert case.recorder.recorded == 3


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        (call("nonzero", a.Reg(0), outs=(9,)), "waits for the device"),
        (call("masked_select", a.Reg(0), a.Reg(2), outs=(9,)), "waits for the device"),
        (call("index", a.Reg(0), (a.Reg(2),), overload="Tensor", outs=(9,)), "indexes with a mask, or with what may be one"),
        (call("mul", a.Reg(0), a.Reg(1), overload="Tensor", outs=(9,)), "takes a tensor of another device"),
        (call("zeros", (3,), device=torch.device("cpu"), outs=(9,)), "makes a tensor on another device"),
        (call("view", a.Reg(0), (6,), outs=(9,)), "its result shares memory with an argument"),
        (a.Alloc(9, (2,), (1,), torch.float32, "cpu"), "makes a tensor on cpu"),
        (a.Copy(0, 1), "copies from or to another device"),
        (a.Item(9, 0), "reads a number from a tensor"),
        (a.Python("f", (a.Reg(0),), (9,)), "calls Python"),
        (call("mm", a.Reg(0), a.Reg(0), outs=(9,)), ""),
        (call("index", a.Reg(0), (a.Reg(3),), overload="Tensor", outs=(9,)), ""),
        (call("native_dropout", a.Reg(0), 0.5, True, outs=(9, 10)), ""),
        (a.Alloc(9, (2,), (1,), torch.float32, "cuda"), ""),
        (call("zeros", (3,), device=torch.device("cuda"), outs=(9,)), ""),
    ],
)  # fmt: skip
def test_reasons(instruction: Any, reason: str) -> None:
    """What a CUDA graph cannot hold, and what it can."""
    inputs = [tensor(0, "cuda"), tensor(1), tensor(2, "cuda", torch.bool), tensor(3, "cuda", torch.int64)]
    (verdict,) = classify(artifact_of([instruction], inputs, []), "cuda")
    assert verdict.reason == reason


def test_a_scatter_into_fixed_sizes_ends_what_is_dynamic() -> None:
    """The found places decide a call's arguments, not the size of its result."""
    artifact = artifact_of(
        [
            call("nonzero", a.Reg(0), outs=(2,)),
            call("index_put", a.Reg(0), (a.Reg(2),), a.Reg(1), outs=(3,)),
            sine(4, 3),
        ],
        [tensor(0, "cuda"), tensor(1, "cuda")],
        out(4),
    )
    assert [verdict.kind for verdict in classify(artifact, "cuda")] == ["plain", "plain", "device"]


def test_without_a_device_nothing_is_recorded() -> None:
    """A CPU program is what ``load`` makes, with the reason."""
    decisions: list[GraphDecision] = []
    run = load_graphed(artifact_of([sine(1, 0)], [tensor(0)], out(1)), report=decisions.append)
    assert run(torch.zeros(2))[0].tolist() == [0.0, 0.0]
    assert [decision.reason for decision in decisions] == ["nothing of the program is on a CUDA device"]


def test_wrong_inputs_of_a_divided_program() -> None:
    """The parts do not check; the whole does."""
    artifact = evolve(
        READS_A_NUMBER,
        program=evolve(
            READS_A_NUMBER.program, inputs=(a.InputSpec("tensor", 0, torch.float32, "cpu", (4,), (1,), name="x"),)
        ),
    )
    case = Case(artifact)
    case.check(torch.randn(4))
    with pytest.raises(TypeError, match="takes 1 inputs"):
        case.graphed()
    with pytest.raises(TypeError, match=r"must have sizes \[4\]"):
        case.graphed(torch.randn(5))
    case.check(torch.randn(8)[::2])


@pytest.mark.parametrize("between", [False, True], ids=["whole", "divided"])
def test_random_state_stays_with_its_kernels(between: bool) -> None:
    """Recorded with the kernels that draw; where a cut would separate them, both are plain."""
    artifact = artifact_of(
        [
            sine(1, 0),
            a.Call("flambeau::philox_state", "", (torch.device("cuda"), 4, 1024), (), [a.Scalar(n) for n in (0, 1, 2)]),
            a.Compute(3, "add", (a.Scalar(1), 4)),
            sine(2, 1),
            *([a.Item(9, 2)] if between else []),
            call("mul", a.Reg(2), a.Scalar(3), overload="Scalar", outs=(3,)),
            sine(4, 3),
            sine(5, 0),
            sine(6, 5),
        ],
        [tensor(0, "cuda")],
        out(4, 6),
    )
    parts = split(artifact, classify(artifact, "cuda"), SMALL)
    assert passes_random_state(parts) is between
    if between:
        parts = split(artifact, classify(artifact, "cuda", plain_random=True), SMALL)
        assert not passes_random_state([part for part in parts if part.recorded])
        drawing = next(
            p
            for p in parts
            if any(isinstance(i, a.Call) and i.args[1:2] == (a.Scalar(3),) for i in p.program.instructions)
        )
        assert not drawing.recorded
    assert any(part.recorded for part in parts)


def nested(*instructions: a.Instruction, scalars: tuple[int, ...] = ()) -> a.Subprogram:
    """A call of a program of one operand: t1 and the scalars go out, to registers of the same numbers."""
    outputs = [a.OutputSpec("tensor", 1), *(a.OutputSpec("scalar", a.Scalar(n)) for n in scalars)]
    body = a.Program(instructions, 8, 8, [tensor(0, "cuda")], outputs)
    return a.Subprogram("call", (body,), (a.Reg(0),), (1, *map(a.Scalar, scalars)))


def test_what_nested_programs_launch_counts() -> None:
    """A program of calls alone is worth a recording."""
    settings = GraphSettings(smallest_program=3)
    for steps, recorded in ((2, False), (3, True)):
        artifact = artifact_of([nested(*(sine(n, n - 1) for n in range(1, steps + 1)))], [tensor(0, "cuda")], out(1))
        (part,) = split(artifact, classify(artifact, "cuda"), settings)
        assert part.recorded is recorded


@pytest.mark.parametrize("shown", [False, True], ids=["inside", "given"])
def test_random_state_of_a_nested_program(shown: bool) -> None:
    """Kernels beside it are recorded with it; a state that it gives to another part is of no use there."""
    state = a.Call("flambeau::philox_state", "", (torch.device("cuda"), 4, 1024), (), [a.Scalar(n) for n in (0, 1, 2)])
    draws = call("mul", a.Reg(0), a.Scalar(1), overload="Scalar", outs=(1,))
    artifact = artifact_of(
        [
            nested(state, draws, scalars=(1,) if shown else ()),
            a.Item(9, 1),
            call("mul", a.Reg(1), a.Scalar(1), overload="Scalar", outs=(2,)) if shown else sine(2, 1),
            sine(3, 2),
        ],
        [tensor(0, "cuda")],
        out(3),
    )
    parts = split(artifact, classify(artifact, "cuda"), SMALL)
    assert [part.recorded for part in parts] == [True, False, True] and passes_random_state(parts) is shown
    plain = split(artifact, classify(artifact, "cuda", plain_random=True), SMALL)
    assert not any(
        isinstance(instruction, a.Subprogram)
        for part in plain
        if part.recorded
        for instruction in part.program.instructions
    )
