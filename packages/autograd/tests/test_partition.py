"""The cut: native flow equals its twin, and what is saved makes sense."""

from __future__ import annotations

import random
from operator import getitem

import pytest
import torch
from lifting import fakes, lift_function

from flambeau_autograd import Config, default_partition, prepare, retrace
from flambeau_autograd.errors import InternalError
from flambeau_autograd.partition.flow import min_cut_side, min_cut_side_py
from flambeau_autograd.partition.split import _emit


@pytest.mark.parametrize("seed", range(20))
def test_native_flow_equals_twin(seed):
    """Random graphs: the same side of the same cut."""
    rng = random.Random(seed)
    count = rng.randint(4, 30)
    arcs = [(rng.randrange(count), rng.randrange(count), rng.randrange(20)) for _ in range(3 * count)]
    tails, heads, rooms = (list(column) for column in zip(*arcs))
    assert min_cut_side(count, tails, heads, rooms, 0, count - 1) == min_cut_side_py(
        count, tails, heads, rooms, 0, count - 1
    )


def test_deep_chain():
    """A chain of a hundred thousand vertices does not overflow the stack."""
    n = 100_000
    side = min_cut_side(n, list(range(n - 1)), list(range(1, n)), [5] * (n - 2) + [3], 0, n - 1)
    assert side[n - 2] == 1 and side[n - 1] == 0


def saved_bytes(prepared):
    return sum(
        v.numel() * v.element_size()
        for v, s in zip(prepared.backward_inputs, prepared.signature.saved)
        if s.kind == "extra"
    )


def test_pointwise_chain_saves_the_input_only():
    """A chain of pointwise ops is recomputed from its input."""
    x = torch.randn(64, requires_grad=True)
    gm = lift_function(lambda x: x.sin().exp().cos().tanh() * 2, [x])
    assert prepare(gm, fakes([x])).signature.extras == 0
    assert prepare(gm, fakes([x]), partitioner=default_partition).signature.extras > 0


def test_never_saves_more_than_the_reference():
    """The cut saves at most what the simple partitioner saves."""
    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)

    def function(x, w):
        for _ in range(3):
            x = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x @ w, (16,)))
        return x

    gm = lift_function(function, [x, w])
    assert saved_bytes(prepare(gm, fakes([x, w]))) < saved_bytes(
        prepare(gm, fakes([x, w]), partitioner=default_partition)
    )


def test_random_ops_are_never_recomputed():
    """Dropout draws once: the backward has no random op."""
    x = torch.randn(64, requires_grad=True)
    gm = lift_function(lambda x: torch.nn.functional.dropout(x.exp(), 0.5).sin(), [x])
    for budget in (0.0, 1.0):
        prepared = prepare(gm, fakes([x]), config=Config(activation_memory_budget=budget))
        assert not any("bernoulli" in str(n.target) for n in prepared.backward.graph.nodes)
        assert sum("bernoulli" in str(n.target) for n in prepared.forward.graph.nodes) == 1


def test_views_are_not_saved():
    """A view of a parameter is taken again in the backward."""
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
    prepared = prepare(lift_function(lambda x, w: torch.nn.functional.linear(x, w), [x, w]), fakes([x, w]))
    assert [s.kind for s in prepared.signature.saved] == ["input", "input"]


def test_a_rewrite_sees_both_halves_and_what_leaves_them_follows():
    """Results, gradients and written values that it replaced are those that the halves return."""
    aten = torch.ops.aten
    offered = []

    def sine_for_exponential(graph, kept):
        (found,) = graph.find_nodes(op="call_function", target=aten.exp.default)
        offered.extend(node.target for node in kept)
        with graph.inserting_before(found):
            other = graph.call_function(aten.sin.default, found.args)
        other.meta.update(found.meta)
        found.replace_all_uses_with(other)
        graph.erase_node(found)
        return {found: other}

    x = torch.randn(3, requires_grad=True)
    gm = lift_function(lambda x: x.exp(), [x])
    assert prepare(gm, fakes([x.detach()]), rewrite=sine_for_exponential).backward is None and not offered
    prepared = prepare(gm, fakes([x]), rewrite=sine_for_exponential)
    assert offered == [aten.exp.default, aten.mul.Tensor]
    assert torch.equal(prepared.forward(x.detach())[0], x.sin())
    given = {"input": x.detach(), "output": x.detach().sin()}
    saved = [given[value.kind] for value in prepared.signature.saved]
    assert torch.equal(prepared.backward(*saved, torch.ones(3))[0], x.sin())


def test_several_results_of_one_op_are_not_computed_again():
    """What the backward needs of a sort is saved, however cheap the ops around it are."""
    for function in (
        lambda x: torch.sort(x.exp())[0].sin(),
        lambda x: x.exp().topk(3)[0].sin(),
        lambda x: x.exp().max(0)[0].sin(),
    ):
        x = torch.randn(8, 8, requires_grad=True)
        prepared = prepare(lift_function(function, [x]), fakes([x]))
        names = " ".join(str(node.target) for node in prepared.backward.graph.nodes)
        assert not any(name in names for name in ("aten.sort", "aten.topk", "aten.max"))


def test_a_large_input_is_not_kept_for_a_few_of_its_elements():
    """The caller may let go of it: a quarter of its bytes counts."""
    x = torch.randn(1000, 100, requires_grad=True)
    prepared = prepare(lift_function(lambda x: x[:1].sin().cos().sum(), [x]), fakes([x]))
    assert prepared.signature.extras > 0 and all(s.kind == "extra" for s in prepared.signature.saved)


def _saved_of_rows(note):
    """The sum of a product's exponentials, less the largest of each row; a rewrite says `note` of what follows from both."""

    def mark(graph, kept):
        for target in (torch.ops.aten.sub.Tensor, torch.ops.aten.exp.default):
            (found,) = graph.find_nodes(op="call_function", target=target)
            found.meta.update(note)
        return {}

    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 512, requires_grad=True)
    gm = lift_function(lambda x, w: ((y := x @ w) - y.detach().amax(1, True)).exp().sum(), [x, w])
    prepared = prepare(gm, fakes([x, w]), rewrite=mark)
    return [tuple(v.shape) for v, s in zip(prepared.backward_inputs, prepared.signature.saved) if s.kind == "extra"]


def test_what_follows_from_numbers_of_a_row_is_not_written():
    """Where that takes nearly the same bytes, what is in memory anyway is saved, with those numbers."""
    assert _saved_of_rows({}) == [(8, 512)]
    assert sorted(_saved_of_rows({"follows": True})) == [(8, 1), (8, 512)]


def test_what_a_rewrite_puts_in_the_place_of_a_node_stands_for_it():
    """What a second derivative starts from is known by the nodes of the trace, also where they are gone."""
    aten = torch.ops.aten

    def twice(graph, kept):
        (found,) = graph.find_nodes(op="call_function", target=aten.sigmoid.default)
        with graph.inserting_before(found):
            other = graph.call_function(aten.special_expit.default, found.args)
        other.meta.update(found.meta)
        found.replace_all_uses_with(other)
        graph.erase_node(found)
        return {found: other}

    x = torch.randn(6, requires_grad=True) * 2
    gm = lift_function(lambda x: torch.sigmoid(x).sum(), [x])
    trace = retrace(gm, fakes([x]), rewrite=twice)
    (saved,) = trace.saved
    assert saved in trace.first and trace.definitions[trace.first[saved]].target is aten.sigmoid.default


def test_a_rewrite_may_add_a_nested_graph():
    """It becomes an attribute of the half that reads it, and says nothing about whether the program is differentiated twice."""
    body = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    invoke = torch.ops.higher_order.invoke_subgraph

    def nested(graph, kept):
        (found,) = graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
        with graph.inserting_before(found):
            place = graph.get_attr("sines")
            call = graph.call_function(invoke, (place, "sines", found.args[0]))
            part = graph.call_function(getitem, (call, 0))
        place.meta["body"] = body
        call.meta["val"], part.meta["val"] = (found.meta["val"],), found.meta["val"]
        found.replace_all_uses_with(part)
        graph.erase_node(found)
        return {found: part}

    x = torch.randn(6, requires_grad=True)
    gm = lift_function(lambda x: torch.sin(x) * 2, [x])
    prepared = prepare(gm, fakes([x]), rewrite=nested)
    assert prepared.forward.get_submodule("sines") is body and not hasattr(prepared.backward, "sines")
    assert prepared.signature.double_backward == ""


def test_a_backward_that_needs_an_input_which_was_not_saved_is_our_fault():
    """It is told where the graph is made."""
    graph = torch.fx.Graph()
    sine = graph.call_function(torch.ops.aten.sin.default, (graph.placeholder("x"),))
    with pytest.raises(InternalError, match="input x, which was not saved"):
        _emit(torch.fx.Graph(), sine, {})
