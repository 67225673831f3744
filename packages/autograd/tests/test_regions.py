"""Regions inside a graph: autocast, grad mode, checkpointing, custom functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lifting import check_function, compile_graph, fakes, lift_function
from torch.fx import Graph, GraphModule

from flambeau_autograd import Config, prepare


def R(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).requires_grad_()


def build(body):
    """A graph by hand: body(graph, x, w) -> node."""
    graph = Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    graph.output((body(graph, x, w),))
    return GraphModule(torch.nn.Module(), graph)


def compare(gm, function, inputs, **tolerance):
    compiled = compile_graph(gm, inputs)
    ours = [t.detach().clone().requires_grad_() for t in inputs]
    theirs = [t.detach().clone().requires_grad_() for t in inputs]
    (got,), want = compiled(*ours), function(*theirs)
    torch.testing.assert_close(got, want, **tolerance)
    assert got.requires_grad == want.requires_grad
    if want.requires_grad:
        got.float().sum().backward()
        want.float().sum().backward()
        for a, b in zip(ours, theirs):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, **tolerance)


def test_autocast_region():
    """Enter and exit nodes cast as eager does, and the backward runs in the dtypes of the forward."""
    mode = torch.amp.autocast_mode

    def body(graph, x, w):
        context = graph.call_function(mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
        y = graph.call_function(torch.matmul, (x, w))
        z = graph.call_function(F.gelu, (y,))
        graph.call_function(mode._exit_autocast, (context,))
        return graph.call_function(torch.matmul, (graph.call_method("float", (z,)), w))

    def function(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.gelu(x @ w)
        return y.float() @ w

    compare(build(body), function, [R(3, 4), R(4, 4)], rtol=2e-2, atol=2e-2)


def test_backward_is_not_cast():
    """A region without autocast inside the caller's: that one does not reach the formulas of the backward."""
    mode = torch.amp.autocast_mode

    def body(graph, x, w):
        context = graph.call_function(mode._enter_autocast, ("cpu", torch.bfloat16, False, None))
        y = graph.call_function(torch.matmul, (x, w))
        graph.call_function(mode._exit_autocast, (context,))
        return y

    x, w, weights = R(3, 4), R(4, 4), R(3, 4) * 1.2345
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (ours,) = compile_graph(build(body), [x, w])(x, w)
    found = torch.autograd.grad(ours, (x, w), weights)
    torch.testing.assert_close(found, torch.autograd.grad(x @ w, (x, w), weights), rtol=1e-6, atol=1e-6)


def test_no_grad_region():
    """`_set_grad_enabled` nodes switch tracking off and on, and leave the caller's mode as it was."""

    def body(graph, x, w):
        graph.call_function(torch._C._set_grad_enabled, (False,))
        y = graph.call_function(torch.matmul, (x, w))
        graph.call_function(torch._C._set_grad_enabled, (True,))
        return graph.call_function(torch.mul, (graph.call_function(torch.matmul, (x, y)), 2))

    def function(x, w):
        with torch.no_grad():
            y = x @ w
        return (x @ y) * 2

    gm = build(body)
    compare(gm, function, [R(4, 4), R(4, 4)])
    assert torch.is_grad_enabled()


def test_ambient_no_grad():
    """Traced under no_grad there is no backward."""
    with torch.no_grad():
        prepared = prepare(lift_function(lambda x: x.sin(), [R(3)]), fakes([R(3)]))
    assert prepared.backward is None


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * 10


def apply_cube(x):
    return Cube.apply(x)


def test_custom_function_is_traced_through():
    """A custom autograd.Function's own backward is what is recorded."""
    gm = build(lambda graph, x, w: graph.call_function(apply_cube, (graph.call_function(torch.mul, (x, w)),)))
    compare(gm, lambda x, w: Cube.apply(x * w), [R(3), R(3)])


def _checkpointed():
    def body(graph, x, w):
        y = x
        for layer in range(3):
            for _ in range(2):
                y = graph.call_function(torch.matmul, (y, w))
                y.meta["checkpoint"] = layer
                y = graph.call_function(torch.sin, (y,))
                y.meta["checkpoint"] = layer
        return y

    return build(body)


def test_checkpoint_regions_are_recomputed():
    """Only region boundaries are saved; the matrix products run again in the backward."""
    gm = _checkpointed()
    prepared = prepare(gm, fakes([R(4, 4), R(4, 4)]))
    plain = _checkpointed()
    for node in plain.graph.nodes:
        node.meta.pop("checkpoint", None)
    other = prepare(plain, fakes([R(4, 4), R(4, 4)]))

    def count(gm):
        return sum(n.target is torch.ops.aten.mm.default for n in gm.graph.nodes)

    assert prepared.signature.extras < other.signature.extras
    assert count(prepared.backward) > count(other.backward)
    compare(gm, lambda x, w: _six(x, w), [R(4, 4), R(4, 4)])


def _saves_products(context, operator, *args, **kwargs):
    assert not context.is_recompute
    return operator is torch.ops.aten.mm.default and args[0].shape == (3, 4)


@pytest.mark.parametrize("policy", [None, (torch.ops.aten.mm.default,), _saves_products])
def test_policies_of_checkpoint_regions(policy):
    """What the policy names may be saved; all else of the region is computed again."""
    gm = _checkpointed()
    for node in gm.graph.nodes:
        if policy is not None and node.meta.get("checkpoint") is not None:
            node.meta["policy"] = policy
    inputs = [R(3, 4), R(4, 4)]
    compare(gm, _six, inputs)
    nodes = prepare(gm, fakes(inputs)).backward.graph.nodes
    products = sum(node.target is torch.ops.aten.mm.default for node in nodes)
    assert products == 12 if policy else products > 12


def _six(x, w):
    for _ in range(6):
        x = torch.sin(x @ w)
    return x


def test_memory_budget_saves_less():
    """A budget of nothing saves only inputs."""
    gm = lift_function(_six, [R(4, 4), R(4, 4)])
    assert prepare(gm, fakes([R(4, 4), R(4, 4)]), config=Config(activation_memory_budget=0.0)).signature.extras == 0


def test_opaque_custom_op_that_writes():
    """A custom op with no functional twin runs on copies; the caller sees the write."""
    with torch.library._scoped_library("flambeau_test", "FRAGMENT") as library:
        library.define("scale_(Tensor(a!) x, float k) -> ()")
        library.impl("scale_", _scale, "CompositeExplicitAutograd")

        def function(x):
            y = x + 1
            torch.ops.flambeau_test.scale_(y, 2.0)
            torch.ops.flambeau_test.scale_(x, 3.0)
            return y * 2

        check_function(function, [R(3).detach()])


def _scale(x, k):
    x.mul_(k)
