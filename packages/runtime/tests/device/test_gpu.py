"""Triton kernels on a real GPU through both executors. Run with ``python -m pytest -m gpu``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve

from flambeau_runtime import artifact as a
from flambeau_runtime import load

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n) * factor, mask=index < n)


@triton.jit
def spin(x, y, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < n)
    for _ in range(100000):
        value = value * 0.5 + value * 0.5
    tl.store(y + index, value * factor, mask=index < n)


@triton.jit
def seeded(x, y, n, seed, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n) + tl.load(seed).to(tl.float32), mask=index < n)
"""
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i64", "factor": "fp64"}
Load = Callable[..., Callable[..., tuple[Any, ...]]]


def program(
    entry: str = "scale",
    *,
    block: int = 128,
    signature: dict[str, str] = SIGNATURE,
    divisible: tuple[str, ...] = ("x", "y"),
) -> a.Artifact:
    """``y = x * factor`` over a symbolic length; inputs ``x`` and ``factor``."""
    length, factor = a.Scalar(0), a.Scalar(1)
    code = [
        a.Size(0, 0, 0), a.Compute(2, "add", (length, block - 1)), a.Compute(3, "floordiv", (a.Scalar(2), block)),
        a.Alloc(1, (length,), (1,), torch.float32, "cuda:0"), a.Launch(0, (0, 1), (length, factor), grid=(a.Scalar(3), 1, 1)),
    ]  # fmt: skip
    inputs = [a.InputSpec("tensor", 0, torch.float32, "cuda:0", (None,), (1,)), a.InputSpec("scalar", 1)]
    meta = {"signature": signature, "constexprs": {"BLOCK": block}, "divisible": list(divisible), "num_warps": 4}
    kernel = a.Kernel(f"triton_{entry}", 0, entry, 2, 2, meta=meta)
    body = a.Program(code, 2, 4, inputs, [a.OutputSpec("tensor", 1)])
    return a.Artifact(body, [a.Library("t", "triton", SOURCE)], [kernel])


@pytest.fixture
def bind(executor: str, store: Any) -> Load:
    """``bind(artifact)`` with either executor."""
    return lambda artifact, **options: load(artifact, executor=executor, store=store, **options)


def test_sizes_and_scalars_of_each_call(bind: Load) -> None:
    """Grid and arguments follow the call; an empty tensor launches nothing."""
    run = bind(program())
    for size in (1, 128, 129, 5000, 0):
        x = torch.randn(size, device="cuda")
        assert torch.equal(run(x, size + 0.5)[0], x * (size + 0.5))


def test_a_misaligned_input(bind: Load) -> None:
    """A tensor between multiples of 16 bytes is read right."""
    run = bind(program())
    whole = torch.randn(4097, device="cuda")
    for x in (whole[:4096], whole[1:], whole[3:]):
        assert torch.equal(run(x, 2.0)[0], x * 2)


def test_a_promised_number_that_is_not_divisible(bind: Load) -> None:
    """A kernel specialised for sizes that are multiples of 16 is not used for others."""
    run = bind(program(divisible=("x", "y", "n")))
    for size in (1024, 1000, 17):
        x = torch.randn(size, device="cuda")
        assert torch.equal(run(x, 3.0)[0], x * 3)


def test_a_big_grid(bind: Load) -> None:
    """More than 65535 blocks along the first axis."""
    x = torch.randn(70_000 * 32, device="cuda")
    assert torch.equal(bind(program(block=32))(x, 2.0)[0], x * 2)


def test_the_kernel_runs_on_the_current_stream(bind: Load) -> None:
    """Work queued on a stream of the caller's is ordered with the kernel on both sides."""
    run = bind(program("spin", block=128))
    plain = bind(program())
    x = torch.ones(1 << 16, device="cuda")
    torch.cuda.synchronize()
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            slow = run(x, 2.0)[0]
            (result,) = plain(slow, 3.0)
            event = stream.record_event()
        torch.cuda.current_stream().wait_event(event)
        assert torch.equal(result, torch.full_like(x, 6.0))


def test_two_streams_at_once(bind: Load) -> None:
    """Each of two streams gets its own results; memory of one is not handed to the other while in use."""
    run = bind(program("spin"))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    inputs = [torch.full((1 << 14,), float(n + 1), device="cuda") for n in range(2)]
    torch.cuda.synchronize()
    results: list[list[torch.Tensor]] = [[], []]
    for _ in range(5):
        for n, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[n].append(run(inputs[n], 2.0)[0] + 0)
    torch.cuda.synchronize()
    for n in range(2):
        assert all(torch.equal(r, inputs[n] * 2) for r in results[n])


def test_memory_comes_from_the_allocator_and_goes_back(bind: Load) -> None:
    """Results count as allocated, and the same block serves the next call."""
    run = bind(program())
    x = torch.randn(1 << 20, device="cuda")
    run(x, 2.0)
    torch.cuda.synchronize()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    (y,) = run(x, 2.0)
    assert torch.cuda.memory_allocated() - before == 4 << 20
    address = y.data_ptr()
    del y
    assert torch.cuda.memory_allocated() == before
    for _ in range(10):
        (y,) = run(x, 2.0)
        assert y.data_ptr() == address
        del y
    assert torch.cuda.memory_reserved() == reserved


def test_a_thread_of_its_own(bind: Load) -> None:
    """A thread that has not used CUDA yet can run the program."""
    run = bind(program())
    x = torch.randn(1000, device="cuda")
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(run(x, 2.0)[0].cpu())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(torch.equal(r, x.cpu() * 2) for r in results)


def test_one_element_that_a_library_left_on_the_cpu(bind: Load) -> None:
    """A kernel reads a seed that lies on the CPU, where one on the GPU was promised."""
    meta = {"signature": {"x": "*fp32", "y": "*fp32", "seed": "*i64", "n": "i32"}, "constexprs": {"BLOCK": 64}}
    source = SOURCE.replace("def seeded(x, y, n, seed,", "def seeded(x, y, seed, n,")
    code = [a.Alloc(2, (40,), (1,), torch.float32, "cuda"), a.Launch(0, (0, 2, 1), (40,), grid=(1, 1, 1))]
    inputs = [
        a.InputSpec("tensor", 0, torch.float32, "cuda", (40,), (1,)), a.InputSpec("tensor", 1, torch.int64, "cuda", (), ())
    ]  # fmt: skip
    body = a.Program(code, 3, 0, inputs, [a.OutputSpec("tensor", 2)])
    run = bind(a.Artifact(body, [a.Library("t", "triton", source)], [a.Kernel("k", 0, "seeded", 3, 1, meta=meta)]))
    x = torch.randn(40, device="cuda")
    for seed in (torch.tensor(7), torch.tensor(7, device="cuda")):
        assert torch.equal(run(x, seed)[0], x + 7)


def test_library_calls_between_kernels(bind: Load) -> None:
    """A factory call makes its tensor on the inputs' device."""
    code = [
        a.Call("aten::ones", "", ((8,),), {"dtype": torch.float32, "device": torch.device("cuda:0")}, (1,)),
        a.Call("aten::add", "Tensor", (a.Reg(0), a.Reg(1)), {}, (2,)),
    ]  # fmt: skip
    inputs = [a.InputSpec("tensor", 0, torch.float32, "cuda:0", (8,), (1,))]
    run = bind(a.Artifact(a.Program(code, 3, 0, inputs, [a.OutputSpec("tensor", 2)])))
    for device in range(torch.cuda.device_count()):
        x = torch.randn(8, device=f"cuda:{device}")
        (y,) = run(x)
        assert y.device == x.device and torch.equal(y, x + 1)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_one_callable_on_two_devices(bind: Load) -> None:
    """The same loaded artifact runs where its input lies and leaves the current device alone."""
    run = bind(program())
    for device in (1, 0, 1):
        x = torch.randn(1000, device=f"cuda:{device}")
        (y,) = run(x, 2.0)
        assert y.device == x.device and torch.equal(y, x * 2)
        assert torch.cuda.current_device() == 0


def test_a_launch_that_the_driver_refuses(store: Any) -> None:
    """The error names the call, the driver's words and the kernel, and the next call works."""
    made = program()
    launch = made.program.instructions[-1]
    assert isinstance(launch, a.Launch)
    wrong = a.Launch(0, launch.buffers, launch.scalars, grid=(1, 1 << 20, 1))
    code = (*made.program.instructions[:-1], wrong)
    broken = load(a.Artifact(evolve(made.program, instructions=code), made.libraries, made.kernels), store=store)
    x = torch.ones(8, device="cuda")
    with pytest.raises(RuntimeError, match=r"cuLaunchKernel failed with \d+: invalid") as raised:
        broken(x, 2.0)
    assert "triton_scale" in raised.value.__notes__[0]
    assert torch.equal(load(made, store=store)(x, 2.0)[0], x * 2)


def test_more_launches_than_the_queue_holds(bind: Load) -> None:
    """A full queue makes the caller wait, no more."""
    run = bind(program())
    x = torch.ones(64, device="cuda")
    for _ in range(3000):
        (x,) = run(x, 1.0)
    torch.cuda.synchronize()
    assert torch.equal(x, torch.ones(64, device="cuda"))
