"""Loops, and operators within operators: the compiled graph gives what the Python formula gives, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lifting import compile_graph
from nested_graphs import DYNAMIC, R, check, lifted, of, operators, prepared, sign
from torch.torch_version import TorchVersion

from flambeau_autograd import UnsupportedGraph


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


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.12",
    reason="this scan of torch's takes a step more, for the shapes of its results",
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


@DYNAMIC
@pytest.mark.parametrize("start", [1, 4, 7])
def test_a_loop_that_stacks_what_its_steps_give(start, dynamic):
    """The number of rows is a size like any other."""

    def function(hop, i, x, w):
        counts, rows = of(2, hop("while_loop_stack_output", CONDITION, STEP, (i, x), (w,)))
        return counts, rows.sum(0) * rows.shape[0], torch.arange(rows.shape[0])

    def formula(i, x, w):
        given = []
        while i < 5:
            i, x = i + 1, torch.tanh(x @ w) * i + x.shape[0]
            given.append((i, x))
        counts, rows = map(torch.stack, zip(*(given or [(i, x)])))
        return counts, rows.sum(0) * rows.shape[0], torch.arange(rows.shape[0])

    check(lifted(3, function), formula, [torch.tensor(start), torch.randn(3, 4), torch.randn(4, 4)], dynamic)


def test_a_loop_that_stacks_has_no_gradient():
    """Nor has it in torch, which says so when it is differentiated."""
    gm = lifted(3, lambda hop, i, x, w: of(2, hop("while_loop_stack_output", CONDITION, STEP, (i, x), (w,))))
    inputs = [torch.tensor(2), torch.randn(3, 4), R(4, 4)]
    with pytest.raises(UnsupportedGraph, match="has no gradient"):
        prepared(gm, inputs)
    with torch.no_grad():
        assert prepared(gm, inputs).backward is None


@pytest.mark.parametrize("way", [1, -1])
def test_while_loop_in_cond(way):
    """The gradient of a branch that loops as long as its values say."""
    true = lifted(3, lambda hop, i, x, w: (hop("while_loop", CONDITION, STEP, (i, x), (w,))[1],))
    false = lifted(3, lambda hop, i, x, w: (x.sin(),))
    gm = lifted(4, lambda hop, p, i, x, w: (hop("cond", p.sum() > 0, true, false, (i, x, w))[0] * 2,))

    def formula(p, i, x, w):
        return (stepped(i, x, w)[1] if p.sum() > 0 else x.sin() * 2,)

    check(gm, formula, [sign(way), torch.tensor(2), R(3, 4), R(4, 4)])


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
