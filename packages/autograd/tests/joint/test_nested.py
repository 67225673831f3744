"""Higher-order operators: the compiled graph holds them over functional bodies, and gives what the Python formula gives, gradients included."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from lifting import compile_graph, fakes, interpret
from nested_graphs import lifted, operators
from torch.fx import GraphModule

from flambeau_autograd import UnsupportedDoubleBackward, UnsupportedGraph, prepare
from flambeau_autograd.passes.facts import alias_root

DYNAMIC = pytest.mark.parametrize("dynamic", [False, True])


def R(*shape):
    return torch.randn(*shape).requires_grad_()


def prepared(gm, inputs, dynamic=False):
    return prepare(gm, fakes(inputs, dynamic))


def check(gm, formula, inputs, dynamic=False):
    """The graph against the formula in eager; for an input that the formula's branch does not use, zeros count as no gradient."""
    _check_bodies(prepared(gm, inputs, dynamic))
    for compiler in (interpret, lambda half, _: half.forward):
        _check_compiled(compile_graph(gm, inputs, dynamic=dynamic, compiler=compiler), formula, inputs)


def _check_compiled(compiled, formula, inputs):
    ours = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    theirs = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    got, want = list(compiled(*ours)), list(formula(*theirs))
    torch.testing.assert_close(got, want)
    assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
    pairs = [(a, b, torch.randn_like(b)) for a, b in zip(got, want) if b.requires_grad]
    if not pairs:
        return
    sum((a * w).sum() for a, _, w in pairs).backward()
    sum((b * w).sum() for _, b, w in pairs).backward()
    for mine, wanted in zip(ours, theirs):
        if wanted.grad is None:
            assert mine.grad is None or not mine.grad.any()
        else:
            torch.testing.assert_close(mine.grad, wanted.grad)


def _check_bodies(result):
    """Bodies are functional: no write, no result in memory that something else shows."""
    for half in filter(None, (result.forward, result.backward)):
        for body in half.modules():
            if body is half or not isinstance(body, GraphModule):
                continue
            body.graph.lint()
            (output,) = body.graph.find_nodes(op="output")
            results = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
            roots = [alias_root(node) for node in results if node is not None]
            assert len(set(roots)) == len(roots) and all(root.op == "call_function" for root in roots)
            assert not any(getattr(n.target, "_schema", None) and n.target._schema.is_mutable for n in body.graph.nodes)


def sign(value):
    return torch.full((3,), float(value))


def of(count, call):
    """The first results of a call."""
    return tuple(call[i] for i in range(count))


# -- cond ----------------------------------------------------------------------------------------------------------------


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


# -- invoke_subgraph -----------------------------------------------------------------------------------------------------


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


# -- loops ---------------------------------------------------------------------------------------------------------------


@DYNAMIC
def test_map(dynamic):
    """Gradients of slices stay apart, those of what every slice sees are summed."""
    body = lifted(3, lambda hop, x, w, b: ((x @ w + b).sin(), x * 2))
    gm = lifted(3, lambda hop, x, w, b: of(2, hop("map_impl", body, [x], [w, b])))
    check(gm, lambda x, w, b: ((x @ w + b).sin(), x * 2), [R(5, 2, 4), R(4, 4), R(4)], dynamic)


def test_map_without_a_gradient():
    """Under no gradient, and over a transposed operand."""
    body = lifted(1, lambda hop, x: (x.exp(),))
    gm = lifted(1, lambda hop, x: (hop("map_impl", body, [x.t()], [])[0],))
    check(gm, lambda x: (x.t().exp(),), [torch.randn(5, 3)])


def cell(c, x, w):
    return torch.tanh(c @ w + x), (c * x).sin()


def scanned(step, carry, xs, *others):
    rows = []
    for x in xs:
        carry, row = step(carry, x, *others)
        rows.append(row)
    return carry, torch.stack(rows)


SCAN = lifted(3, lambda hop, c, x, w: cell(c, x, w))


@DYNAMIC
@pytest.mark.parametrize("wanting", ["cxw", "w", "x", "c", "cw", ""])
def test_scan(wanting, dynamic):
    """Whatever wants a gradient: a carry has one where any step gives it one."""
    gm = lifted(3, lambda hop, c, x, w: of(2, hop("scan", SCAN, [c], [x], [w])))
    inputs = [torch.randn(shape).requires_grad_(n in wanting) for n, shape in zip("cxw", ((2, 4), (5, 2, 4), (4, 4)))]
    check(gm, lambda c, x, w: scanned(cell, c, x, w), inputs, dynamic)


def test_scan_over_one_slice_with_a_carry_that_is_seen():
    """The carry is a result of each step as well, and of no step alone."""
    body = lifted(2, lambda hop, c, x: (c + x, c + x, c))
    gm = lifted(2, lambda hop, c, x: of(3, hop("scan", body, [c], [x], [])))

    def formula(c, x):
        return x.sum(0) + c, x.cumsum(0) + c, torch.cat([c[None], x.cumsum(0)[:-1] + c])

    for length in (1, 4):
        check(gm, formula, [R(3), R(length, 3)])


def test_scan_whose_carry_has_no_gradient():
    """A counter is carried; the reverse carries nothing."""
    body = lifted(2, lambda hop, i, x: (i + 1, x.sin() * i))
    gm = lifted(2, lambda hop, i, x: of(2, hop("scan", body, [i], [x], [])))
    check(gm, lambda i, x: (i + 3, x.sin() * (i + torch.arange(3)[:, None])), [torch.tensor(2), R(3, 4)])


def test_scan_of_channels_last():
    """A carry that does not lie row-major comes back so, with eager's numbers."""
    body = lifted(2, lambda hop, c, x: (c.exp() * x, c.sum(1)))
    gm = lifted(
        2, lambda hop, c, x: of(2, hop("scan", body, [c.contiguous(memory_format=torch.channels_last)], [x], []))
    )

    def formula(c, x):
        rows = []
        for row in x:
            rows.append(c.sum(1))
            c = c.exp() * row
        return c, torch.stack(rows)

    check(
        gm,
        formula,
        [(torch.rand(2, 3, 2, 2) * 0.1).requires_grad_(), (torch.rand(2, 2, 3, 2, 2) * 0.1).requires_grad_()],
    )


def test_scan_of_draws():
    """What is drawn in a step is kept for its gradient."""
    body = lifted(2, lambda hop, c, x: (c + x, F.dropout(c * x, 0.5)))
    gm = lifted(2, lambda hop, c, x: of(2, hop("scan", body, [c], [x], [])))
    c, x = R(16), R(4, 16)
    torch.manual_seed(0)
    _, rows = compile_graph(gm, [c, x])(c, x)
    rows.sum().backward()
    got, c.grad, x.grad = (c.grad, x.grad), None, None
    torch.manual_seed(0)
    _, want = scanned(lambda c, x: (c + x, F.dropout(c * x, 0.5)), c, x)
    want.sum().backward()
    torch.testing.assert_close(rows, want)
    torch.testing.assert_close(got, (c.grad, x.grad))


@pytest.mark.parametrize("way", [1, -1])
def test_scan_in_cond(way):
    """The gradient of a branch that loops."""
    true = lifted(3, lambda hop, c, x, w: of(2, hop("scan", SCAN, [c], [x], [w])))
    false = lifted(3, lambda hop, c, x, w: (c * 2, x * 3))
    gm = lifted(4, lambda hop, p, c, x, w: of(2, hop("cond", p.sum() > 0, true, false, (c, x, w))))

    def formula(p, c, x, w):
        return scanned(cell, c, x, w) if p.sum() > 0 else (c * 2, x * 3)

    check(gm, formula, [sign(way), R(2, 4), R(5, 2, 4), R(4, 4)])


def combined(combine, *xs):
    current = [x[0] for x in xs]
    rows = [current]
    for t in range(1, xs[0].shape[0]):
        current = combine(*current, *(x[t] for x in xs))
        rows.append(current)
    return [torch.stack(row) for row in zip(*rows)]


def linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@pytest.mark.parametrize(("length", "dynamic"), [(1, False), (2, False), (5, False), (6, True), (7, True)])
def test_associative_scan(length, dynamic):
    """Leaves that depend on each other: the gradient is that of the recurrence."""
    body = lifted(4, lambda hop, *parts: linear(*parts))
    gm = lifted(2, lambda hop, a, b: of(2, hop("associative_scan", body, [a, b], ())))
    check(gm, lambda a, b: combined(linear, a, b), [R(length, 3), R(length, 3)], dynamic)


@DYNAMIC
def test_associative_scan_with_a_weight(dynamic):
    """A tensor that every combination sees has the sum of its gradients."""
    body = lifted(3, lambda hop, a, b, w: (a * b * w.sin(),))
    gm = lifted(2, lambda hop, x, w: (hop("associative_scan", body, [x], (w,))[0],))
    # Products in any order, as long as there is one alone.
    check(gm, lambda x, w: combined(lambda a, b: (a * b * w.sin(),), x), [R(2, 3), R(3)], dynamic)


def test_associative_scan_of_more_than_elements():
    """Eager's kernel calls the body with many slices at once, which a product of matrices would take otherwise."""
    body = lifted(2, lambda hop, a, b: (a @ b,))
    gm = lifted(1, lambda hop, x: (hop("associative_scan", body, [x], ())[0],))
    with pytest.raises(UnsupportedGraph, match="element by element"):
        prepared(gm, [R(5, 3, 3)])


@DYNAMIC
def test_while_loop(dynamic):
    """As many steps as the values say, none included."""
    condition = lifted(3, lambda hop, i, x, w: i < 5)
    body = lifted(3, lambda hop, i, x, w: (i + 1, torch.tanh(x @ w) + x.shape[0]))
    gm = lifted(3, lambda hop, i, x, w: of(2, hop("while_loop", condition, body, (i, x), (w,))))

    def formula(i, x, w):
        while i < 5:
            i, x = i + 1, torch.tanh(x @ w) + x.shape[0]
        return i, x

    for start in (1, 7):
        check(gm, formula, [torch.tensor(start), torch.randn(3, 4), torch.randn(4, 4)], dynamic)


CONDITION = lifted(3, lambda hop, i, x, w: i < 5)
STEP = lifted(3, lambda hop, i, x, w: (i + 1, torch.tanh(x @ w) * i + x.shape[0]))


def stepped(i, x, w):
    while i < 5:
        i, x = i + 1, torch.tanh(x @ w) * i + x.shape[0]
    return i, x * 2


@DYNAMIC
@pytest.mark.parametrize("start", [1, 4, 7])
def test_gradient_of_while_loop(start, dynamic):
    """As many steps back as were made: none where there was none."""

    def function(hop, i, x, w):
        i, x = of(2, hop("while_loop", CONDITION, STEP, (i, x), (w,)))
        return i, x * 2

    check(lifted(3, function), stepped, [torch.tensor(start), R(3, 4), R(4, 4)], dynamic)


def test_gradient_of_while_loop_for_what_every_step_sees():
    """The carry has a history from the first step on."""
    gm = lifted(3, lambda hop, i, x, w: (hop("while_loop", CONDITION, STEP, (i, x), (w,))[1] * 2,))
    check(gm, lambda i, x, w: stepped(i, x, w)[1:], [torch.tensor(2), torch.randn(3, 4), R(4, 4)])


@pytest.mark.parametrize("way", [1, -1])
def test_while_loop_in_cond(way):
    """The gradient of a branch that loops as long as its values say."""
    true = lifted(3, lambda hop, i, x, w: (hop("while_loop", CONDITION, STEP, (i, x), (w,))[1],))
    false = lifted(3, lambda hop, i, x, w: (x.sin(),))
    gm = lifted(4, lambda hop, p, i, x, w: (hop("cond", p.sum() > 0, true, false, (i, x, w))[0] * 2,))

    def formula(p, i, x, w):
        return (stepped(i, x, w)[1] if p.sum() > 0 else x.sin() * 2,)

    check(gm, formula, [sign(way), torch.tensor(2), R(3, 4), R(4, 4)])


# -- attention -----------------------------------------------------------------------------------------------------------


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


# -- operators in operators, and in regions ------------------------------------------------------------------------------


def test_cond_and_map_in_scan():
    """Bodies in the body of a loop, and in that of its gradient."""
    true, false = lifted(2, lambda hop, c, w: (c.sin() * w,)), lifted(2, lambda hop, c, w: (c.cos(),))
    row = lifted(2, lambda hop, r, w: (r * w + r.exp(),))

    def step(hop, c, x, w):
        chosen = hop("cond", x.sum() > 0, true, false, (c, w))[0]
        return chosen + x, hop("map_impl", row, [chosen], [w])[0]

    body = lifted(3, step)
    gm = lifted(3, lambda hop, c, x, w: of(2, hop("scan", body, [c], [x], [w])))

    def formula(c, x, w):
        def one(c, x, w):
            chosen = c.sin() * w if x.sum() > 0 else c.cos()
            return chosen + x, chosen * w + chosen.exp()

        return scanned(one, c, x, w)

    check(gm, formula, [R(3, 4), R(6, 3, 4), R(4)])


def test_a_body_without_gradients():
    """A region without gradients in a body, and a call in such a region."""

    def body(hop, x, w):
        before = hop.graph.call_function(torch._C._set_grad_enabled, (False,))
        y = x.sin()
        hop.graph.call_function(torch._C._set_grad_enabled, (True,))
        assert before is not None
        return y * w, y

    layer = lifted(2, body)
    gm = lifted(2, lambda hop, x, w: of(2, hop("invoke_subgraph", layer, "layer", x, w)))
    check(gm, lambda x, w: (x.sin().detach() * w, x.sin().detach()), [R(3), R(3)])


@DYNAMIC
@pytest.mark.parametrize("way", [1, -1])
def test_sizes_that_pass_two_bodies(way, dynamic):
    """A symbol that the innermost body uses is an operand of each call on the way."""
    true = lifted(2, lambda hop, x, w: (x.view(-1, 2).sum(1) * x.view(2, -1).mean(0).mean(),))
    false = lifted(2, lambda hop, x, w: (x[::2].exp() * w.sum(),))
    layer = lifted(3, lambda hop, p, x, w: (hop("cond", p.sum() > 0, true, false, (x, w))[0].sin(),))
    gm = lifted(
        3, lambda hop, p, x, w: (hop("invoke_subgraph", layer, "layer", p, x.view(x.size(0) * x.size(1)), w)[0],)
    )

    def formula(p, x, w):
        x = x.reshape(-1)
        return ((x.view(-1, 2).sum(1) * x.mean() if p.sum() > 0 else x[::2].exp() * w.sum()).sin(),)

    check(gm, formula, [sign(way), R(6, 4), R(4, 4)], dynamic)


def test_a_constant_in_a_body():
    """It is an attribute of each graph that reads it."""
    layer = lifted(1, lambda hop, x: (x * 2,))
    layer.register_buffer("table", torch.arange(3.0))
    (product,) = (node for node in layer.graph.nodes if node.op == "call_function")
    with layer.graph.inserting_before(product):
        product.args = (product.args[0], layer.graph.get_attr("table"))
    layer.recompile()
    true, false = layer, lifted(1, lambda hop, x: (x.sin(),))
    gm = lifted(
        2,
        lambda hop, p, x: (
            hop("cond", p.sum() > 0, true, false, (x,))[0],
            hop("scan", lifted(2, lambda hop, c, r: (hop("invoke_subgraph", layer, "a", c)[0] + r, r)), [x], [p], [])[
                0
            ],
        ),
    )

    def formula(p, x):
        table = torch.arange(3.0)
        carry = x
        for row in p:
            carry = carry * table + row
        return x * table, carry

    check(gm, formula, [sign(1), R(3)])


def test_operands_of_other_kinds():
    """A parameter, complex numbers that are conjugated lazily, a repeated row, whole numbers."""
    layer = lifted(4, lambda hop, x, z, e, i: (x * e + i, z * z.conj() + 1, i + 1))

    def function(hop, x, z, e, i):
        return of(3, hop("invoke_subgraph", layer, "layer", x, z.conj(), e.expand(4, 3), i))

    z = torch.randn(4, 3, dtype=torch.complex64).requires_grad_()
    inputs = [torch.nn.Parameter(torch.randn(4, 3)), z, R(3), torch.arange(3)]
    compiled = compile_graph(lifted(4, function), inputs)
    results = compiled(*inputs)
    want = (inputs[0] * inputs[2].expand(4, 3) + inputs[3], z.conj() * z + 1, inputs[3] + 1)
    torch.testing.assert_close(results, want)
    for given in (results, want):
        (given[0].sum() + given[1].real.sum()).backward()
        for leaf in inputs[:3]:
            leaf.kept, leaf.grad = (*getattr(leaf, "kept", ()), leaf.grad), None
    for leaf in inputs[:3]:
        torch.testing.assert_close(*leaf.kept)


def test_autocast_around_a_call():
    """A body computes in the types that the region around its call says, its gradient in those of the forward."""
    layer = lifted(2, lambda hop, x, w: (x @ w,))

    def function(hop, x, w):
        mode = torch.amp.autocast_mode
        context = hop.graph.call_function(mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
        y = hop("invoke_subgraph", layer, "layer", x, w)[0]
        hop.graph.call_function(mode._exit_autocast, (context,))
        return y, hop("invoke_subgraph", layer, "layer", x, w)[0]

    def formula(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y, x @ w

    check(lifted(2, function), formula, [R(4, 4), R(4, 4)])


def test_a_checkpointed_region_with_a_branch():
    """The region saves what came in, and runs the branch again."""
    true, false = lifted(2, lambda hop, x, w: (x.sin() @ w,)), lifted(2, lambda hop, x, w: (x.cos(),))
    region = lifted(3, lambda hop, p, x, w: (hop("cond", p.sum() > 0, true, false, (x, w))[0].exp(),))

    def function(hop, p, x, w):
        return (hop("tag_activation_checkpoint", region, p, x, w)[0] * 2,)

    inputs = [sign(1), R(4, 4), R(4, 4)]
    gm = lifted(3, function)
    check(gm, lambda p, x, w: ((x.sin() @ w).exp() * 2,), inputs)
    result = prepared(gm, inputs)
    assert len(operators(result.forward, "cond")) == 1 and len(operators(result.backward, "cond")) == 2


def test_a_written_operand():
    """What an operand holds where the operator is called, whatever is written before, and after if no gradient reads it."""
    layer = lifted(1, lambda hop, x: (x * 5,))

    def function(hop, x):
        y = x * 2
        y[0].add_(1)
        z = hop("invoke_subgraph", layer, "layer", y)[0]
        y.mul_(3)
        return z, y, hop("invoke_subgraph", layer, "layer", y)[0]

    def formula(x):
        y = torch.cat([x[:1] * 2 + 1, x[1:] * 2])
        return y * 5, y * 3, y * 15

    check(lifted(1, function), formula, [R(4, 3)])


# -- what is refused -----------------------------------------------------------------------------------------------------


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
