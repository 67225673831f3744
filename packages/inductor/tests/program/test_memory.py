"""Which memory is reused, in place and later, and that this never raises the peak."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.program import share_memory
from flambeau_inductor.program.memory import hand_overs
from flambeau_inductor.schedule import schedule
from flambeau_runtime.artifact import Alloc, Free


def chain(x, w):
    """Products with pointwise work between: every intermediate has one shape."""
    for _ in range(4):
        x = torch.relu(x @ w) * 2 + 1
    return x


def wide_middle(x, w):
    """A small result dies before a large one is made and a second small one after it."""
    a = torch.relu(x + 1)
    b = a @ w
    c = torch.tanh(b).sum(1)
    return torch.relu(x + c[:, None]) @ w


def programs(function, inputs, **options):
    """The artifact's instructions."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    return compile_graph(gm, inputs, options)


@pytest.mark.parametrize("function", [chain, wide_middle])
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_results_do_not_depend_on_reuse(function, reuse, in_place):
    """With memory of its own for every result, and without."""
    inputs = (torch.randn(16, 16), torch.randn(16, 16))
    artifact = programs(function, inputs, allow_buffer_reuse=reuse, inplace_buffers=in_place)
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    torch.testing.assert_close(run(*inputs)[0], function(*inputs), rtol=1e-4, atol=1e-4)


def allocations(function, inputs, **options):
    """How often the program takes memory for a kernel's result."""
    return sum(isinstance(i, Alloc) for i in programs(function, inputs, **options).program.instructions)


def test_the_options_give_every_result_its_own_memory():
    """One allocation for each kernel's result; each option spares some of them by itself."""
    inputs = (torch.randn(16, 16), torch.randn(16, 16))
    own = allocations(chain, inputs, allow_buffer_reuse=False, inplace_buffers=False)
    handed_on = allocations(chain, inputs, allow_buffer_reuse=True, inplace_buffers=False)
    assert own == 4 > handed_on > 0
    assert allocations(chain, inputs, allow_buffer_reuse=False, inplace_buffers=True) == 0


def test_results_in_place_are_the_other_option():
    """A result over what its kernel reads last is not a hand-over, and the reverse."""
    inputs = (torch.randn(16, 16), torch.randn(16, 16))
    graph = lower_graph(make_fx(chain, tracing_mode="fake")(*inputs), inputs)
    assert hand_overs(schedule(graph), set())
    assert not any(buffer.in_place for buffer in schedule(graph).buffers.values())
    assert any(buffer.in_place for buffer in share_memory(graph, schedule(graph)).buffers.values())


def test_memory_is_not_held_over_a_peak():
    """What would wait beside the largest results is given back."""

    def function(x, w):
        a = torch.relu(x + 1)
        b = (a @ w).relu()
        c = torch.relu(b @ w.t() + 1)
        return torch.relu(c @ w)

    inputs = (torch.randn(64, 64), torch.randn(64, 4096))
    graph = lower_graph(make_fx(function, tracing_mode="fake")(*inputs), inputs)
    plan = share_memory(graph, schedule(graph))
    kept = {plan.buffers[o.buffer].storage for o in graph.outputs} | {"x_1", "w_1"}
    assert hand_overs(plan, kept) == {}
    freed = [i for i in programs(function, inputs).program.instructions if isinstance(i, Free)]
    assert len(freed) >= 3


def test_constants_are_not_given_back():
    """They are there for the next call, and so counted at every step."""
    x, table = torch.randn(16, 16), torch.randn(16, 16)
    gm = traced(lambda x: torch.relu(torch.relu(x + table) @ x + 1) @ x, x)
    artifact = compile_graph(gm, (x,), {})
    kept = {constant.register for constant in artifact.constants}
    freed = {register for i in artifact.program.instructions if isinstance(i, Free) for register in i.regs}
    assert kept and freed and not kept & freed


def test_gpu_results_overwrite_what_they_are_computed_from_only():
    """There only the data orders a read before a write."""
    with FakeTensorMode():
        inputs = tuple(torch.empty(64, 64, device="cuda") for _ in range(2))
    dependent = make_fx(lambda x, w: (x @ w).relu() @ w)(*inputs)
    graph = lower_graph(dependent, inputs)
    plan = share_memory(graph, schedule(graph))
    assert any(buffer.in_place for buffer in plan.buffers.values())


@pytest.mark.parametrize(
    ("function", "in_place"),
    [
        (lambda p: p.softmax(1), True),
        (lambda p: (p.softmax(1), p.sum(1)), True),
        # The kernel reads it in two stores of one walk.
        (lambda p: (p.softmax(1), (p - p.amax(1, True)) * 2), False),
        # Not the element that is overwritten.
        (lambda p: p.softmax(1).flip(1), False),
        # Nothing that the store needs says that a row was read.
        (lambda p: (p.exp(), (p - p.amax(1, True)).exp().sum(1)), False),
    ],
)
def test_gpu_results_overwrite_rows_that_were_reduced(function, in_place):
    """Once every thread has read its part of the row, which it has when the store needs a result of that walk."""
    with FakeTensorMode():
        inputs = tuple(torch.empty(64, 20000, device="cuda") for _ in range(2))

    def of_product(x, w):
        found = function(x @ w.t() @ x)
        return [part @ w.t() if part.dim() == 2 else part for part in (found if isinstance(found, tuple) else (found,))]

    graph = lower_graph(make_fx(of_product, tracing_mode="fake")(*inputs), inputs)
    plan = share_memory(graph, schedule(graph))
    assert any(buffer.in_place for buffer in plan.buffers.values()) == in_place


def test_inputs_do_not_raise_the_peak_that_waiting_memory_is_measured_by():
    """Parameters are there anyway, used early or late."""

    def function(x, w, v):
        a = torch.relu(x + 1)
        b = torch.relu(a @ w) @ w.t()
        return torch.relu(b + v[:64]).sum() + torch.relu(b * 2 + 1) @ w

    inputs = (torch.randn(64, 64), torch.randn(64, 2048), torch.randn(4096, 64))
    graph = lower_graph(make_fx(function, tracing_mode="fake")(*inputs), inputs)
    plan = share_memory(graph, schedule(graph))
    outer = {item.buffer.name for item in graph.inputs}
    kept = {plan.buffers[o.buffer].storage for o in graph.outputs} | outer
    assert len(hand_overs(plan, kept, outer)) <= len(hand_overs(plan, kept))


def test_a_result_of_a_row_takes_over_what_the_row_reads_later():
    """What two passes over a row give is written where what was sorted lies, and the next value of that row is computed from that."""

    def function(x, y):
        rank = y.sort()[0]
        spread = (x - x.amin(1, keepdim=True)).amax(1)
        return spread.sort()[0], spread.sign() * rank

    inputs = (torch.arange(32.0).view(4, 8), torch.arange(4.0))
    artifact = programs(function, inputs)
    assert sum(isinstance(i, Alloc) for i in artifact.program.instructions) == 1
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    for found, expected in zip(run(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("is_collective", [True, False])
def test_what_a_collective_may_still_read_is_not_overwritten(is_collective):
    """Between the call and the wait; what another call has read is."""
    collectives = torch.ops._c10d_functional

    def function(x, w):
        y = x @ w
        there = collectives.all_gather_into_tensor(y, 2, "group") if is_collective else y @ y
        return y.relu() @ w, collectives.wait_tensor(there)

    with FakeTensorMode():
        inputs = tuple(torch.empty(64, 64, device="cuda") for _ in range(2))
    graph = lower_graph(make_fx(function)(*inputs), inputs)
    plan = share_memory(graph, schedule(graph))
    assert any(buffer.in_place for buffer in plan.buffers.values()) == (not is_collective)
