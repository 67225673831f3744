"""In-kernel random numbers: the deal equals eager's loops, the stream equals curand's, everything else stays a library call."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.context import CompileContext
from flambeau_inductor.expr import Int, evaluate
from flambeau_inductor.expr.node import Symbol
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.ir.verify import verify
from flambeau_inductor.lowering import philox
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.ops.table import scalar_op
from flambeau_inductor.schedule import schedule

RESIDENT = 1024
SEED, OFFSET = 1234567890123456789, 40


def word(seed: int, counter: int, thread: int, lane: int) -> int:
    """Philox 4x32-10, one word."""
    words, low, high = [counter & (2**32 - 1), counter >> 32, thread, 0], seed & (2**32 - 1), seed >> 32
    for _ in range(10):
        a, b = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [(b >> 32) ^ words[1] ^ low, b & (2**32 - 1), (a >> 32) ^ words[3] ^ high, a & (2**32 - 1)]
        low, high = (low + 0x9E3779B9) & (2**32 - 1), (high + 0xBB67AE85) & (2**32 - 1)
    return words[lane]


def eager_deal(numel: int, threads: int, vector: int) -> dict[int, tuple[int, int, int]]:
    """Element -> (draw, thread, lane), by the loops of eager's kernels."""
    dealt = {}
    for thread in range(threads):
        draw = 0
        if vector == 1:
            for start in range(thread, numel + threads * 4, threads * 4):
                for lane in range(4):
                    dealt[start + threads * lane] = (draw, thread, lane)
                draw += 1
            continue
        for start in range(thread * vector, numel, threads * vector):
            for inside in range(vector):
                dealt[start + inside] = (draw + inside // 4, thread, inside % 4)
            draw += max(vector // 4, 1)
    return {element: place for element, place in dealt.items() if element < numel}


def test_known_answer() -> None:
    """The published test vector of Philox 4x32-10 for zero counter and key."""
    assert [word(0, 0, 0, lane) for lane in range(4)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_reference_is_philox() -> None:
    """The scalar op's reference against the recurrence in Python's integers, wrapped counters and large seeds included."""
    cases = [(0, 0, 0, 0), (SEED, 40, 77, 1), (2**63 - 1, 2**34 - 4, 270335, 3), (5, 2**35, 1, 2)]
    for seed, offset, thread, lane in cases:
        operands = [torch.tensor(v) for v in (seed, offset, -1, 3, thread, lane)]
        found = scalar_op("philox_uniform").reference(*operands, dtype=torch.float32)
        wanted = torch.tensor(word(seed, offset // 4 + 3, thread, lane)).float() * 2.0**-32 + 2.0**-33
        assert found.item() == wanted.item()


@pytest.mark.parametrize(("numel", "vector"), [(300, 4), (1000, 1), (9000, 4), (9001, 1), (4096, 2), (20000, 8)])
def test_deal_equals_the_loops_of_eager(numel: int, vector: int) -> None:
    """Draw, thread and lane of every element, as expressions and as tensors."""
    deal = philox.Deal.of(numel, RESIDENT, vector)
    wanted = eager_deal(numel, deal.threads, vector)
    draw, thread, lane = deal.place_all(torch.arange(numel))
    assert {n: (int(draw[n]), int(thread[n]), int(lane[n])) for n in range(numel)} == wanted
    symbol = Symbol("n", 0, numel - 1)
    place = deal.place(symbol)
    for n in (0, 1, 255, 256, numel // 2, numel - 1):
        assert tuple(evaluate(part, lambda _, n=n: n) for part in place) == wanted[n]
    assert deal.place(Int(numel - 1)) is not None


def test_increment() -> None:
    """One draw of four a thread and round, four words a draw."""
    assert philox.Deal.of(10, RESIDENT).increment == 4
    assert philox.Deal.of(RESIDENT * 4, RESIDENT).increment == 4
    assert philox.Deal.of(RESIDENT * 4 + 1, RESIDENT).increment == 8


def test_vector_width() -> None:
    """Sixteen bytes at most, fewer where memory or count does not divide."""
    assert philox.vector_width(1024, 4, 0, (13, 0)) == 4
    assert philox.vector_width(1024, 2, 0, (13, 0)) == 8
    assert philox.vector_width(1024, 2, 0, (12, 6)) == 4
    assert philox.vector_width(1022, 4, 0, (13, 0)) == 2
    assert philox.vector_width(1024, 4, 12, (13, 0)) == 1
    assert philox.vector_width(1023, 8, 0, (13, 0)) == 1


@pytest.fixture
def device_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that keeps few threads, whose eager kernels deal as described."""
    monkeypatch.setattr(philox, "device_threads", lambda device: RESIDENT)
    monkeypatch.setattr(philox, "agrees", lambda *facts: True)
    monkeypatch.setattr(philox, "cuda_version", lambda: (13, 0))


class Draws:
    """Stands for the state operator: hands out a fixed stream and remembers increments."""

    def __init__(self) -> None:
        self.offset, self.increments = OFFSET, []

    def __call__(self, device: torch.device, increment: int, threads: int) -> tuple[int, int, int]:
        before = self.offset
        self.offset += increment
        self.increments.append(increment)
        return SEED, before, -1


def lowered(function, *inputs):
    """The graph for CUDA inputs like ``inputs``, run on the CPU with ``Draws``; (context, results, draws)."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs]
    with mode:
        gm = make_fx(function)(*fakes)
    context = CompileContext()
    graph = lower_graph(gm, fakes, context)
    verify(graph)
    draws = Draws()
    operations = tuple(
        attrs.evolve(o, op=draws) if isinstance(o, Extern) and "philox_state" in str(o.op) else o
        for o in graph.operations
    )
    return context, run_graph(attrs.evolve(graph, operations=operations), [t.clone() for t in inputs]), draws, graph


def stream(numel: int, offset: int, vector: int) -> torch.Tensor:
    """The floats that eager draws for ``numel`` elements."""
    return philox.uniform(philox.Deal.of(numel, RESIDENT, vector), SEED, offset, torch.arange(numel))


@pytest.mark.usefixtures("device_facts")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_draws_as_eager(dtype: torch.dtype) -> None:
    """Values and mask of two dropouts in a row, in memory order of a transposed tensor, and the backward's product."""
    x = torch.randn(64, 96).to(dtype).t()

    def function(x):
        first, mask = torch.ops.aten.native_dropout(x + 1, 0.1, True)
        second, other = torch.ops.aten.native_dropout(first * 2, 0.5, True)
        return first, mask, second, other, torch.ops.aten.native_dropout_backward(second, mask, 1.0 / 0.9)

    context, (first, mask, second, other, back), draws, _ = lowered(function, x)
    assert not context.library_calls
    deal = philox.Deal.of(x.numel(), RESIDENT, 16 // x.element_size())
    assert draws.increments == [deal.increment] * 2
    drawn = stream(x.numel(), OFFSET, deal.vector)
    wanted = (drawn < torch.tensor(0.9)).reshape(64, 96).t()
    assert torch.equal(mask, wanted)
    scale = 1.0 / float(torch.tensor(0.9))
    torch.testing.assert_close(first, ((x + 1).float() * wanted * scale).to(dtype), rtol=0, atol=0)
    drawn = stream(x.numel(), OFFSET + deal.increment, deal.vector)
    assert torch.equal(other, (drawn < 0.5).reshape(64, 96).t())
    torch.testing.assert_close(back, (second.float() * mask * (1 / 0.9)).to(dtype), rtol=0, atol=0)


@pytest.mark.usefixtures("device_facts")
@pytest.mark.parametrize("layout", ["odd count", "transposed, odd count", "gaps"])
def test_dropout_that_takes_no_neighbours_numbers_elements_by_their_indices(layout: str) -> None:
    """Where a thread takes one element at a time, eager counts rows and columns, whatever the strides are."""
    views = {
        "odd count": lambda x: x,
        "transposed, odd count": lambda x: x.t(),
        "gaps": lambda x: torch.ops.aten.slice.Tensor(x, 1, 0, 48, 2),
    }

    def function(x):
        return torch.ops.aten.native_dropout(views[layout](x + 1), 0.5, True)

    x = torch.randn(33, 41) if layout != "gaps" else torch.randn(32, 48)
    context, (_, mask), _, _ = lowered(function, x)
    assert not context.library_calls
    shape = views[layout](x).shape
    assert torch.equal(mask, (stream(shape.numel(), OFFSET, 1) < 0.5).reshape(shape))


@pytest.mark.usefixtures("device_facts")
def test_uniform_numbers() -> None:
    """rand, rand_like, uniform and coins draw one grid apart; the upper bound never appears."""

    def function(x):
        a = torch.ops.aten.rand.default([50, 100], device=x.device)
        b = torch.ops.aten.uniform.default(x, -1.0, 3.0)
        return a, b, torch.ops.aten.bernoulli.p(x, 0.25), torch.ops.aten.rand_like.default(x)

    x = torch.empty(7, 11)
    context, (a, b, coins, like), draws, _ = lowered(function, x)
    assert not context.library_calls
    steps = [philox.Deal.of(n, RESIDENT).increment for n in (5000, 77, 77, 77)]
    assert draws.increments == steps
    assert torch.equal(a.reshape(-1), stream(5000, OFFSET, 1))
    wanted = stream(77, OFFSET + steps[0], 1).double() * 4 - 1
    assert torch.equal(b.reshape(-1), wanted.float())
    assert torch.equal(coins.reshape(-1), (stream(77, OFFSET + sum(steps[:2]), 1) < 0.25).float())
    assert torch.equal(like.reshape(-1), stream(77, OFFSET + sum(steps[:3]), 1))


@pytest.mark.usefixtures("device_facts")
def test_what_is_not_known_is_a_library_call() -> None:
    """The caller's own memory, probabilities of 0 and 1, other distributions, and generators of the program's."""

    def function(x):
        a = torch.ops.aten.native_dropout(x, 0.5, True)[0]
        b = torch.ops.aten.native_dropout(x + 1, 1.0, True)[0]
        own = torch.ops.aten.uniform.default(x, 0.0, 1.0)
        return a, b, torch.ops.aten.randn_like(x), torch.ops.aten.native_dropout(x * 2, 0.5, False)[0], own

    with FakeTensorMode():
        x = torch.empty(8, 8, device="cuda")
        gm = make_fx(function)(x)
    # Older torch traces no generator.
    (own,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.uniform.default)
    own.kwargs = {"generator": torch.Generator()}
    context = CompileContext()
    lower_graph(gm, [x], context)
    assert sum(context.library_calls.values()) == 5


@pytest.mark.usefixtures("device_facts")
def test_draws_keep_their_order() -> None:
    """A draw whose operand waits for a later draw through a fused kernel still comes first."""

    def function(x):
        base = x * 2
        first = torch.ops.aten.normal_functional.default(base + 1)
        second = torch.ops.aten.randn_like(x)
        return first, base + second

    with FakeTensorMode():
        x = torch.empty(64, 64, device="cuda")
        gm = make_fx(function)(x)
    steps = schedule(lower_graph(gm, [x], CompileContext())).steps
    names = [str(step.op) for step in steps if isinstance(step, Extern)]
    assert names == ["aten.normal_functional.default", "aten.randn_like.default"]
