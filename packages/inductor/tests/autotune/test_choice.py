"""When a product becomes a kernel of its own: by option, by the model, by measurement, and never where Triton cannot express it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from tracing import convolved_on_cuda, traced_on_cuda

from flambeau_inductor.autotune import choice, measure
from flambeau_inductor.autotune.choice import ChooseGemm
from flambeau_inductor.config import Config
from flambeau_inductor.devices import device_of
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import Store


def meta(*sizes, dtype=torch.bfloat16):
    return torch.empty(*sizes, dtype=dtype, device="meta")


ODD = (meta(4096, 768), meta(50257, 768))
EVEN = (meta(4096, 768), meta(4096, 768))


def gemms(operands, function=lambda x, w: x @ w.t(), **options):
    """How many kernels of products there are."""
    artifact = compile_graph(traced_on_cuda(function, *operands), list(operands), options)
    return sum("gemm" in kernel.entry for kernel in artifact.kernels)


def test_a_kernel_where_the_library_is_slow():
    assert (gemms(ODD), gemms(EVEN)) == (1, 0)


def test_options():
    assert (gemms(ODD, gemm="library"), gemms(EVEN, gemm="generated")) == (0, 1)
    assert gemms(ODD, triton_kernels=False) == 0


@pytest.fixture
def precision():
    flags = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [flag.fp32_precision for flag in flags]
    yield lambda value, flag=flags[0]: setattr(flag, "fp32_precision", value)
    for flag, value in zip(flags, before, strict=True):
        flag.fp32_precision = value


@pytest.mark.parametrize(("value", "count"), [("tf32", 1), ("ieee", 0)])
def test_float32_only_where_its_products_may_round(value, count, precision):
    precision(value)
    assert gemms([operand.float() for operand in ODD], gemm="generated") == count


def test_small_products_are_not_worth_compiling():
    assert gemms((meta(64, 64), meta(63, 64))) == 0


def test_an_epilogue_that_triton_cannot_express(monkeypatch):
    monkeypatch.setattr(choice, "_is_expressed", lambda candidate, tile: False)
    assert gemms(ODD, gemm="generated") == 0


@pytest.fixture
def measured(monkeypatch):
    """Programs that were timed; what the clock says is set by the test."""
    asked: list[int] = []
    times: list[float | None] = []

    def time_apart(programs, *, device, store):
        asked.append(len(programs))
        return (times + [1.0] * len(programs))[: len(programs)]

    store = Store(None)
    monkeypatch.setattr(measure, "time_apart", time_apart)
    monkeypatch.setattr(measure, "default_store", lambda: store)
    monkeypatch.setattr(ChooseGemm, "_may_measure", lambda self, product: self.config.max_autotune)
    return asked, times


@pytest.mark.parametrize(
    ("times", "count"), [([1.0, 0.5], 1), ([1.0, 0.99], 0), ([1.0, None, 0.5], 1), ([1.0, None], 0), ([0.5], 0)]
)
def test_measurement_decides(times, count, measured):
    asked, clock = measured
    clock[:] = times
    assert gemms(EVEN, max_autotune=True) == count
    assert asked and asked[0] > 1


def test_what_was_measured_is_not_measured_again(measured):
    asked, clock = measured
    clock[:] = [1.0, 0.5]
    assert [gemms(EVEN, max_autotune=True) for _ in range(2)] == [1, 1]
    assert len(asked) == 1
    # Another epilogue is another kernel.
    assert gemms(EVEN, lambda x, w: (x @ w.t()).relu(), max_autotune=True) == 1
    assert len(asked) == 2


def convolutions(dtype=torch.bfloat16, **options):
    """How many kernels of convolutions there are."""
    images = [meta(*s, dtype=dtype) for s in ((32, 64, 28, 28), (64, 64, 3, 3))]
    images = [image.to(memory_format=torch.channels_last) for image in images]
    gm = convolved_on_cuda(lambda x, w: F.conv2d(x, w, padding=1).relu(), *images)
    artifact = compile_graph(gm, images, options)
    return sum("gemm" in kernel.entry for kernel in artifact.kernels)


def test_convolutions_stay_with_the_library_unless_asked_for():
    assert (convolutions(), convolutions(gemm="generated")) == (0, 1)


@pytest.mark.parametrize(("times", "count"), [([1.0, 0.5], 1), ([1.0, 0.99], 0), ([1.0, None], 0)])
def test_convolutions_are_measured(times, count, measured):
    asked, clock = measured
    clock[:] = times
    assert convolutions(max_autotune=True) == count
    assert asked and asked[0] > 1


@pytest.mark.parametrize(("value", "count"), [("tf32", 1), ("ieee", 0)])
def test_float32_convolutions_only_where_they_may_round(value, count, precision):
    precision(value, torch.backends.cudnn.conv)
    assert convolutions(torch.float32, gemm="generated") == count


def test_nothing_is_measured_where_algorithms_are_to_be_deterministic(monkeypatch):
    monkeypatch.setattr(choice, "device_of", lambda place: evolve(device_of(place), can_measure=lambda: True))
    product = type("Product", (), {"left": type("Left", (), {"device": torch.device("cuda")})})
    chooser = ChooseGemm(Config(max_autotune=True))
    assert chooser._may_measure(product)
    torch.use_deterministic_algorithms(True)
    try:
        assert not chooser._may_measure(product)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not ChooseGemm(Config())._may_measure(product)
