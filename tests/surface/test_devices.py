"""Devices of others: who writes kernels for them, and what programs there ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import flambeau
import flambeau_inductor
from flambeau import inductor
from flambeau.errors import InvalidOption
from flambeau_inductor.codegen import cpp
from flambeau_runtime import languages
from tests.comparison import assert_same

from .rows import calls

DIALECT = inductor.Language("surface_dialect")


def _support(kernels: Sequence[Any]) -> str:
    return "// written by the test\n" + cpp.support(kernels)


WRITER = inductor.Writer(cpp.FLAGS, _support, cpp.generate)


def function(x: Tensor) -> Tensor:
    return torch.softmax(torch.sin(x), -1) * 53


@calls("backends", "register_backend_for_device")
def test_kernels_for_the_cpu_are_written_by_a_backend_of_ones_own() -> None:
    """As long as it is registered; they are built, run, and in the key of a graph by what the backend says of itself."""

    def explained() -> Any:
        found = flambeau.explain(function, measure=False)(x)
        assert_same(found.result, function(x), rtol=1e-5, atol=1e-6)
        (library,) = found.programs[0].artifact.libraries
        return library, found.programs[0].cached

    x = torch.randn(6, 5)
    assert explained()[0].language == "cpp"
    for uuid, cached in (("1", False), ("1", True), ("2", False), (None, False), (None, False)):
        with inductor.register_backend_for_device("cpu", DIALECT, WRITER, uuid=uuid):
            library, found = explained()
        assert library.language == DIALECT.name and library.text.startswith("// written by the test\n")
        assert found is cached
    assert explained()[0].language == "cpp"


class Interface(inductor.DeviceInterface):
    """Of a device that is not there."""

    asked: list[str] = []

    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def current_device() -> int:
        return 3

    @staticmethod
    def synchronize(device: Any = None) -> None:
        Interface.asked.append("synchronize")


@calls("backends", "DeviceInterface")
def test_programs_on_a_spare_device_name_slots() -> None:
    """Kernels of one's own for torch's spare type, on fakes; where the interface is gone, ordinals are what they are."""

    def devices(place: int) -> Any:
        spare = torch.device("privateuseone", place)
        with FakeTensorMode() as mode:
            fake = torch.empty(6, 5, device=spare)
        with mode:
            gm = make_fx(lambda x: (torch.sin(x) + 1,))(fake)
        artifact = flambeau_inductor.compile_graph(gm, [fake])
        assert [library.language for library in artifact.libraries] == [DIALECT.name]
        return artifact.program.devices, artifact.program.inputs[0].device, artifact.digest

    with inductor.register_backend_for_device("privateuseone", DIALECT, WRITER):
        with inductor.register_interface_for_device("privateuseone", Interface):
            known = devices(0), devices(1)
        unknown = devices(0), devices(1)
    assert known[0] == known[1] and known[0][:2] == ((None,), torch.device("privateuseone", 0))
    assert unknown[0][0] == () and [found[1].index for found in unknown] == [0, 1]
    from flambeau_runtime import accelerators

    with inductor.register_interface_for_device("privateuseone", Interface):
        found = accelerators.accelerator_of(torch.device("privateuseone"))
        assert found is not None and (found.is_available(), found.current()) == (False, 3)
        found.synchronize()
    assert Interface.asked == ["synchronize"]
    assert accelerators.accelerator_of(torch.device("privateuseone")) is None


class Incomplete(inductor.DeviceInterface):
    @staticmethod
    def is_available() -> bool:
        return True


@pytest.mark.compiles(graphs=0)
@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda: inductor.register_interface_for_device("nothing", Interface), "no type of torch.device"),
        (lambda: inductor.register_interface_for_device("cuda:1", Interface), "without an ordinal"),
        (lambda: inductor.register_interface_for_device("cuda", Interface), "cuda is registered twice"),
        (lambda: inductor.register_interface_for_device("privateuseone", dict), "a subclass of DeviceInterface"),
        (lambda: inductor.register_interface_for_device("privateuseone", Incomplete), r"has no current_device\(\)"),
        (
            lambda: inductor.register_backend_for_device("cpu", inductor.Language("cpp", templates=False), WRITER),
            "twice",
        ),
        (
            lambda: inductor.register_backend_for_device("cpu", inductor.Language("other", combines=True), WRITER),
            "disagree about combined kernels",
        ),
        (
            lambda: inductor.register_backend_for_device("cpu", DIALECT, WRITER, runtime=languages.Language(name="x")),
            "in the runtime",
        ),
        (lambda: inductor.register_backend_for_device("cpu", DIALECT, WRITER, uuid=""), "uuid"),
    ],
)
def test_what_cannot_be_registered(register: Callable[[], Any], words: str) -> None:
    """Nothing of it stays."""
    for _ in range(2):
        with pytest.raises(InvalidOption, match=words):
            register()
