"""The walk over the graph: inputs, write-backs, library calls, random numbers, symbolic scalars."""

import pytest
import torch

from flambeau_inductor.errors import UnsupportedGraphError
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.graph import ScalarInput
from flambeau_inductor.ir.loops import Extern, Pointwise, ReadItem

from .conftest import lower_and_run

aten = torch.ops.aten


def test_write_back_goes_into_the_input():
    """A trailing copy_ overwrites the input's memory and nothing else is stored."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from flambeau_inductor.ir.evaluate import run_graph
    from flambeau_inductor.ir.verify import verify
    from flambeau_inductor.lowering.run import lower_graph

    def swap(a, b):
        x, y = b * 2, a.flip(0)
        old = a + 0
        a.copy_(x)
        b.copy_(y)
        return old, a

    a, b = torch.randn(4), torch.randn(4)
    graph = lower_graph(make_fx(swap, tracing_mode="fake")(a, b), [a, b])
    verify(graph)
    ours, theirs = [a.clone(), b.clone()], [a.clone(), b.clone()]
    got, want = run_graph(graph, ours), swap(*theirs)
    for x, y in zip((*ours, *got), (*theirs, *want), strict=True):
        torch.testing.assert_close(x, y)


def test_a_write_back_that_is_returned_is_the_input():
    """Not a value like it."""
    x = torch.randn(4)
    graph = lower_and_run(lambda x: (aten.copy_.default(x, x * 2), x * 3), x).graph
    returned, other = graph.outputs
    assert graph.buffers[returned.buffer].storage == "x_1" and graph.buffers[other.buffer].storage == other.buffer


def test_random_numbers_are_eagers(check):
    """The library draws them, so the same seed gives the same numbers."""
    x = torch.randn(64)
    check(
        lambda x: (aten.native_dropout(x, 0.5, True)[0] * 2, torch.rand_like(x) + 1),
        x,
        seed=3,
        modes=("fake",),
        library=["native_dropout.default", "rand_like.default"],
    )


def test_unused_random_draws_stay(check):
    """The generator has to move as in eager."""

    def f(x):
        torch.rand_like(x)
        return torch.rand_like(x)

    check(f, torch.randn(8), seed=1, modes=("fake",), library=["rand_like.default"])


def test_several_results_of_a_library_call(check):
    """Each is a buffer; unused ones cost nothing."""
    check(lambda x: (x + 1).sort(0)[1] * 2, torch.randn(9), library=["sort.default"])


def test_data_dependent_sizes():
    """A size known only at run time is a symbol that the call defines."""
    lowered = lower_and_run(lambda x: x.nonzero() + 1, torch.tensor([0.0, 1.0, 2.0]), mode="symbolic")
    torch.testing.assert_close(lowered.outputs[0], torch.tensor([[2], [3]]))
    call = next(o for o in lowered.graph.operations if isinstance(o, Extern))
    assert call.binds


def test_a_slice_at_a_number_that_is_read():
    """Fakes do not know on which side of zero it is; the program computes how long the window is."""
    x = torch.arange(5.0)
    for bound in (-9, -2, 0, 3, 9):
        lowered = lower_and_run(lambda x, n: x[n.item() :] * 2, x, torch.tensor(bound), mode="symbolic")
        torch.testing.assert_close(lowered.outputs[0], x[bound:] * 2)
        assert not any(isinstance(o, Extern) and "slice" in str(o.op) for o in lowered.graph.operations)


def test_what_is_assumed_of_what_is_read_is_asserted():
    """Bounds by which expressions are simplified, an equality, a position in a tensor."""

    def f(x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= 3)
        return torch.ones(k) + x[k]

    lowered = lower_and_run(f, torch.arange(5.0), torch.tensor(2), mode="symbolic")
    torch.testing.assert_close(lowered.outputs[0], torch.full((2,), 3.0))
    for wrong in (-1, 4):
        with pytest.raises(RuntimeError, match="compiled for sizes"):
            run_graph(lowered.graph, [torch.arange(5.0), torch.tensor(wrong)])


def test_symbolic_int_inputs():
    """An int input is a scalar of the graph."""
    lowered = lower_and_run(lambda x, n: (x * n, n + 1), torch.randn(4), 3, mode="symbolic")
    assert any(isinstance(entry, ScalarInput) for entry in lowered.graph.inputs)
    assert lowered.outputs[1] == 4


def test_complex_runs_as_library_calls(check):
    """No loop pretends to know complex numbers."""
    x = torch.randn(4, dtype=torch.complex64)
    lowered = check(lambda x: x * x, x, modes=("fake",), library=["mul.Tensor"])
    assert "complex" in next(iter(lowered.context.library_calls))


def test_kernels_switched_off(check):
    """Every op is a library call; views stay free."""
    x = torch.randn(3, 4)
    lowered = check(
        lambda x: (x.t() * 2).sum(0), x, modes=("fake",), cpp_kernels=False, library=["mul.Tensor", "sum.dim_IntList"]
    )
    assert not any(isinstance(o, Pointwise) for o in lowered.graph.operations)


def test_in_place_ops_are_refused():
    """Graphs are functional; anything else is a clear error."""
    with pytest.raises(UnsupportedGraphError, match="functional"):
        lower_and_run(lambda x: (x + 1).add_(1), torch.randn(3))


def test_costly_values_with_several_readers_are_stored(check):
    """One evaluation, two readers."""

    def f(x):
        y = x
        for _ in range(8):
            y = (y.exp() + 1).log()
        return y.sum(0), y.flip(0).sum(1)

    lowered = check(f, torch.randn(4, 4))
    assert sum(isinstance(o, Pointwise) for o in lowered.graph.operations) == 1


def test_dead_results_are_dropped():
    """What nobody reads is not computed."""
    lowered = lower_and_run(lambda x: (x.sum(), x * 2)[1], torch.randn(4))
    assert len(lowered.graph.operations) == 1


def test_devices_mix_through_numbers_only():
    """A constant joins a GPU loop; a 0-d CPU tensor in memory is read on the host and handed over."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from flambeau_inductor.lowering.run import lower_graph

    with FakeTensorMode():
        x, s = torch.empty(4, device="cuda"), torch.empty(())
        gm = make_fx(lambda x, s: (torch.where(x > 0, x, torch.full((), -1.0)), x * s))(x, s)
    graph = lower_graph(gm, [x, s])
    assert not any(isinstance(o, Extern) for o in graph.operations)
    assert sum(isinstance(o, ReadItem) for o in graph.operations) == 1
