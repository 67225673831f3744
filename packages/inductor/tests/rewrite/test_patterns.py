"""Patterns match what they say, whatever way a call is written, and never ask a symbolic size for its value."""

from operator import getitem

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from tracing import traced

from flambeau_inductor.rewrite.patterns import (
    Anything,
    Call,
    Constant,
    Either,
    Like,
    Operand,
    Through,
    argument,
    call,
    match,
    reach,
    with_argument,
)

aten = torch.ops.aten
X, Y = torch.randn(3, 4), torch.randn(3, 4)


def last(function, *inputs):
    """The node of the result."""
    (result,) = traced(function, *inputs).graph.output_node().args
    return result


def found(pattern, node):
    """The names of what was captured, for each way to match."""
    return [{k: str(v) for k, v in bound.values.items()} for bound in match(pattern, node)]


ADD = call(aten.add.Tensor, Operand("a"), Operand("b"))


def test_a_call_binds_its_operands():
    node = last(lambda x, y: x.exp() + y, X, Y)
    assert found(ADD, node) == [{"a": "exp", "b": "y_1"}]
    assert found(call(aten.sub.Tensor, Operand("a"), Operand("b")), node) == []
    assert found(call({aten.sub.Tensor, aten.add.Tensor}, Operand("a"), Operand("b")), node) == [
        {"a": "exp", "b": "y_1"}
    ]
    (bound,) = match(call(aten.add.Tensor, call(aten.exp.default, Operand("x")), Operand("y"), name="sum"), node)
    assert [str(n) for n in bound.nodes] == ["add", "exp"] and bound.values["sum"] is node


def test_arguments_that_are_not_mentioned_have_their_defaults():
    """A factor is never overlooked; one that is written out may be the default."""
    scaled = last(lambda x, y: torch.add(x, y, alpha=2), X, Y)
    assert found(ADD, scaled) == []
    assert len(found(call(aten.add.Tensor, Operand("a"), Operand("b"), others=True), scaled)) == 1
    assert len(found(call(aten.add.Tensor, Operand("a"), Operand("b"), alpha=2), scaled)) == 1
    scaled.kwargs = {"alpha": 1}
    assert len(found(ADD, scaled)) == 1
    assert found(call(aten.add.Tensor, Operand("a"), Operand("b"), beta=1), scaled) == []
    assert found(call(aten.add.Tensor, *[Anything()] * 4), scaled) == []


def test_arguments_by_name_and_by_position():
    node = last(lambda x: aten.slice.Tensor(x, 1, 0, 2), X)
    pattern = call(aten.slice.Tensor, Operand(), dim=1, start=0, end=Constant("end"))
    assert found(pattern, node) == [{"end": "2"}]
    node.args, node.kwargs = node.args[:1], {"dim": 1, "start": 0, "end": 2}
    assert found(pattern, node) == [{"end": "2"}]
    assert argument(node, "step") == 1 and argument(node, "end") == 2
    assert with_argument(node, "end", 3) == (node.args, {"dim": 1, "start": 0, "end": 3})
    node.kwargs = {"dim": 1, "no such": 1}
    assert found(call(aten.slice.Tensor, Operand(), others=True), node) == []


def test_constants():
    """Lists and tuples are alike, None is nothing else, and a node is no constant."""
    node = last(lambda x: x.view(2, 6), X)
    assert len(found(call(aten.view.default, Operand(), (2, 6)), node)) == 1
    assert found(call(aten.view.default, Operand(), [2, 5]), node) == []
    assert found(call(aten.view.default, Operand(), [2, 6, 1]), node) == []
    assert found(call(aten.view.default, Operand(), Constant(holds=lambda sizes: 2 not in sizes)), node) == []
    assert found(call(aten.view.default, Constant(), Anything()), node) == []
    assert found(call(aten.view.default, Operand(), None), node) == []
    optional = last(lambda x: aten.clone(x), X)
    assert len(found(call(aten.clone.default, Operand(), memory_format=None), optional)) == 1
    assert found(call(aten.clone.default, Operand(), memory_format=0), optional) == []


@pytest.mark.parametrize("swapped", [False, True])
def test_commutative_operands_in_either_order(swapped):
    """The earlier node is tried first in the first place, however the sum was written."""
    function = (lambda x, y: y.sin() + x.exp()) if swapped else (lambda x, y: x.exp() + y.sin())
    exp, sin = call(aten.exp.default, Operand()), call(aten.sin.default, Operand())
    node = last(function, X, Y)
    assert len(found(call(aten.add.Tensor, exp, sin, commutes=True), node)) == 1
    assert len(found(call(aten.add.Tensor, exp, sin), node)) == (not swapped)
    both = found(call(aten.add.Tensor, Operand("a"), Operand("b"), commutes=True), node)
    earlier, later = ("sin", "exp") if swapped else ("exp", "sin")
    assert both == [{"a": earlier, "b": later}, {"a": later, "b": earlier}]
    flipped = call(aten.add.Tensor, Operand("a"), Operand("b"), commutes=True)
    node.args = node.args[::-1]
    assert found(flipped, node) == both


def test_commutes_needs_two_operands():
    with pytest.raises(ValueError, match="two operands"):
        call(aten.add.Tensor, Operand(), commutes=True)


def test_one_name_is_one_node():
    same = call(aten.mul.Tensor, Operand("x"), Operand("x"))
    assert len(found(same, last(lambda x, y: x * x, X, Y))) == 1
    assert found(same, last(lambda x, y: x * y, X, Y)) == []
    twice = call(aten.transpose.int, Operand(), Constant("d"), Constant("d"))
    assert len(found(twice, last(lambda x: aten.transpose(x, 1, 1), X))) == 1
    assert found(twice, last(lambda x: aten.transpose(x, 0, 1), X)) == []


def test_the_only_user():
    """Another reader, or the same one twice, is one too many."""
    pattern = call(aten.add.Tensor, call(aten.exp.default, Operand(), only_user=True), Anything())
    private = call(aten.add.Tensor, Operand(only_user=True), Operand())
    for function, count in (
        (lambda x, y: x.exp() + y, 1),
        (lambda x, y: (lambda e: (e + y) + 0 * e)(x.exp()), 0),
        (lambda x, y: (lambda e: e + e)(x.exp()), 0),
    ):
        gm = traced(function, X, Y)
        (first, *_) = gm.graph.find_nodes(op="call_function", target=aten.add.Tensor)
        assert len(found(pattern, first)) == len(found(private, first)) == count


def test_what_results_are_like():
    gm = traced(lambda x: x.double() @ torch.ones(4, dtype=torch.float64), X)
    node = gm.graph.output_node().args[0]
    for like, accepted in (
        (Like(), True),
        (Like(libraries="weights_are_reordered", dtypes=[torch.float64], ranks=[1]), True),
        (Like(libraries="bias_is_a_kernel"), False),
        (Like(dtypes=[torch.float32]), False),
        (Like(ranks=[2, 3]), False),
    ):
        assert like.accepts(node) is accepted
        assert (found(Operand(like=like), node) != []) is accepted
        assert (found(Call(frozenset({node.target}), others=True, like=like), node) != []) is accepted
    assert not Like(ranks=[1]).accepts(fx.Graph().placeholder("number"))


def test_what_libraries_are_not_asked():
    for name in ("nothing", "call_bytes"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            Like(libraries=name)


def test_through_views():
    """None, one or several; not more than asked for, and not where another reads in between."""
    pattern = call(aten.relu.default, Through({aten.view.default, aten.t.default}, call(aten.exp.default, Operand()), "views", most=2))  # fmt: skip
    assert found(pattern, last(lambda x: x.exp().relu(), X)) == [{"views": "()"}]
    assert found(pattern, last(lambda x: x.exp().t().relu(), X)) == [{"views": "(t,)"}]
    assert found(pattern, last(lambda x: x.exp().view(2, 6).t().relu(), X)) == [{"views": "(t, view)"}]  # fmt: skip
    assert found(pattern, last(lambda x: x.exp().view(2, 6).view(3, 4).t().relu(), X)) == []
    assert found(pattern, last(lambda x: x.exp().cos().relu(), X)) == []
    shared = traced(lambda x: (lambda v: (v.relu(), v + 1))(x.exp().view(12)), X)
    (relu,) = shared.graph.find_nodes(op="call_function", target=aten.relu.default)
    assert found(pattern, relu) == []


def test_one_of_several():
    either = Either((call(aten.exp.default, Operand("x")), Operand("any")))
    assert found(either, last(lambda x: x.exp(), X)) == [{"x": "x_1"}, {"any": "exp"}]
    assert found(either, last(lambda x: x.sin(), X)) == [{"any": "sin"}]
    assert found(either, 3) == []


def test_parts_of_results():
    """A call without a schema is matched by position, all of it."""
    node = last(lambda x: aten.split(x, 2, 1)[1], X)
    pattern = call(getitem, call(aten.split.Tensor, Operand("x"), others=True), 1)
    assert found(pattern, node) == [{"x": "x_1"}]
    assert found(call(getitem, Anything(), 0), node) == []
    assert found(call(getitem, Anything()), node) == []


def test_how_far_a_match_reaches():
    inner = call(aten.exp.default, Operand())
    assert [reach(p) for p in (Operand(), Operand(only_user=True), 3, inner)] == [0, 1, 0, 1]
    assert reach(call(aten.relu.default, Through((), inner, most=3))) == 5
    assert reach(Either((inner, call(aten.relu.default, inner)))) == 2


def test_symbolic_sizes_are_not_asked():
    """A size that is a symbol is no constant, whatever its value is, and stays unknown."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.randn(5, 7))
    with mode:
        gm = make_fx(lambda x: x.view(x.shape[1], x.shape[0]) + 1)(fake)
    (view,) = gm.graph.find_nodes(op="call_function", target=aten.view.default)
    before = list(mode.shape_env.guards)
    sizes = [fake.shape[1], fake.shape[0]]
    view.args = (view.args[0], sizes)
    assert found(call(aten.view.default, Operand(), [7, 5]), view) == []
    assert found(call(aten.view.default, Operand(), Constant()), view) == []
    assert len(found(call(aten.view.default, Operand(), Anything()), view)) == 1
    assert found(call(aten.view.default, Operand(), 7), view) == []
    assert mode.shape_env.guards == before
