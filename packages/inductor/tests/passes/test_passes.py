"""Graph passes keep meaning, say whether they changed anything, and leave the caller's graph alone."""

import pytest
import torch
from nesting import Outer, check
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.context import CompileContext
from flambeau_inductor.errors import VerifyError
from flambeau_inductor.passes.order import PASSES
from flambeau_inductor.passes.runner import Pass, run_passes

X = torch.randn(3, 4)


def run(function, *inputs, passes=PASSES):
    """The traced graph and the rewritten one."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    return gm, run_passes(gm, passes, CompileContext())


def targets(gm):
    """Names of the calls."""
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def test_noops_go():
    """Views that change nothing and transposes that undo each other."""
    before, after = run(lambda x: x.view(3, 4).t().t().expand(3, 4).permute(0, 1) + 1, X)
    assert targets(after) == ["aten.add.Tensor"]
    assert len(targets(before)) > 1
    torch.testing.assert_close(after(X), X + 1)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x.transpose(0, 2).transpose(2, 0), 0),
        (lambda x: x.transpose(-1, 1).transpose(1, 2), 0),
        (lambda x: x.permute(2, 0, 1).permute(1, 2, 0), 0),
        (lambda x: x.permute(0, 2, 1).transpose(-1, -2), 0),
        (lambda x: x[0].t().transpose(0, 1), 0),
        (lambda x: x.permute(2, 0, 1).permute(2, 0, 1), 2),
        (lambda x: x.transpose(0, 1).transpose(1, 2), 2),
        (lambda x: x.transpose(0, 1).permute(0, 2, 1), 2),
    ],
)
def test_two_transposes_go_where_they_undo_each_other(function, left):
    """However each is written; others stay."""
    x = torch.randn(3, 4, 5)
    _, after = run(lambda x: function(x + 1) * 2, x)
    assert sum("permute" in t or "transpose" in t or "aten.t." in t for t in targets(after)) == left
    torch.testing.assert_close(after(x), function(x + 1) * 2)


def test_a_square_transpose_is_no_noop():
    """Equal sizes and strides of a permutation say nothing about elements."""
    square = torch.ones(1, 1).expand(3, 3)
    _, after = run(lambda x: (x + torch.arange(3.0)).t() + x.permute(1, 0), square)
    assert sum("permute" in t or "aten.t" in t for t in targets(after)) >= 1


def test_dead_calls_go_and_effects_stay():
    """An unused random draw is an effect."""

    def f(x):
        x.exp()
        torch.rand_like(x)
        return x + 1

    _, after = run(f, X)
    assert targets(after) == ["aten.rand_like.default", "aten.add.Tensor"]


def test_an_unchanged_graph_is_handed_back():
    """The very same object."""
    before, after = run(lambda x: x + 1, X)
    assert before is after


def test_a_pass_that_breaks_the_graph_is_caught():
    """Nodes without fake results are named with the pass."""

    def careless(gm, context):
        next(n for n in gm.graph.nodes if n.op == "call_function").meta.clear()
        return True

    with pytest.raises(VerifyError, match="careless"):
        run(lambda x: x + 1, X, passes=(Pass("careless", careless),))


def called(count, function, *, other=None):
    """A graph that runs ``function`` as a body ``count`` times."""
    o = Outer()
    h = first = o.input(X)
    body = o.body(function, first)
    for _ in range(count):
        node = o.call(torch.ops.higher_order.invoke_subgraph, body, "body", h, val=(first.meta["val"],))
        h = o.part(node, 0)
    return o.finish(h)


def large(x):
    return (x.sin().cos().exp().tanh().neg(),)


@pytest.mark.parametrize(
    ("count", "function", "inline"), [(1, large, True), (3, large, False), (3, lambda x: (x.sin() + 1,), True)]
)
def test_bodies_used_once_or_small_become_part_of_the_graph(count, function, inline):
    gm = called(count, function)
    after = run_passes(gm, PASSES, CompileContext())
    assert ("invoke_subgraph" not in targets(after)) is inline
    assert targets(gm).count("invoke_subgraph") == count
    wanted = X
    for _ in range(count):
        (wanted,) = function(wanted)
    torch.testing.assert_close(after(X)[0], wanted)


def test_an_inlined_body_keeps_its_constants():
    o = Outer()
    x = o.input(X)
    body = o.body(lambda x: (x.sin(),), x)
    body.register_buffer("weight", torch.full((4,), 3.0))
    (sine,) = body.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    with body.graph.inserting_before(sine):
        weight = body.graph.get_attr("weight")
        scaled = body.graph.call_function(torch.ops.aten.mul.Tensor, (sine.args[0], weight))
    weight.meta["val"], scaled.meta["val"] = o.mode.from_tensor(body.weight), sine.meta["val"]
    sine.args = (scaled,)
    gm = o.finish(o.part(o.call(torch.ops.higher_order.invoke_subgraph, body, "body", x, val=(x.meta["val"],)), 0))
    artifact = check(gm, [X], [(X * 3).sin()])
    assert [spec.name for spec in artifact.constants] == ["body_2.weight"] and "call(" not in artifact.text()


def test_a_body_traced_for_other_layouts_stays():
    o = Outer()
    x = o.input(X)
    body = o.body(lambda x: (x.sin(),), o.op(torch.ops.aten.clone.default, o.op(torch.ops.aten.t.default, x)))
    node = o.call(torch.ops.higher_order.invoke_subgraph, body, "body", x, val=(x.meta["val"],))
    after = run_passes(o.finish(o.part(node, 0)), PASSES, CompileContext())
    assert "invoke_subgraph" in targets(after)


def test_passes_rewrite_bodies_once_and_leave_the_callers_alone():
    gm = called(2, lambda x: (large(x.t().t())[0],))
    after = run_passes(gm, PASSES, CompileContext())
    body, rewritten = gm.get_submodule("body_2"), after.get_submodule("body_2")
    assert "aten.t.default" in targets(body) and "aten.t.default" not in targets(rewritten)
