"""Native launches on a CUDA device made of host memory: packing, grids, devices, streams, scratch, alignment, errors."""

from __future__ import annotations

import itertools
import re
import struct
import threading
from concurrent.futures import Future
from typing import Any

import pytest
import torch

from flambeau_runtime import InputError, load
from flambeau_runtime import artifact as a
from flambeau_runtime.device import kernels
from flambeau_runtime.triton_kernels import CompileRequest, Cubin, TritonCompileError

WIDTHS = {"i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "fp32": 4}
NUMBERS = itertools.count()
SCALE = {"x": "*fp32", "y": "*fp32", "n": "i32", "factor": "fp32"}


class Compiler:
    """Stands in for Triton: a "cubin" is the list of its parameters' widths."""

    def __init__(self) -> None:
        self.requests: list[CompileRequest] = []
        self.facts: dict[str, Any] = {}

    def __call__(self, requests: list[CompileRequest], store: Any) -> list[Future[Cubin]]:
        self.requests += requests
        made: list[Future[Cubin]] = [Future() for _ in requests]
        for future, request in zip(made, requests):
            future.set_result(self.compile(request))
        return made

    def compile(self, request: CompileRequest) -> Cubin:
        widths = [WIDTHS.get(kind, 8) for kind in request.signature.values()] + [8, 8]
        # What follows the end of the text makes each cubin another one: equal ones are loaded once in a process.
        binary = " ".join(map(str, widths)).encode() + b"\0%d" % next(NUMBERS)
        name = request.entry if request.divisible or "divisible" not in request.entry else f"{request.entry}_plain"
        facts = {"shared": 0, "global_scratch": 0, "profile_scratch": 0, **self.facts}
        return Cubin(name, request.arch, num_warps=request.num_warps, triton="fake", binary=binary, **facts)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(kernels, "submit_stored", made)
    monkeypatch.setattr(kernels, "capability", lambda ordinal=None: 90)
    return made


def program(
    signature: dict[str, str] = SCALE, scalars: Any = (8, 2.0), *, entry: str = "scale", size: Any = 8, grid: Any = (1, 1, 1),
    divisible: tuple[str, ...] = (), inputs: Any = None, device: str = "cuda:0", **parts: Any,
) -> a.Artifact:  # fmt: skip
    """``y = kernel(x)``: one allocation, one launch."""
    code = [a.Alloc(1, (size,), (1,), torch.float32, device), a.Launch(0, (0, 1), scalars, grid=grid)]
    inputs = inputs or [a.InputSpec("tensor", 0, torch.float32, device, (8,), (1,))]
    meta = {"signature": signature, "divisible": list(divisible), "num_warps": 2}
    kernel = a.Kernel("triton_scale", 0, entry, 2, len(scalars), meta=meta)
    body = a.Program(code, 4, 4, inputs, [a.OutputSpec("tensor", 1)])
    return a.Artifact(body, [a.Library("t", "triton", "")], [kernel], **parts)


def arguments(line: str) -> list[str]:
    return line.split(" arguments ")[1].split()


def test_result_and_launch(fake: Any, compiler: Compiler) -> None:
    """The kernel runs once, with its threads, on memory from torch's allocator."""
    run = load(program())
    x = fake.to(torch.arange(8.0))
    fake.events()
    (y,) = run(x)
    assert y.device == torch.device("cuda:0")
    assert torch.equal(fake.back(y), torch.arange(8.0) * 2)
    allocate, loading, launch = [e for e in fake.events() if "device" not in e][:3]
    assert allocate == "allocate 32 on 0" and loading == "load on 0"
    assert launch.startswith("launch scale grid 1,1,1 threads 64 shared 0 stream 0 context 0")
    null = "0" * 16
    expected = [struct.pack("<Q", t.data_ptr()).hex() for t in (x, y)]
    assert arguments(launch) == [*expected, struct.pack("<i", 8).hex(), struct.pack("<f", 2.0).hex(), null, null]
    run(x)
    assert not fake.events("load")


@pytest.mark.parametrize("waits", [False, True])
def test_a_kernel_that_waits_by_itself_is_launched_early(fake: Any, compiler: Compiler, waits: bool) -> None:
    """And no other: it could read what is not written yet."""
    compiler.facts = {"waits": waits}
    run = load(program())
    (y,) = run(fake.to(torch.arange(8.0)))
    assert torch.equal(fake.back(y), torch.arange(8.0) * 2)
    assert fake.events("early") == ["early"] * waits


@pytest.mark.parametrize(("kind", "value", "format"), [
    ("i1", True, "<b"), ("i8", -3, "<b"), ("u8", 200, "<B"), ("i16", -300, "<h"), ("i32", -70000, "<i"), ("u32", 1 << 31, "<I"),
    ("i64", -(1 << 40), "<q"), ("u64", 5, "<Q"), ("fp32", 0.1, "<f"), ("fp64", 0.1, "<d"), ("fp64", 3, "<d"),
])  # fmt: skip
def test_scalars_are_packed_as_the_twin_packs_them(
    fake: Any, compiler: Compiler, kind: str, value: Any, format: str
) -> None:
    """Each type of Triton's signature has its width and representation."""
    run = load(program({"x": "*fp32", "y": "*fp32", "v": kind}, (value,), entry="other"))
    run(fake.to(torch.zeros(8)))
    (launch,) = fake.events("launch")
    assert arguments(launch)[2] == struct.pack(format, value).hex()


@pytest.mark.parametrize(("kind", "value"), [("i8", 128), ("i32", 1 << 31), ("u32", -1), ("u64", -1)])
def test_a_number_too_large_for_its_parameter(fake: Any, compiler: Compiler, kind: str, value: int) -> None:
    """It is an error and never cut off."""
    run = load(program({"x": "*fp32", "y": "*fp32", "v": kind}, (value,), entry="other"))
    with pytest.raises(OverflowError, match="does not fit"):
        run(fake.to(torch.zeros(8)))


def test_grid_and_scalars_come_from_the_call(fake: Any, compiler: Compiler) -> None:
    """A symbolic size decides allocation, grid and argument; an empty grid launches nothing."""
    s0, blocks = a.Scalar(0), a.Scalar(1)
    code = [
        a.Size(0, 0, 0), a.Compute(2, "add", (s0, 3)), a.Compute(1, "floordiv", (a.Scalar(2), 4)),
        a.Alloc(1, (s0,), (1,), torch.float32, "cuda"), a.Launch(0, (0, 1), (s0, 0.5), grid=(blocks, 2, 1)),
    ]  # fmt: skip
    body = a.Program(
        code, 4, 4, [a.InputSpec("tensor", 0, torch.float32, "cuda", (None,), (1,))], [a.OutputSpec("tensor", 1)]
    )
    kernel = a.Kernel("triton_scale", 0, "scale", 2, 2, meta={"signature": SCALE})
    run = load(a.Artifact(body, [a.Library("t", "triton", "")], [kernel]))
    for size in (5, 9):
        assert torch.equal(fake.back(run(fake.to(torch.ones(size)))[0]), torch.full((size,), 0.5))
    assert [re.search(r"grid (\S+)", e).group(1) for e in fake.events("launch")] == ["2,2,1", "3,2,1"]  # type: ignore[union-attr]
    assert run(fake.to(torch.ones(0)))[0].shape == (0,)
    assert not fake.events("launch")


def test_one_artifact_on_every_device(fake: Any, compiler: Compiler) -> None:
    """Compiled for either device the artifact is the same; a kernel is loaded once a device; the caller's device stays."""
    assert program(device="cuda:0").digest == program(device="cuda:1").digest == program(device="cuda:2").digest
    run = load(program(device="cuda:1"))
    for device in (0, 2, 0, 2):
        x = fake.to(torch.ones(8), device)
        fake.events()
        (y,) = run(x)
        assert y.device.index == device and torch.equal(fake.back(y), torch.full((8,), 2.0))
        assert f"context {device}" in "".join(fake.events("launch"))
        assert fake.library.fake_device() == 0
    loads = [run(fake.to(torch.ones(8), device)) and fake.events("load") for device in (1, 2)]
    assert loads == [["load on 1"], []]


def test_two_devices_in_one_program(fake: Any, compiler: Compiler) -> None:
    """Each slot follows its own input; inputs of one slot must lie on one device."""
    spec = [
        a.InputSpec("tensor", n, torch.float32, d, (8,), (1,)) for n, d in enumerate(["cuda:1", "cuda:0", "cuda:1"])
    ]
    code = [
        a.Alloc(3, (8,), (1,), torch.float32, "cuda:0"), a.Launch(0, (1, 3), (8, 3.0), grid=(1, 1, 1)),
        a.Alloc(4, (8,), (1,), torch.float32, "cuda:1"), a.Launch(0, (0, 4), (8, 5.0), grid=(1, 1, 1)),
    ]  # fmt: skip
    kernel = a.Kernel("triton_scale", 0, "scale", 2, 2, meta={"signature": SCALE})
    made = a.Artifact(
        a.Program(code, 5, 0, spec, [a.OutputSpec("tensor", 3), a.OutputSpec("tensor", 4)]), [a.Library("t", "triton", "")], [kernel]
    )  # fmt: skip
    assert made.program.devices == (None, None)
    run = load(made)
    one, two = run(fake.to(torch.ones(8), 2), fake.to(torch.ones(8), 0), fake.to(torch.ones(8), 2))
    assert (one.device.index, two.device.index) == (0, 2)
    assert fake.back(one)[0] == 3 and fake.back(two)[0] == 5
    with pytest.raises(InputError, match="cuda:2"):
        run(fake.to(torch.ones(8), 2), fake.to(torch.ones(8), 0), fake.to(torch.ones(8), 1))


def test_device_arguments_follow_the_inputs(fake: Any) -> None:
    """Operators and Python functions are given the device of this call's inputs, in lists too."""
    library = torch.library.Library("flambeau_test_devices", "FRAGMENT")
    library.define("ordinal(Device device) -> int")
    library.impl("ordinal", lambda device: device.index, "CompositeExplicitAutograd")
    cuda = torch.device("cuda:1")
    code = [
        a.Call("flambeau_test_devices::ordinal", "", (cuda,), {}, (a.Scalar(0),)),
        a.Call("flambeau_test_devices::ordinal", "", (), {"device": torch.device("cuda:2")}, (a.Scalar(1),)),
        a.Python("seen", (cuda, (cuda, torch.device("cpu"))), (a.Scalar(2),)),
    ]
    inputs = [a.InputSpec("tensor", 0, torch.float32, "cuda:1", (8,), (1,))]
    made = a.Artifact(a.Program(code, 1, 3, inputs, [a.OutputSpec("scalar", a.Scalar(n)) for n in range(3)]))
    seen: list[Any] = []
    run = load(made, python_functions={"seen": lambda *args: seen.append(args) or 0})
    for device in (0, 1):
        assert run(fake.to(torch.ones(8), device)) == (device, 2, 0)
        (first, (second, third)) = seen[-1]
        assert first == second == torch.device("cuda", device) and third == torch.device("cpu")


def test_nested_programs_run_on_the_outer_ones_devices(fake: Any, compiler: Compiler) -> None:
    """What a branch allocates lies where the inputs of the whole program do."""
    spec = a.InputSpec("tensor", 0, torch.float32, "cuda:1", (8,), (1,))
    code = [a.Alloc(1, (8,), (1,), torch.float32, "cuda:1"), a.Launch(0, (0, 1), (8, 4.0), grid=(1, 1, 1))]
    branch = a.Program(code, 2, 0, [spec], [a.OutputSpec("tensor", 1)])
    body = a.Program(
        [a.Subprogram("cond", (branch, branch), (a.Scalar(0), a.Reg(0)), (a.Reg(1),))],
        2, 1, [spec, a.InputSpec("scalar", 0)], [a.OutputSpec("tensor", 1)],
    )  # fmt: skip
    kernel = a.Kernel("triton_scale", 0, "scale", 2, 2, meta={"signature": SCALE})
    run = load(a.Artifact(body, [a.Library("t", "triton", "")], [kernel]))
    for device in (0, 2):
        (y,) = run(fake.to(torch.ones(8), device), True)
        assert y.device.index == device and torch.equal(fake.back(y), torch.full((8,), 4.0))
        assert fake.library.fake_device() == 0


def test_a_constant_holds_the_program_on_its_device(fake: Any, compiler: Compiler) -> None:
    """A constant does not move: inputs elsewhere are refused."""
    run = load(
        program(constants=[a.ConstantSpec(3, torch.float32, (2,), "cuda")]), constants=[fake.to(torch.ones(2), 1)]
    )
    run(fake.to(torch.ones(8), 1))
    with pytest.raises(InputError, match="cuda:1"):
        run(fake.to(torch.ones(8), 0))


def test_a_device_that_no_input_carries_keeps_its_number() -> None:
    """A graph that names a device means that one."""
    code = [a.Call("aten::ones", "", ((2,),), {"device": torch.device("cuda:1")}, (0,))]
    body = a.Artifact(a.Program(code, 1, 0, [], [a.OutputSpec("tensor", 0)])).program
    assert body.devices == (1,)
    assert body.instructions[0].kwargs == (("device", torch.device("cuda:0")),)  # type: ignore[union-attr]
    again = a.Artifact.from_bytes(a.Artifact(body).to_bytes()).program
    assert again == body


def test_launches_follow_the_current_stream(fake: Any, compiler: Compiler) -> None:
    """The stream is read at each call."""
    run = load(program())
    x = fake.to(torch.ones(8))
    for stream in (0, 77, 78):
        fake.library.fake_set_stream(0, stream)
        run(x)
    assert [re.search(r"stream (\d+)", e).group(1) for e in fake.events("launch")] == ["0", "77", "78"]  # type: ignore[union-attr]


def test_a_thread_without_a_context(fake: Any, compiler: Compiler) -> None:
    """The backward runs on a thread that may have called nothing of CUDA yet."""
    run = load(program())
    x = fake.to(torch.ones(8))
    run(x)
    results = []
    thread = threading.Thread(target=lambda: results.append(fake.back(run(x)[0])))
    thread.start()
    thread.join()
    assert torch.equal(results[0], torch.full((8,), 2.0))


def test_a_broken_promise_takes_the_plain_version(fake: Any, compiler: Compiler) -> None:
    """A misaligned pointer or number goes to a version without promises, compiled when it is first needed."""
    made = program(scalars=(a.Scalar(0), 2.0), entry="scale_divisible", divisible=("x", "y", "n"), inputs=[
        a.InputSpec("tensor", 0, torch.float32, "cuda", (8,), (1,)), a.InputSpec("scalar", 0),
    ])  # fmt: skip
    run = load(made)
    aligned, odd = fake.to(torch.ones(8)), fake.to(torch.ones(9)[1:])
    names = []
    for x, n in ((aligned, 0), (odd, 0), (aligned, 8), (odd, 8)):
        run(x, n)
        names += [e.split()[1] for e in fake.events("launch")]
    assert names == ["scale_divisible", *["scale_divisible_plain"] * 3]
    assert [request.divisible for request in compiler.requests] == [("x", "y", "n"), ()]


def test_scratch_memory_is_a_block_for_each_program(fake: Any, compiler: Compiler) -> None:
    """The two trailing pointers get memory for the whole grid, given back after the launch."""
    compiler.facts = {"global_scratch": 128, "profile_scratch": 16}
    run = load(program(grid=(3, 2, 1)))
    x = fake.to(torch.ones(8))
    before = fake.library.fake_live_blocks()
    fake.events()
    (y,) = run(x)
    events = fake.events()
    assert "allocate 768 on 0" in events and "allocate 96 on 0" in events
    assert all(int(pointer, 16) for pointer in arguments(events[-1])[-2:])
    assert fake.library.fake_live_blocks() == before + 1
    del y
    assert fake.library.fake_live_blocks() == before


@pytest.mark.parametrize(("shared", "asked"), [(48 * 1024, []), (100_000, ["attribute 8 = 100000"])])
def test_large_shared_memory_is_asked_for(fake: Any, compiler: Compiler, shared: int, asked: list[str]) -> None:
    """More than 48 KiB of dynamic shared memory needs an attribute of the function."""
    compiler.facts = {"shared": shared}
    load(program())(fake.to(torch.ones(8)))
    events = fake.events()
    assert [e for e in events if e.startswith("attribute")] == asked
    assert f"shared {shared} " in events[-1]


def test_a_failing_launch_says_what_and_where(fake: Any, compiler: Compiler) -> None:
    """The error has the call, the driver's words and the kernel; the next call works."""
    run = load(program())
    x = fake.to(torch.ones(8))
    run(x)
    fake.library.fake_fail_next_launch(719)
    with pytest.raises(RuntimeError, match="cuLaunchKernel failed with 719: unspecified launch failure") as raised:
        run(x)
    assert "while running kernel triton_scale" in raised.value.__notes__[0]
    run(x)


def test_a_failing_compilation_reaches_the_caller(
    fake: Any, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python raises while a kernel is bound is what the call raises."""
    run = load(program(divisible=("x",)))
    monkeypatch.setattr(kernels, "submit_stored", lambda requests, store: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(fake.to(torch.ones(9)[1:]))


def test_a_launch_waits_for_its_kernel(fake: Any, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading does not wait for the compiler; the first launch does, and raises what the compiler says."""
    pending: list[Future[Cubin]] = []

    def submit(requests: list[CompileRequest], store: Any) -> list[Future[Cubin]]:
        pending.append(Future())
        return pending[-1:]

    monkeypatch.setattr(kernels, "submit_stored", submit)
    late, broken = load(program()), load(program())
    request = CompileRequest("", "scale", SCALE, num_warps=2, arch=90)
    threading.Timer(0.05, lambda: pending[0].set_result(compiler.compile(request))).start()
    x = fake.to(torch.ones(8))
    assert torch.equal(fake.back(late(x)[0]), torch.full((8,), 2.0))
    pending[1].set_exception(TritonCompileError("scale", "no such thing", ""))
    with pytest.raises(TritonCompileError, match="no such thing"):
        broken(x)


def test_inputs_on_the_wrong_kind_of_device(fake: Any, compiler: Compiler) -> None:
    """A tensor on the CPU is refused, but for one element where a library call left it there."""
    run = load(program())
    with pytest.raises(InputError, match="must be on cuda, got cpu"):
        run(torch.ones(8))
    with pytest.raises(RuntimeError, match="no tensor on a CUDA device"):
        unchecked = a.InputSpec("tensor", 0, torch.float32, None, (8,), (1,))
        load(program(inputs=[unchecked, a.InputSpec("tensor", 2, torch.float32, "cuda", (8,), (1,))],
                     device="cpu"))(torch.ones(8), fake.to(torch.ones(8)))  # fmt: skip
    seed = [a.InputSpec("tensor", 0, torch.int64, "cuda", (), ())]
    for executor in ("native", "python"):
        handed_on = a.Artifact(a.Program([], 1, 0, seed, [a.OutputSpec("tensor", 0)]))
        assert load(handed_on, executor=executor)(torch.tensor(7))[0] == 7
        with pytest.raises(InputError, match="must be on cuda"):
            load(a.Artifact(a.Program([], 1, 0, [a.InputSpec("tensor", 0, torch.int64, "cuda", (1,), (1,))], [])),
                 executor=executor)(torch.tensor([7]))  # fmt: skip


def test_grids_out_of_range(fake: Any, compiler: Compiler) -> None:
    """A negative or huge grid is an error of ours, not of the driver."""
    for grid in ((-1, 1, 1), (1 << 31, 1, 1)):
        with pytest.raises(RuntimeError, match="cannot be launched"):
            load(program(grid=grid))(fake.to(torch.ones(8)))
