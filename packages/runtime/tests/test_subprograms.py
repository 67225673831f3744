"""Nested programs: both executors agree, one of several places is kept once, and loops write into slices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flambeau_runtime import ArtifactError, load
from flambeau_runtime import artifact as a
from flambeau_runtime.graphs.classify import classify
from flambeau_runtime.text import program_text

S0 = a.Scalar(0)


def tensors(*registers: int, mutated: frozenset[int] = frozenset()) -> list[a.InputSpec]:
    return [a.InputSpec("tensor", register, mutated=register in mutated) for register in registers]


def unary(op: str) -> a.Program:
    return a.Program([a.Call(f"aten::{op}", "", (a.Reg(0),), {}, (1,))], 2, 0, tensors(0), [a.OutputSpec("tensor", 1)])


def running_sum() -> a.Program:
    """Carry c, extra f, slices x and y: c + f * x is carried and written to y."""
    return a.Program(
        [
            a.Call("aten::mul", "Tensor", (a.Reg(1), a.Reg(2)), {}, (4,)),
            a.Call("aten::add", "Tensor", (a.Reg(0), a.Reg(4)), {}, (5,)),
            a.Copy(3, 5),
        ],
        6, 0, tensors(0, 1, 2, 3, mutated=frozenset({3})), [a.OutputSpec("tensor", 5)],
    )  # fmt: skip


def scan(length: Any) -> list[a.Instruction]:
    return [
        a.Alloc(3, (length, 4), (4, 1), torch.float32),
        a.Subprogram("scan", (running_sum(),), (a.Reg(0),), (4,), (a.Reg(1),), (2, 3), length),
    ]


SCAN_INPUTS = [*tensors(0, 1, 2), a.InputSpec("scalar", 0)]
SCAN_OUTPUTS = [a.OutputSpec("tensor", 4), a.OutputSpec("tensor", 3)]


@pytest.mark.parametrize("length", [0, 1, 5])
def test_scan_carries_and_writes_into_slices(make, executor, length: int) -> None:
    run = make(scan(S0), SCAN_INPUTS, SCAN_OUTPUTS, executor=executor)
    c, f = torch.randn(4), torch.randn(4)
    x = torch.randn(4, length + 1).t()[1:]  # neither contiguous nor at the start of its memory
    last, stacked = run(c, f, x, length)
    wanted = c + torch.cumsum(f * x, 0)
    torch.testing.assert_close(stacked, wanted)
    torch.testing.assert_close(last, c if length == 0 else wanted[-1])
    assert last.data_ptr() != c.data_ptr()


def test_a_loop_longer_than_what_it_slices_is_an_error(make, executor) -> None:
    run = make(scan(S0), SCAN_INPUTS, SCAN_OUTPUTS, executor=executor)
    with pytest.raises(RuntimeError, match="a loop of 4 steps over a tensor that is shorter"):
        run(torch.zeros(4), torch.zeros(4), torch.zeros(3, 4), 4)


def test_a_while_loop_of_no_steps_returns_memory_of_its_own(make, executor) -> None:
    never = a.Program([], 1, 0, tensors(0), [a.OutputSpec("scalar", False)])
    run = make([a.Subprogram("while", (never, unary("neg")), (a.Reg(0),), (1,))], tensors(0), [a.OutputSpec("tensor", 1)],
               executor=executor)  # fmt: skip
    x = torch.randn(3)
    (y,) = run(x)
    assert torch.equal(x, y) and x.data_ptr() != y.data_ptr()


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_loop_that_stacks_gives_a_row_a_step_and_one_at_least(make, executor, steps: int) -> None:
    """Of what is taken alone; the rows are copies, and the number is carried on without being stacked."""
    given = [*tensors(0, 1), a.InputSpec("scalar", 0), *tensors(2), a.InputSpec("scalar", 1)]
    asks = a.Program([a.Compute(2, "lt", (S0, a.Scalar(1)))], 3, 3, given, [a.OutputSpec("scalar", a.Scalar(2))])
    body = a.Program(
        [
            a.Compute(2, "add", (S0, 1)),
            a.Call("aten::add", "Tensor", (a.Reg(0), a.Reg(2)), {}, (3,)),
            a.Call("aten::neg", "", (a.Reg(1),), {}, (4,)),
        ],
        5, 3, given, [a.OutputSpec("tensor", 3), a.OutputSpec("tensor", 4), a.OutputSpec("scalar", a.Scalar(2))],
    )  # fmt: skip
    loop = a.Subprogram("stack", (asks, body), (a.Reg(0), a.Reg(1), 0), (3, None, None), (a.Reg(2), S0))
    size = a.Size(1, 3)
    outputs = [a.OutputSpec("tensor", 3), a.OutputSpec("scalar", a.Scalar(1))]
    run = make([loop, size], [*tensors(0, 1, 2), a.InputSpec("scalar", 0)], outputs, executor=executor)
    x, y, b = torch.randn(2, 3).t(), torch.randn(2), torch.randn(3, 1)
    stacked, rows = run(x, y, b, steps)
    torch.testing.assert_close(stacked, torch.stack([x + b * i for i in range(1, steps + 1)] or [x]))
    assert rows == max(steps, 1) and stacked.is_contiguous() and stacked.data_ptr() != x.data_ptr()


def calls(body: a.Program, other: a.Program) -> list[a.Instruction]:
    return [
        a.Subprogram("call", (body,), (a.Reg(0),), (1,)),
        a.Subprogram("call", (other,), (a.Reg(1),), (2,)),
        a.Subprogram("cond", (body, unary("exp")), (True, a.Reg(2)), (3,)),
    ]


def artifact_of_calls() -> a.Artifact:
    body = unary("neg")
    return a.Artifact(a.Program(calls(body, body), 4, 0, tensors(0), [a.OutputSpec("tensor", 3)]))


@pytest.mark.parametrize("kind", ["native", "python"])
def test_one_program_called_from_several_places(store, kind: str) -> None:
    x = torch.randn(3)
    assert torch.equal(load(artifact_of_calls(), store=store, executor=kind)(x)[0], -x)


def test_a_shared_program_is_printed_and_stored_once() -> None:
    artifact = artifact_of_calls()
    assert artifact.text().count("call aten::neg") == 1
    assert artifact.text().count("program 0 (above)") == 2
    assert program_text(artifact.program).count("program 1:") == 1
    data = artifact.to_bytes()
    assert data.count(b"aten::neg") == 1
    loaded = a.Artifact.from_bytes(data)
    assert loaded == artifact and loaded.digest == artifact.digest
    first, second, _ = loaded.program.instructions
    assert first.programs[0] is second.programs[0]


def test_equal_programs_give_equal_bytes_whether_shared_or_not() -> None:
    shared = artifact_of_calls()
    apart = a.Artifact(a.Program(calls(unary("neg"), unary("neg")), 4, 0, tensors(0), [a.OutputSpec("tensor", 3)]))
    assert apart == shared and apart.to_bytes() == shared.to_bytes()


def test_sharing_outlives_the_renaming_of_devices() -> None:
    body = a.Program([a.Alloc(1, (2,), (1,), torch.float32, "cuda:1")], 2, 0, tensors(0), [a.OutputSpec("tensor", 1)])
    artifact = a.Artifact(a.Program(calls(body, body), 4, 0, tensors(0), [a.OutputSpec("tensor", 3)]))
    first, second, _ = artifact.program.instructions
    assert first.programs[0] is second.programs[0]
    assert first.programs[0].instructions[0].device == torch.device("cuda:0") and artifact.program.devices == (1,)


BROKEN = {
    "another number of programs": (a.Subprogram("call", (unary("neg"), unary("neg")), (a.Reg(0),), (1,)), "'call' of 2 programs"),
    "slices outside a loop": (a.Subprogram("call", (unary("neg"),), (), (1,), (), (0,)), "'call' takes no slices"),
    "too few inputs": (a.Subprogram("call", (unary("neg"),), (), (1,)), "takes 1 inputs, 0 are passed"),
    "another number of outputs": (a.Subprogram("call", (unary("neg"),), (a.Reg(0),), (1, 2)), "has 1 outputs, 2 are taken"),
    "a slice that is not there": (a.Subprogram("scan", (unary("neg"),), (), (1,), (), (3,), 1), "t3 is read"),
    "a condition of no output": (
        a.Subprogram("while", (a.Program([], 1, 0, tensors(0), []), unary("neg")), (a.Reg(0),), (1,)), "one output, not 0"),
    "a condition of two outputs": (
        a.Subprogram("stack", (a.Program([], 1, 0, tensors(0), [a.OutputSpec("none")] * 2), unary("neg")), (a.Reg(0),), (1,)),
        "one output, not 2",
    ),
    "no predicate": (a.Subprogram("cond", (unary("neg"), unary("neg")), (), (1,)), "takes a predicate"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_fit_is_refused(name: str) -> None:
    instruction, message = BROKEN[name]
    with pytest.raises(ArtifactError, match=message):
        a.Artifact(a.Program([instruction], 4, 0, tensors(0), [])).validate()


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        (a.Subprogram("call", (unary("neg"),), (a.Reg(0),), (1,)), ""),
        (a.Subprogram("call", (unary("bernoulli"),), (a.Reg(0),), (1,)), ""),
        (a.Subprogram("call", (unary("nonzero"),), (a.Reg(0),), (1,)), "waits for the device"),
        (
            a.Subprogram("cond", (unary("neg"), unary("exp")), (a.Reg(0), a.Reg(0)), (1,)),
            "control flow is decided by data",
        ),
        (a.Subprogram("stack", (unary("neg"), unary("neg")), (a.Reg(0),), (1,)), "control flow is decided by data"),
    ],
)
def test_a_recording_holds_calls_whose_program_it_can_hold(instruction: a.Subprogram, reason: str) -> None:
    (verdict,) = classify(a.Artifact(a.Program([instruction], 2, 0, tensors(0), [])), "cuda")
    assert (verdict.kind, verdict.reason) == ("plain" if reason else "device", reason)
