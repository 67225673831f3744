"""Branches, repeated bodies and attention: the compiled graph holds the operators over functional bodies, and gives what the Python formula gives."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from lifting import compile_graph, fakes
from nested_graphs import DYNAMIC, R, check, lifted, of, operators, prepared, sign

from flambeau_autograd import UnsupportedDoubleBackward, UnsupportedGraph, prepare
from flambeau_autograd.config import Config


@DYNAMIC
@pytest.mark.parametrize("way", [1, -1])
def test_cond(way, dynamic):
    """Both branches, one of which has no gradient for the weight."""
    true = lifted(2, lambda hop, x, w: (x.sin() @ w,))
    false = lifted(2, lambda hop, x, w: (x.cos(),))
    gm = lifted(3, lambda hop, p, x, w: (hop("cond", p.sum() > 0, true, false, (x, w))[0] * 2,))
    check(gm, lambda p, x, w: ((x.sin() @ w if p.sum() > 0 else x.cos()) * 2,), [sign(way), R(4, 4), R(4, 4)], dynamic)


@pytest.mark.parametrize("way", [1, -1])
def test_cond_that_passes_operands_through(way):
    """What a branch hands back is copied, and laid out as the other branch lays it out."""
    true = lifted(2, lambda hop, x, w: (x, w.t(), x))
    false = lifted(2, lambda hop, x, w: (x.t(), x, w * 2))
    gm = lifted(3, lambda hop, p, x, w: of(3, hop("cond", p.sum() > 0, true, false, (x.t(), w))))

    def formula(p, x, w):
        return (x.t(), w.t(), x.t()) if p.sum() > 0 else (x.clone(), x.t(), w * 2)

    check(gm, formula, [sign(way), R(4, 4), R(4, 4)])


@DYNAMIC
@pytest.mark.parametrize("way", [1, -1])
def test_cond_whose_bodies_use_sizes(way, dynamic):
    """A symbol that no operand tells by itself becomes an operand of both bodies."""
    true = lifted(2, lambda hop, x, w: (x.view(-1, 2).sum(1) * w.sum(),))
    false = lifted(2, lambda hop, x, w: (x[::2].exp(),))
    gm = lifted(3, lambda hop, p, x, w: (hop("cond", p.sum() > 0, true, false, (x.view(x.size(0) * x.size(1)), w))[0],))

    def formula(p, x, w):
        return (x.reshape(-1, 2).sum(1) * w.sum() if p.sum() > 0 else x.reshape(-1)[::2].exp(),)

    check(gm, formula, [sign(way), R(6, 4), R(4, 4)], dynamic)


@pytest.mark.parametrize("outer", [1, -1])
@pytest.mark.parametrize("inner", [1, -1])
def test_cond_in_cond(outer, inner):
    """The gradient of a branch that branches."""
    deep_true, deep_false = lifted(2, lambda hop, x, w: (x.sin(),)), lifted(2, lambda hop, x, w: (x * w,))
    true = lifted(2, lambda hop, x, w: (hop("cond", x.sum() > 0, deep_true, deep_false, (x, w))[0] + 1,))
    false = lifted(2, lambda hop, x, w: (x.cos(),))
    gm = lifted(3, lambda hop, p, x, w: (hop("cond", p.sum() > 0, true, false, (x, w))[0],))

    def formula(p, x, w):
        if p.sum() > 0:
            return ((x.sin() if x.sum() > 0 else x * w) + 1,)
        return (x.cos(),)

    check(gm, formula, [sign(outer), (torch.rand(4, 4) * inner).requires_grad_(), R(4, 4)])


def test_branches_without_operands():
    """There is nothing but what each makes."""
    true, false = (
        lifted(0, lambda hop: (hop.graph.call_function(torch.ones, (3,)),)),
        lifted(0, lambda hop: (hop.graph.call_function(torch.zeros, (3,)),)),
    )
    gm = lifted(1, lambda hop, x: (hop("cond", x.sum() > 0, true, false, ())[0] * x,))
    check(gm, lambda x: (x * (x.sum() > 0),), [R(3)])


def test_a_known_predicate_takes_its_branch():
    """A predicate of the program's own leaves no operator."""
    true, false = lifted(1, lambda hop, x: (x.sin(),)), lifted(1, lambda hop, x: (x.cos(),))
    gm = lifted(1, lambda hop, x: (hop("cond", False, true, false, (x,))[0],))
    assert not operators(prepared(gm, [R(3)]).forward, "cond")
    check(gm, lambda x: (x.cos(),), [R(3)])


def test_a_predicate_of_sizes():
    """A predicate that is a symbolic truth value."""
    true, false = lifted(1, lambda hop, x: (x.sin(),)), lifted(1, lambda hop, x: (x.cos(),))
    gm = lifted(1, lambda hop, x: (hop("cond", x.shape[0] > 3, true, false, (x,))[0],))
    compiled = compile_graph(gm, [R(5, 2)], dynamic=True)
    for length in (2, 6):
        x = R(length, 2)
        torch.testing.assert_close(compiled(x)[0], x.sin() if length > 3 else x.cos())


def test_cond_without_gradients():
    """Nothing is saved, and there is no backward."""
    true, false = lifted(1, lambda hop, x: (x.sin(),)), lifted(1, lambda hop, x: (x.cos(),))
    gm = lifted(2, lambda hop, p, x: (hop("cond", p.sum() > 0, true, false, (x,))[0],))
    result = prepared(gm, [sign(1), torch.randn(3)])
    assert result.backward is None
    check(gm, lambda p, x: (x.sin(),), [sign(1), torch.randn(3)])


@DYNAMIC
def test_repeated_layers(dynamic):
    """One body, forward and backward, for all calls."""
    layer = lifted(3, lambda hop, x, w, b: ((x @ w + b).sin(), x * 2))

    def function(hop, x, w, b):
        first = hop("invoke_subgraph", layer, "layer", x, w, b)
        second = hop("invoke_subgraph", layer, "layer", first[0], w, b)
        third = hop("invoke_subgraph", layer, "layer", second[0], w, b)
        return third[0], second[1] + first[1]

    def formula(x, w, b):
        y = (x @ w + b).sin()
        z = (y @ w + b).sin()
        return (z @ w + b).sin(), y * 2 + x * 2

    gm = lifted(3, function)
    inputs = [R(4, 4), R(4, 4), R(4)]
    check(gm, formula, inputs, dynamic)
    result = prepared(gm, inputs)
    for half in (result.forward, result.backward):
        calls = operators(half, "invoke_subgraph")
        assert len(calls) == 3 and len({call.args[:2] for call in calls}) == 1


def test_bodies_are_rewritten_before_they_are_cut():
    """Once for all calls, and where there are gradients; of other operators, none."""
    aten = torch.ops.aten
    seen = []

    def cosine_for_sine(graph, kept):
        (found,) = graph.find_nodes(op="call_function", target=aten.sin.default)
        seen.append([node.target for node in kept])
        with graph.inserting_before(found):
            other = graph.call_function(aten.cos.default, found.args)
        other.meta.update(found.meta)
        found.replace_all_uses_with(other)
        graph.erase_node(found)
        return {found: other}

    layer = lifted(1, lambda hop, x: (x.sin(),))
    gm = lifted(1, lambda hop, x: (hop("invoke_subgraph", layer, "a", hop("invoke_subgraph", layer, "a", x)[0])[0],))
    x = R(3)
    assert prepare(gm, fakes([x.detach()]), rewrite_body=cosine_for_sine).backward is None and not seen
    result = prepare(gm, fakes([x]), rewrite_body=cosine_for_sine)
    assert seen == [[aten.sin.default, aten.mul.Tensor]]
    assert torch.equal(result.forward(x.detach())[0], x.detach().cos().cos())
    mapped = lifted(1, lambda hop, x: (hop("map_impl", layer, [x], [])[0],))
    prepare(mapped, fakes([x]), rewrite_body=cosine_for_sine)
    assert len(seen) == 1


def test_windows_of_one_product_are_saved_once():
    """A body gives memory of its own: each window would be a copy of a part of what is there already."""

    def three(hop, x, w):
        q, k, v = (x @ w).split(4, -1)
        return ((q.sin() * k * v).cos(),)

    layer = lifted(2, three)
    gm = lifted(2, lambda hop, x, w: hop("invoke_subgraph", layer, "layer", x, w))
    inputs = [R(4, 4), R(4, 12)]
    check(gm, lambda x, w: three(None, x, w), inputs)
    (called,) = operators(prepared(gm, inputs).forward, "invoke_subgraph")
    assert [tuple(value.shape) for value in called.meta["val"]] == [(4, 4), (4, 12)]


def test_options_of_the_call_reach_bodies():
    """A body is cut as the graph around it is: with no budget it saves nothing but operands."""
    layer = lifted(2, lambda hop, x, w: (((x @ w).exp() @ w).exp(),))
    gm = lifted(2, lambda hop, x, w: (hop("invoke_subgraph", layer, "layer", x, w)[0],))
    given = {}
    for budget in (1.0, 0.0):
        (call,) = operators(
            prepared(gm, [R(8, 4), R(4, 4)], config=Config(activation_memory_budget=budget)).forward, "invoke_subgraph"
        )
        given[budget] = len(call.meta["val"])
    assert given[0.0] < given[1.0]


def test_another_kind_of_operands_has_another_body():
    """Calls that look different share neither body nor identifier."""
    layer = lifted(1, lambda hop, x: (x.sin(),))
    gm = lifted(
        2, lambda hop, x, y: (hop("invoke_subgraph", layer, "a", x)[0], hop("invoke_subgraph", layer, "a", y)[0])
    )
    one, other = operators(prepared(gm, [R(3), R(4)]).forward, "invoke_subgraph")
    assert one.args[0] is not other.args[0] and one.args[1] != other.args[1]
    check(gm, lambda x, y: (x.sin(), y.sin()), [R(3), R(4)])


def test_a_layer_that_drops_elements():
    """The forward keeps the mask for the backward; nothing is drawn twice, and nothing merged."""
    layer = lifted(2, lambda hop, x, w: (F.dropout(x @ w, 0.5) * x,))

    def function(hop, x, w):
        first, second = (hop("invoke_subgraph", layer, "layer", x, w)[0] for _ in range(2))
        return first, second

    x, w = R(8, 8), R(8, 8)
    compiled = compile_graph(lifted(2, function), [x, w])
    torch.manual_seed(0)
    got = compiled(x, w)
    sum(got).sum().backward()
    grads, x.grad, w.grad = (x.grad, w.grad), None, None
    torch.manual_seed(0)
    want = [F.dropout(x @ w, 0.5) * x for _ in range(2)]
    sum(want).sum().backward()
    torch.testing.assert_close(list(got), want)
    torch.testing.assert_close(grads, (x.grad, w.grad))
    assert not torch.equal(*got)


def test_unread_calls():
    """A call whose results nobody reads goes, unless it draws random numbers."""
    plain, drawing = lifted(1, lambda hop, x: (x.sin(),)), lifted(1, lambda hop, x: (torch.rand_like(x),))

    def function(hop, x):
        hop("invoke_subgraph", plain, "plain", x)
        hop("invoke_subgraph", drawing, "drawing", x)
        return (x * 2,)

    (call,) = operators(prepared(lifted(1, function), [torch.randn(3)]).forward, "invoke_subgraph")
    assert call.args[1] == "forward_drawing"


@DYNAMIC
@pytest.mark.parametrize("learnt", [False, True])
def test_flex_attention(learnt, dynamic):
    """A bias for each head, read at a place that a tensor holds, under a causal mask; with a gradient of its own it leaves no operator."""
    from torch.nn.attention.flex_attention import create_block_mask

    length, scale = 128, 0.25
    blocks = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu").as_tuple()[:-1]
    score = lifted(6, lambda hop, s, b, h, m, n, bias: s * 2 + bias[h] * (m - n) + torch.tanh(s))
    mask = lifted(4, lambda hop, b, h, m, n: m >= n)

    def function(hop, q, k, v, bias, *tensors):
        rest = iter(tensors)
        known = tuple(next(rest) if isinstance(part, torch.Tensor) else part for part in blocks)
        return of(2, hop("flex_attention", q, k, v, score, (*known, mask), scale, {}, (bias,), ()))

    def formula(q, k, v, bias, *tensors):
        places = torch.arange(length)
        scores = q @ k.transpose(-1, -2) * scale
        scores = scores * 2 + bias[:, None, None] * (places[:, None] - places) + torch.tanh(scores)
        scores = scores.masked_fill(places[:, None] < places, -math.inf)
        return scores.softmax(-1) @ v, scores.logsumexp(-1) / math.log(2)

    tensors = [part for part in blocks if isinstance(part, torch.Tensor)]
    inputs = [R(2, 2, length, 16) for _ in range(3)]
    bias = (torch.rand(2) * 0.1).requires_grad_(learnt)
    gm = lifted(4 + len(tensors), function)
    check(gm, formula, [*inputs, bias, *tensors], dynamic)
    assert len(operators(prepared(gm, [*inputs, bias, *tensors]).backward, "flex_attention_backward")) == (not learnt)


def test_flex_attention_that_sums_what_it_learns():
    """With all pairs at once a sum would be one over them all."""
    score = lifted(6, lambda hop, s, b, h, m, n, bias: s + bias.sum())
    mask = lifted(4, lambda hop, b, h, m, n: m >= n)
    blocks = (128, 128, *(None for _ in range(14)))

    def function(hop, q, bias):
        return (hop("flex_attention", q, q, q, score, (*blocks, mask), 1.0, {}, (bias,), ())[0],)

    with pytest.raises(UnsupportedGraph, match="sum"):
        prepared(lifted(2, function), [R(1, 1, 128, 8), R(3)])


def _cond(true, inputs=None):
    gm = lifted(2, lambda hop, p, x: (hop("cond", p.sum() > 0, true, CLONED, (x,))[0],))
    return prepared(gm, inputs or [sign(1), R(3)])


CLONED = lifted(1, lambda hop, x: (x.clone(),))


@pytest.mark.parametrize("x", [R(3), torch.randn(3)])
def test_a_body_that_writes_to_its_operand(x):
    """Also through a view."""
    for body in (lambda hop, x: (x.add_(1),), lambda hop, x: (x.view(-1).mul_(2) + 1,)):
        with pytest.raises(UnsupportedGraph, match="writes to its operand 0"):
            _cond(lifted(1, body), [sign(1), x])


def test_a_body_that_writes_to_a_constant():
    """The next call would see it."""
    true = lifted(1, lambda hop, x: (x + 1,))
    true.register_buffer("table", torch.zeros(3))
    (total,) = (node for node in true.graph.nodes if node.op == "call_function")
    with true.graph.inserting_before(total):
        table = true.graph.get_attr("table")
        true.graph.call_method("add_", (table, 1))
        total.args = (total.args[0], table)
    true.recompile()
    with pytest.raises(UnsupportedGraph, match="writes to a constant"):
        _cond(true)


def test_a_body_that_writes_to_its_own():
    """A write to what the body made is none outside."""
    true = lifted(1, lambda hop, x: (x.sin().mul_(2),))
    gm = lifted(2, lambda hop, p, x: (hop("cond", p.sum() > 0, true, CLONED, (x,))[0],))
    check(gm, lambda p, x: (x.sin() * 2,), [sign(1), R(3)])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda hop, x: (x[:2],), "different shapes"),
        (lambda hop, x: (x.double(),), "different shapes"),
        (lambda hop, x: (x, x), "different shapes"),
        (lambda hop, x: (3,), "gives a int"),
        (lambda hop, x: (F.dropout(x, 0.5),), "random numbers"),
        (lambda hop, x: (x[x > 0],), "decided by values"),
    ],
)
def test_a_branch_that_is_refused(body, words):
    """Each with its reason."""
    with pytest.raises(UnsupportedGraph, match=words):
        _cond(lifted(1, body))


def test_a_branch_that_draws_without_a_gradient():
    """What is not run again may draw."""
    _cond(lifted(1, lambda hop, x: (F.dropout(x, 0.5),)), [sign(1), torch.randn(3)])


def test_a_carry_that_changes_its_shape():
    """No step after the first could be run."""
    body = lifted(2, lambda hop, c, x: (torch.cat([c, c]), x))
    gm = lifted(2, lambda hop, c, x: of(2, hop("scan", body, [c], [x], [])))
    with pytest.raises(UnsupportedGraph, match="carry"):
        prepared(gm, [R(3), R(4, 3)])


def test_an_operand_that_a_gradient_reads_and_that_is_written():
    """Eager raises in the backward; the graph is left to it."""
    layer = lifted(1, lambda hop, x: (x.sin(),))

    def function(hop, x):
        y = x * 2
        z = hop("invoke_subgraph", layer, "layer", y)[0]
        y.mul_(3)
        return (z,)

    with pytest.raises(UnsupportedGraph, match="modified by an inplace operation"):
        prepared(lifted(1, function), [R(3)])


def test_a_loop_that_carries_a_number():
    """Numbers that change from step to step have no place in the graph."""
    body = lifted(2, lambda hop, i, x: (i + 1, x * 2))
    condition = lifted(2, lambda hop, i, x: x.sum() < 3)
    gm = lifted(1, lambda hop, x: of(2, hop("while_loop", condition, body, (0, x), ())))
    with pytest.raises(UnsupportedGraph, match="carries a number"):
        prepared(gm, [torch.randn(3)])
    gm = lifted(1, lambda hop, x: of(2, hop("scan", body, [0], [x], [])))
    with pytest.raises(UnsupportedGraph, match="carries a number"):
        prepared(gm, [torch.randn(3)])


def test_a_condition_that_is_no_truth_value():
    """As eager refuses it."""
    body = lifted(1, lambda hop, x: (x + 1,))
    gm = lifted(1, lambda hop, x: (hop("while_loop", lifted(1, lambda hop, x: x < 3), body, (x,), ())[0],))
    with pytest.raises(UnsupportedGraph, match="truth value"):
        prepared(gm, [torch.randn(3)])


def test_a_second_derivative():
    """It is refused by name."""
    layer = lifted(1, lambda hop, x: (x.sin(),))
    gm = lifted(1, lambda hop, x: (hop("invoke_subgraph", layer, "layer", x)[0],))
    x = R(3)
    (y,) = compile_graph(gm, [x])(x)
    with pytest.raises(UnsupportedDoubleBackward, match="invoke_subgraph"):
        torch.autograd.grad(y.sum(), x, create_graph=True)[0].sum().backward()
