"""Each device has one record, each language one writer; what is asked of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from devices.slate import SLATE

from flambeau_inductor.codegen import cpp
from flambeau_inductor.codegen.languages import Writer, register_language, registered_language, writer_of
from flambeau_inductor.config import Config
from flambeau_inductor.devices import (
    CPP,
    CPU,
    CUDA,
    H200,
    TRITON,
    Language,
    Reduced,
    device_facts,
    device_of,
    has_backend,
    register,
    registered,
)
from flambeau_inductor.devices.cpu import ENOUGH_WORK, FEW_RESULTS


def test_a_type_has_one_record() -> None:
    """A second registration is refused, and a block takes its own back."""
    for record in (CPU, CUDA):
        assert device_of(torch.device(record.type)) is record
        with pytest.raises(ValueError, match=f"{record.type} is registered twice"):
            register(record)
    place = torch.device(SLATE.type)
    with registered(SLATE):
        assert has_backend(place) and device_of(place) is SLATE
    assert not has_backend(place)


def test_a_device_without_a_backend_promises_nothing() -> None:
    found = device_of(torch.device("meta"))
    assert not found.enabled(Config()) and not found.dtypes
    assert found.queues and not found.is_host
    assert found.libraries.call_bytes is None and not found.libraries.channels_last(torch.float32)


def test_a_language_has_one_writer() -> None:
    writer = Writer(cpp.FLAGS, cpp.support, cpp.generate)
    with pytest.raises(ValueError, match="cpp is registered twice"):
        register_language(Language("cpp"), writer)
    with pytest.raises(ValueError, match="disagree about combined kernels"):
        register_language(Language("new", combines=True), writer)
    with registered_language(Language("new"), writer):
        assert writer_of(Language("new")) is writer
    with pytest.raises(KeyError):
        writer_of(Language("new"))


def test_languages_follow_from_the_options() -> None:
    assert CPU.language(Config()) is CPP
    assert CPU.language(Config(cpu_backend="triton")) is CUDA.language(Config()) is TRITON
    switched_off = Config(cpp_kernels=False, triton_kernels=False)
    assert not CPU.enabled(switched_off) and not CUDA.enabled(switched_off)
    assert CPU.enabled(Config(triton_kernels=False)) and CUDA.enabled(Config(cpp_kernels=False))


def test_the_cpu_splits_reductions_that_leave_threads_idle() -> None:
    place = torch.device("cpu")
    assert CPU.parts(place, Reduced(FEW_RESULTS - 1, ENOUGH_WORK, False, 0)) == 32
    assert CPU.parts(place, Reduced(FEW_RESULTS, ENOUGH_WORK, False, 0)) == 1
    assert CPU.parts(place, Reduced(1, ENOUGH_WORK - 1, False, 0)) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="the figures are those of the H200")
def test_a_gpu_splits_reductions_where_reading_in_more_programs_pays() -> None:
    """By what all programs together and each alone can take in, on 132 multiprocessors."""
    place = torch.device("cuda")
    assert device_facts(place) is H200
    assert CUDA.parts(place, Reduced(1, 1 << 24, False, 1 << 26)) == 4 * H200.multiprocessors
    assert CUDA.parts(place, Reduced(0, 1 << 24, False, 1 << 26)) == 1
    assert CUDA.parts(place, Reduced(1 << 16, 4096, False, 1 << 30)) == 1
    assert CUDA.parts(place, Reduced(64, 1 << 16, True, 1 << 24)) == 256


def test_what_library_calls_cost_is_known_of_both() -> None:
    """In bytes that memory moves meanwhile: a launch on a GPU costs more of them."""
    assert (CPU.libraries.call_bytes, CUDA.libraries.call_bytes) == (64 << 10, 4 << 20)


def test_which_convolutions_run_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the flags in force when it is asked."""
    assert CUDA.libraries.channels_last(torch.float16)
    # The flag itself may be frozen, by a test of torch's that ran before.
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(enabled=False))
    assert not CUDA.libraries.channels_last(torch.float16)
    assert not CPU.libraries.channels_last(torch.float16)
    assert CPU.libraries.channels_last(torch.float32) == torch.backends.mkldnn.enabled
