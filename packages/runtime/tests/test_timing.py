"""Programs are timed side by side; one that raises, or takes its process down, has no time and takes nothing else down."""

from __future__ import annotations

import math

import pytest
import torch

from flambeau_runtime import library_settings, timing
from flambeau_runtime.artifact import Artifact, Call, InputSpec, OutputSpec, Program, Reg, Scalar
from flambeau_runtime.timing import time_apart, time_artifacts, time_groups
from flambeau_runtime.workers import Request, WorkerFailed
from flambeau_runtime.workers import main as worker

CPU = torch.device("cpu")


def artifact(op="aten::exp", sizes=(4, 4), strides=(4, 1), dtype=torch.float32):
    """One call of an operator on one tensor."""
    inputs = (InputSpec("tensor", 0, dtype, CPU, sizes, strides, name="x"),)
    return Artifact(Program((Call(op, args=(Reg(0),), outs=(Reg(1),)),), 2, 0, inputs, (OutputSpec("tensor", 1),)))


def test_more_work_takes_longer_and_what_raises_has_no_time():
    small, failing = time_artifacts([artifact(), artifact("aten::linalg_det", (2, 3), (3, 1))], CPU, 5)
    (large,) = time_artifacts([artifact("aten::exp", (1 << 22,), (1,))], CPU, 5)
    assert failing is None
    assert small is not None and large is not None and 0 < small < large


def test_what_computes_something_else_has_no_time():
    """The first that runs says what is computed: another rounding is no difference, another function is."""
    found = time_artifacts(
        [artifact("aten::linalg_det", (2, 3), (3, 1)), artifact(), artifact("aten::expm1"), artifact()], CPU, 1
    )
    assert found[0] is None and math.isnan(found[2]) and found[1] > 0 and found[3] > 0
    nothing = artifact(sizes=(0, 4))
    assert all(taken > 0 for taken in time_artifacts([nothing, nothing], CPU, 1))


def test_what_is_written_to_is_the_same_for_each_program():
    inputs = (InputSpec("tensor", 0, torch.float32, CPU, (4, 4), (1, 4), mutated=True, name="x"),)
    call = Call("aten::exp_", args=(Reg(0),), outs=(Reg(1),))
    writes = Artifact(Program((call,), 2, 0, inputs, (OutputSpec("tensor", 1),)))
    assert all(taken > 0 for taken in time_artifacts([writes, writes, writes], CPU, 1))


def test_results_that_are_not_numbers_are_not_compared():
    """The numbers beside them are."""
    nan, numbers = torch.tensor([float("nan"), 1.0]), torch.tensor([2.0, 1.0])
    assert timing._agree((nan,), (nan,)) and timing._agree((numbers,), (nan,))
    assert timing._agree((nan,), (torch.tensor([float("inf"), 1.0]),))
    assert not timing._agree((torch.tensor([float("nan"), 2.0]),), (nan,))
    assert not timing._agree((nan,), (numbers,)) and not timing._agree((torch.ones(3),), (numbers,))
    assert timing._agree((3, None), (4, None)) and timing._agree((torch.tensor(1),), (torch.tensor(2),))


def test_vectors_are_positive():
    """A variance that is negative would make every result of a normalisation no number."""
    vector = artifact(sizes=(1000,), strides=(1,)).program.inputs[0]
    assert bool((timing._example(vector, {}, {}, 0) >= 0).all())
    assert bool((timing._example(artifact(sizes=(10, 100), strides=(100, 1)).program.inputs[0], {}, {}, 0) < 0).any())


@pytest.mark.parametrize(
    ("sizes", "strides", "dtype"),
    [
        ((3, 5), (1, 3), torch.float32),
        ((3, 5), (8, 1), torch.bfloat16),
        ((0, 5), (5, 1), torch.float32),
        ((4,), (0,), torch.int64),
    ],
)
def test_examples_have_the_layout_that_is_told(sizes, strides, dtype):
    given = artifact(sizes=sizes, strides=strides, dtype=dtype).program.inputs[0]
    tensor = timing._example(given, {}, {}, 0)
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (sizes, strides, dtype)
    assert tensor.numel() == 0 or bool(tensor.any()) is dtype.is_floating_point


def test_sizes_known_at_run_time_are_those_that_were_seen():
    scalar = InputSpec("scalar", 0, torch.int64)
    assert timing._example(scalar, {0: 5}, {}, 0) == 5
    tensor = InputSpec("tensor", 0, torch.float32, CPU, (Scalar(0), 4), (4, 1))
    assert timing._example(tensor, {0: 5}, {}, 1).shape == (5, 4)
    for spec in (scalar, tensor):
        with pytest.raises(ValueError, match="seen|known sizes"):
            timing._example(spec, {}, {}, 0)


def test_programs_share_what_they_are_given():
    spec, operands = artifact().program.inputs[0], {}
    first = timing._example(spec, {}, operands, 0)
    assert timing._example(spec, {}, operands, 0) is first
    assert timing._example(spec, {}, operands, 1) is not first


def test_programs_that_take_their_inputs_in_another_order_compute_the_same():
    """A kernel that takes the place of two reads what both of them read."""

    def angle(*names):
        inputs = tuple(
            InputSpec("tensor", n, torch.float32, CPU, (8,), (1,), name=name) for n, name in enumerate(names)
        )
        call = Call("aten::atan2", args=(Reg(names.index("x")), Reg(1 - names.index("x"))), outs=(Reg(2),))
        return Artifact(Program((call,), 3, 0, inputs, (OutputSpec("tensor", 2),)))

    found = time_artifacts([angle("x", "y"), angle("y", "x"), angle("z", "x")], CPU, 1)
    assert found[0] > 0 and found[1] > 0
    assert math.isnan(found[2])


def test_in_a_process_of_its_own():
    found = time_apart([artifact(), artifact("aten::linalg_det", (2, 3), (3, 1))], device=CPU)
    assert found[0] is not None and found[0] > 0 and found[1] is None


class Told:
    """A logger that keeps the events' names."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **facts: object) -> None:
        self.events.append(event)

    def debug(self, event: str, **facts: object) -> None:
        """Each measurement: not what is looked at."""


def test_what_differs_is_told(monkeypatch):
    told = Told()
    monkeypatch.setattr(timing, "logger", told)
    assert time_apart([artifact(), artifact("aten::expm1")], device=CPU)[1] is None
    assert told.events == ["candidate_differs"]


class Dying:
    """A process that ends as soon as it runs the second artifact."""

    def __init__(self, culprit: bytes) -> None:
        self.culprit = culprit
        self.asked = 0

    def ask(self, request: Request):
        self.asked += 1
        if self.culprit in request.blobs:
            return WorkerFailed("the worker process died")
        return {"seconds": [1.0] * len(request.blobs)}, []


def test_a_program_that_takes_the_process_down_is_the_only_one_without_a_time(monkeypatch):
    healthy, deadly = artifact(), artifact("aten::sin")
    process, behind = Dying(deadly.to_bytes()), []
    monkeypatch.setattr(timing, "_process", lambda: process)
    found = time_groups([[healthy, deadly, healthy], [healthy]], device=CPU, done=behind.append)
    assert found == [[1.0, None, 1.0], [1.0]]
    assert process.asked == 5 and behind == [0, 1]


def test_what_never_ends_is_ended(monkeypatch):
    """The process is killed, its request fails, and the next one has a new process."""
    monkeypatch.setattr(timing, "PATIENCE_SECONDS", 0.05)
    process = timing._Process()
    slow = timing._request([artifact()], CPU)
    assert isinstance(process.ask(slow), WorkerFailed)
    monkeypatch.setattr(timing, "PATIENCE_SECONDS", 120.0)
    process.start(timing._request([], CPU))
    assert process.ask(slow)[0]["seconds"][0] > 0
    process.close()


def test_the_process_ends_when_nothing_is_asked():
    process = timing._Process(linger=0.05)
    request = timing._request([artifact()], CPU)
    for _ in range(2):
        process.start(request)
        assert process.ask(request)[0]["seconds"][0] > 0
        (worker,) = process._pool._all
        worker.process.wait(timeout=20)
    process.close()


def test_libraries_compute_there_as_they_do_here():
    """Else a library that may round would be timed at full precision, and lose to a kernel of ours that rounds."""
    before = library_settings.current()
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        request = timing._request([artifact()], CPU)
        library_settings.apply(before)
        answer, _ = worker._time(dict(request.fields), list(request.blobs))
        assert torch.backends.cuda.matmul.fp32_precision == "tf32" and answer["seconds"][0] > 0
    finally:
        library_settings.apply(before)
