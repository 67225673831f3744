"""Programs on an accelerator that only the test knows: slots, executors, recordings, timing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from attrs import evolve
from graphs.fake import FakeRecorder
from torch import device

from flambeau_runtime import artifact as a
from flambeau_runtime import load
from flambeau_runtime.accelerators import CUDA, Accelerator, accelerator_of, known, register, registered, stands_in
from flambeau_runtime.bench import measure
from flambeau_runtime.devices import real_device
from flambeau_runtime.executor_py import PythonExecutor
from flambeau_runtime.graphs import GraphDecision, host_waits, load_graphed, recorders

#: "meta" is a device of torch's of which there is always one, and which has no data to spoil.
WAITED: list[str] = []
META = Accelerator(
    type="meta",
    is_available=lambda: True,
    start=lambda: None,
    current=lambda: 0,
    synchronize=lambda: WAITED.append("meta"),
    identity=lambda: "nothing",
)


@pytest.fixture
def meta() -> Iterator[Accelerator]:
    with registered(META):
        yield META


def program_on(*places: str, named: str | None = None) -> a.Program:
    """One tensor on each place goes in; the first is copied into a new one on the place that is named."""
    inputs = [a.InputSpec("tensor", n, torch.float32, place, [2], [1]) for n, place in enumerate(places)]
    out = len(places)
    steps = [a.Alloc(out, [2], [1], torch.float32, named or places[0]), a.Copy(out, 0)]
    return a.Program(steps, out + 1, 0, inputs, [a.OutputSpec("tensor", out)])


def test_a_type_has_one_record() -> None:
    assert accelerator_of(device("cuda", 3)) is CUDA and accelerator_of(device("cpu")) is accelerator_of(None) is None
    with pytest.raises(ValueError, match="cuda is registered twice"):
        register(evolve(META, type="cuda"))
    with registered(META):
        assert accelerator_of(device("meta")) is META and known() == (CUDA, META)
    assert accelerator_of(device("meta")) is None


@pytest.mark.usefixtures("meta")
def test_each_kind_has_slots_of_its_own() -> None:
    """Devices of two kinds with one ordinal are two; one that is named without an ordinal is the first of its kind."""
    artifact = a.Artifact(program_on("cuda:1", "meta:1", named="meta")).validate()
    assert [str(spec.device) for spec in artifact.program.inputs] == ["cuda:0", "meta:1"]
    assert artifact.program.devices == (None, None)
    assert artifact.program.instructions[0].device == device("meta", 1)
    assert real_device(device("meta", 1), (0, 5)) == device("meta", 5)
    assert real_device(device("meta", 1), (0, None)) == device("meta", 0)


def test_without_a_record_a_program_names_the_very_device() -> None:
    artifact = a.Artifact(program_on("meta:1")).validate()
    assert artifact.program.inputs[0].device == device("meta", 1) and artifact.program.devices == ()


@pytest.mark.parametrize("native", [False, True])
def test_what_the_extension_does_not_know_runs_in_python(native: bool) -> None:
    with registered(evolve(META, native=native)):
        loaded = load(a.Artifact(program_on("meta:0")))
        assert isinstance(loaded, PythonExecutor) != native
        assert isinstance(load(a.Artifact(program_on("cpu"))), PythonExecutor) is False
        if not native:
            (result,) = loaded(torch.empty(2, device="meta"))
            assert result.device.type == "meta"


@pytest.mark.usefixtures("meta")
def test_a_number_of_the_host_may_stand_in() -> None:
    one = torch.tensor(1.0)
    assert stands_in(device("meta"), one) and not stands_in(device("meta"), torch.ones(1))
    assert not stands_in(device("cpu"), one)


def test_recorders_are_registered_once() -> None:
    with pytest.raises(ValueError, match="a recorder for cuda is registered twice"):
        recorders.register("cuda", FakeRecorder)


@pytest.mark.usefixtures("meta")
def test_a_recorder_is_asked_for_an_accelerators_programs() -> None:
    """What it is asked first is whether data may decide."""
    asked: list[str] = []

    class Asked(FakeRecorder):
        device = "meta"

        def has_conditions(self) -> bool:
            asked.append(self.device)
            return False

    with recorders.registered("meta", Asked):
        load_graphed(a.Artifact(program_on("meta:0")), report=lambda decision: None, native=False)
    assert asked == ["meta"]


@pytest.mark.usefixtures("meta")
def test_without_a_recorder_programs_run_plainly() -> None:
    told: list[GraphDecision] = []
    run: Callable[..., object] = load_graphed(a.Artifact(program_on("meta:0")), report=told.append)
    assert isinstance(run, PythonExecutor)
    assert [(decision.kind, decision.reason) for decision in told] == [("plain", "no graphs are recorded on meta")]


def test_where_the_host_waits_is_known_of_every_accelerator() -> None:
    program = program_on("meta:0")
    read = evolve(program, instructions=[*program.instructions, a.Item(0, 0)], scalar_registers=1)
    assert host_waits(a.Artifact(read)) == ()
    with registered(META):
        assert [wait.partition(" (")[0] for wait in host_waits(a.Artifact(read))] == ["reads a number from a tensor"]


@pytest.mark.usefixtures("meta")
def test_timing_waits_for_the_accelerator() -> None:
    WAITED.clear()
    measure(lambda: None, seconds=0.01, device="meta")
    assert WAITED
