"""Where and with which sizes compiled programs run on GPUs: other shapes, two streams, two devices, two threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from tests.comparison import assert_as_exact, assert_same, gradients, twin_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
TWO_DEVICES = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

Named = dict[str, Tensor | None]
BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: F.gelu(x * 2) + 1,
    "rows": lambda x: torch.softmax(x, -1),
    "columns": lambda x: x.exp().sum(0),
    "all": lambda x: (x - x.mean()).square().mean(),
    "norm": lambda x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5),
    "transposed": lambda x: (x.t() + 1).contiguous(),
    "running_sum": lambda x: torch.cumsum(x, -1),
}
SHAPES = [(3, 5), (64, 128), (1, 7), (129, 1000), (2000, 33), (2, 100_003), (1, 1), (4, 0), (0, 4)]


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", BODIES)
def test_changing_shapes(name: str, dynamic: bool | None) -> None:
    """One compiled function over many shapes, forward and backward, as near to the float64 result as eager's."""
    body = BODIES[name]
    flambeau.compiler.reset()
    compiled = flambeau.compile(body, dynamic=dynamic, options={"recompile_limit": 64})
    calls = [(compiled, torch.float32), (body, torch.float32), (body, torch.float64)]
    for shape in SHAPES:
        if 0 in shape and name in ("all", "norm", "rows", "columns"):
            continue
        x = torch.randn(shape, device="cuda")
        weights = torch.randn_like(body(x))
        found = [with_gradient(call, x, weights, dtype) for call, dtype in calls]
        # How a sum of a hundred thousand numbers is split up makes one order of sums better than another.
        assert_as_exact(*found, tiny=1e-5 if name == "running_sum" else 1e-6)


def with_gradient(call: Callable[[Tensor], Tensor], x: Tensor, weights: Tensor, dtype: torch.dtype) -> Named:
    """Result and gradient of a call on a copy of `x`."""
    leaf = x.detach().to(dtype).requires_grad_()
    result = call(leaf)
    result.backward(weights.to(dtype))
    return {"result": result.detach(), "gradient": leaf.grad}


def test_two_streams() -> None:
    """Launches follow the caller's current stream: work queued behind a long kernel on one stream does not run early."""
    compiled = flambeau.compile(lambda x: torch.tanh(x) * 2 + 1)
    x = torch.randn(1 << 16, device="cuda")
    compiled(x)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    values = [torch.zeros_like(x) for _ in streams]
    results = []
    torch.cuda.synchronize()
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            values[number].copy_(x + number)
            results.append(compiled(values[number]))
    torch.cuda.synchronize()
    for number, result in enumerate(results):
        assert_same(result, torch.tanh(x + number) * 2 + 1)


def test_backward_on_the_stream_of_its_forward() -> None:
    """A step on a side stream, waited for by the default one."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1)).cuda()
    eager = twin_of(model)
    compiled = flambeau.compile(model)
    stream = torch.cuda.Stream()
    for _ in range(3):
        x = torch.randn(256, 64, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compiled(x).sum().backward()
        torch.cuda.current_stream().wait_stream(stream)
        eager(x).sum().backward()
    assert_same(gradients(model), gradients(eager), rtol=1e-3, atol=1e-4)


def test_two_threads() -> None:
    """Two threads, each on a stream of its own, call one compiled function."""
    compiled = flambeau.compile(lambda x: F.layer_norm(F.gelu(x), (256,)))
    compiled(torch.randn(128, 256, device="cuda"))

    def work(seed: int) -> bool:
        generator = torch.Generator(device="cuda").manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                x = torch.randn(128, 256, device="cuda", generator=generator)
                torch.testing.assert_close(compiled(x), F.layer_norm(F.gelu(x), (256,)), rtol=1e-4, atol=1e-4)
        return True

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(2)))


@TWO_DEVICES
def test_two_devices() -> None:
    """The same function on two devices, in both orders of which is the current one."""
    compiled = flambeau.compile(lambda x: torch.softmax(x * 2, -1))
    for current in (0, 1):
        with torch.cuda.device(current):
            for device in ("cuda:0", "cuda:1"):
                x = torch.randn(33, 65, device=device)
                result = compiled(x)
                assert result.device == x.device
                assert_same(result, torch.softmax(x * 2, -1))


@TWO_DEVICES
def test_training_on_the_second_device() -> None:
    """Forward and backward away from the current device."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)).to("cuda:1")
    eager, x = twin_of(model), torch.randn(32, 64, device="cuda:1")
    flambeau.compile(model)(x).sum().backward()
    eager(x).sum().backward()
    assert_same(gradients(model), gradients(eager), rtol=1e-3, atol=1e-4)


@TWO_DEVICES
def test_recordings_on_two_devices() -> None:
    """CUDA graphs that take turns, then one thread for each device: earlier results stay as they were."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        y = F.gelu(x @ weight)
        flambeau.compiler.graph_break()
        return torch.softmax(y @ weight, -1) + 1

    compiled = flambeau.compile(function, mode="reduce-overhead")
    weights = [torch.randn(64, 64, device=f"cuda:{number}") for number in range(2)]

    def calls(number: int, count: int) -> list[tuple[Tensor, Tensor]]:
        found = []
        with torch.cuda.device(number), torch.no_grad():
            for _ in range(count):
                x = torch.randn(32, 64, device=f"cuda:{number}")
                found.append((compiled(x, weights[number]), function(x, weights[number])))
        return found

    results = [pair for step in range(20) for pair in calls(step % 2, 1)]
    with ThreadPoolExecutor(2) as pool:
        results += [pair for found in pool.map(calls, range(2), [50, 50]) for pair in found]
    for result, expected in results:
        assert result.device == expected.device
        assert_same(result, expected, rtol=1e-4, atol=1e-5)


@TWO_DEVICES
def test_a_copy_between_devices() -> None:
    """A function whose tensors live on two devices."""

    def function(x: Tensor) -> Tensor:
        return (x * 2).to("cuda:1").relu() + 1

    x = torch.randn(100, device="cuda:0")
    assert_same(flambeau.compile(function)(x), function(x))
