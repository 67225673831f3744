"""Programs are timed side by side; one that raises, or takes its process down, has no time and takes nothing else down."""

from __future__ import annotations

import pytest
import torch

from flambeau_runtime import timing
from flambeau_runtime.artifact import Artifact, Call, InputSpec, OutputSpec, Program, Reg
from flambeau_runtime.timing import time_apart, time_artifacts
from flambeau_runtime.workers import Request, WorkerFailed

CPU = torch.device("cpu")


def artifact(op="aten::exp", sizes=(4, 4), strides=(4, 1), dtype=torch.float32):
    """One call of an operator on one tensor."""
    inputs = (InputSpec("tensor", 0, dtype, CPU, sizes, strides, name="x"),)
    return Artifact(Program((Call(op, args=(Reg(0),), outs=(Reg(1),)),), 2, 0, inputs, (OutputSpec("tensor", 1),)))


def test_more_work_takes_longer_and_what_raises_has_no_time():
    small, failing, large = time_artifacts(
        [artifact(), artifact("aten::linalg_det", (2, 3), (3, 1)), artifact(sizes=(1 << 22,), strides=(1,))], CPU, 5
    )
    assert failing is None
    assert small is not None and large is not None and 0 < small < large


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
    tensor = timing._example(artifact(sizes=sizes, strides=strides, dtype=dtype).program.inputs[0])
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (sizes, strides, dtype)
    assert tensor.numel() == 0 or bool(tensor.any()) is dtype.is_floating_point


def test_sizes_known_at_run_time_are_refused():
    with pytest.raises(ValueError, match="known sizes"):
        timing._example(InputSpec("scalar", 0, torch.int64))


def test_in_a_process_of_its_own():
    found = time_apart([artifact(), artifact("aten::linalg_det", (2, 3), (3, 1))], device=CPU)
    assert found[0] is not None and found[0] > 0 and found[1] is None


class Dying:
    """A process that ends as soon as it runs the second artifact."""

    def __init__(self, culprit: bytes) -> None:
        self.culprit = culprit
        self.asked = 0

    def run(self, requests: list[Request]):
        self.asked += len(requests)
        return [
            WorkerFailed("the worker process died")
            if self.culprit in r.blobs
            else ({"seconds": [1.0] * len(r.blobs)}, [])
            for r in requests
        ]


def test_a_program_that_takes_the_process_down_is_the_only_one_without_a_time(monkeypatch):
    healthy, deadly = artifact(), artifact("aten::sin")
    process = Dying(deadly.to_bytes())
    monkeypatch.setattr(timing, "_process", lambda: process)
    assert time_apart([healthy, deadly, healthy], device=CPU) == [1.0, None, 1.0]
    assert process.asked == 4
