"""A device is a folder and its registrations: graphs are compiled for one of which no source knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from attrs import evolve
from devices.slate import PARTS, PLACE, slate_is_known
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from tracing import TABLE

import flambeau_runtime
from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import Artifact, ArtifactError
from flambeau_runtime import artifact as a
from flambeau_runtime.executor_py import PythonExecutor


@pytest.fixture
def slate() -> Iterator[None]:
    with slate_is_known():
        yield


def traced_there(function: Callable[..., Any], *inputs: torch.Tensor, place: torch.device = PLACE) -> fx.GraphModule:
    """The graph for tensors like ``inputs`` on ``place``; those without dimensions stay where they are."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty(t.shape, dtype=t.dtype, device=place if t.dim() else t.device) for t in inputs]
    with mode:
        return make_fx(function, decomposition_table=TABLE, _allow_non_fake_inputs=True)(*fakes)


def compiled(
    function: Callable[..., Any], *inputs: torch.Tensor, context: CompileContext | None = None
) -> tuple[Artifact, CompileContext]:
    context = context or CompileContext(Config(verify=True))
    gm = traced_there(function, *inputs)
    vals = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    return compile_graph(gm, vals, context=context), context


def on_host(artifact: Artifact) -> Artifact:
    """The same program over the host's memory."""
    host, program = torch.device("cpu"), artifact.program
    steps = [evolve(i, device=host) if isinstance(i, a.Alloc) else i for i in program.instructions]
    inputs = [evolve(spec, device=host) for spec in program.inputs]
    return evolve(artifact, program=evolve(program, instructions=steps, inputs=inputs, devices=()))


def normalised(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x * y + 1
    return torch.softmax(x, -1) + x.sum(0)


@pytest.mark.usefixtures("slate")
def test_a_graph_becomes_an_artifact_in_the_devices_language() -> None:
    """Kernels and memory are its own, none of the CPU's and none left to the library; the artifact names a slot."""
    artifact, context = compiled(normalised, torch.empty(6, 40), torch.empty(40))
    assert not context.library_calls
    assert [library.language for library in artifact.libraries] == ["slate"]
    assert artifact.libraries[0].text.startswith("// the dialect of slate\n")
    places = {i.device for i in artifact.program.instructions if isinstance(i, a.Alloc)}
    assert places == {spec.device for spec in artifact.program.inputs} == {PLACE}
    assert artifact.program.devices == (None,)
    assert Artifact.from_bytes(artifact.validate().to_bytes()).digest == artifact.digest


@pytest.mark.usefixtures("slate")
def test_what_its_kernels_compute_is_right() -> None:
    inputs = torch.randn(6, 40), torch.randn(40)
    artifact, _ = compiled(normalised, *inputs)
    (result,) = flambeau_runtime.load(on_host(artifact))(*inputs)
    torch.testing.assert_close(result, normalised(*inputs))


@pytest.mark.usefixtures("slate")
def test_programs_of_an_accelerator_that_the_extension_does_not_know_run_in_python() -> None:
    artifact, _ = compiled(normalised, torch.empty(6, 40), torch.empty(40))
    assert isinstance(flambeau_runtime.load(artifact), PythonExecutor)


@pytest.mark.usefixtures("slate")
def test_reductions_are_split_as_the_device_says() -> None:
    """In three parts, where the CPU has one for each of its threads' ranges."""
    artifact, _ = compiled(lambda x: x.sum(1), torch.empty(16, 3000))
    partial, _ = (i for i in artifact.program.instructions if isinstance(i, a.Alloc))
    assert partial.sizes == (PARTS, 16)


@pytest.mark.usefixtures("slate")
def test_dtypes_that_its_kernels_do_not_compute_with_are_the_librarys() -> None:
    artifact, context = compiled(lambda x: x.exp() + 1, torch.empty(8, dtype=torch.float64))
    assert not artifact.libraries
    assert all(reason.endswith("dtype torch.float64 on privateuseone") for reason in context.library_calls)


@pytest.mark.usefixtures("slate")
def test_numbers_on_the_host_become_arguments_of_its_kernels() -> None:
    artifact, context = compiled(lambda x, step: x / step, torch.empty(8), torch.tensor(2.0))
    assert not context.library_calls
    assert [type(i) for i in artifact.program.instructions][:1] == [a.Item]
    assert artifact.kernels[0].buffers == 2


@pytest.mark.usefixtures("slate")
def test_integers_are_divided_in_kernels_where_nothing_is_checked() -> None:
    """Eager on the CPU raises on a zero; this device's kernels do not."""
    wholes = torch.empty(8, dtype=torch.int64)
    assert not compiled(lambda x, y: x // y, wholes, wholes)[1].library_calls


@pytest.mark.usefixtures("slate")
def test_its_random_numbers_are_the_librarys() -> None:
    _, context = compiled(lambda x: torch.rand_like(x) + x, torch.empty(8))
    assert any("no kernel draws from" in reason for reason in context.library_calls)


def test_without_a_backend_everything_is_left_to_the_library() -> None:
    artifact, context = compiled(lambda x: x.exp() + 1, torch.empty(8))
    assert not artifact.libraries
    assert all(reason.endswith("device privateuseone") for reason in context.library_calls)


def test_artifacts_of_a_language_that_nobody_knows_are_refused() -> None:
    with slate_is_known():
        artifact, _ = compiled(normalised, torch.empty(6, 40), torch.empty(40))
    with pytest.raises(ArtifactError, match="unknown language 'slate'"):
        artifact.validate()
