"""Control-flow operators of torch."""

from __future__ import annotations

import collections

import pytest
import torch
from both_ways import assert_equal, eager, outcome, strides
from torch._higher_order_ops import while_loop, while_loop_stack_output
from torch._higher_order_ops._invoke_quant import InvokeQuant, invoke_quant_packed
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch.utils._pytree import tree_leaves

from flambeau_capture import GraphBreakError, make_region, nested_compile_region


def test_cond_on_a_number_takes_a_branch(check):
    """The other branch is not traced."""
    check(lambda x: torch.cond(x.shape[0] > 2, lambda v: v + 1, lambda v: v.nope(), (x,)))


def matrix():
    return torch.linspace(-2, 3, 12).reshape(3, 4)


def negative_or_positive(function):
    """Calls of both kinds, and with other values: one compile serves them."""
    records = []
    region = make_region(function, eager, fullgraph=True, observer=records.append)
    for scale in (1.0, -1.0, 2.0):
        x = matrix() * 0 + scale
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = region(ours), function(theirs)
        assert_equal(found, expected)
        found.sum().backward()
        expected.sum().backward()
        assert_equal(ours.grad, theirs.grad)
    assert len(records) == 1


def test_cond_is_one_graph_with_both_branches():
    """Closures over tensors, over numbers and over sizes; a cond within a cond; branches under no_grad."""
    w = torch.linspace(1, 2, 4)

    def inner(v):
        return torch.cond(v.max() > 1.5, lambda u: u * w, lambda u: u * u.shape[0], (v,))

    def without(v):
        with torch.no_grad():
            total = v.sum()
        return v * total

    negative_or_positive(lambda x: torch.cond(x.sum() > 0, lambda v: v.sin() * w, lambda v: v - 3, (x,)))
    negative_or_positive(lambda x: torch.cond(x.sum() > 0, inner, without, (x,)) * x.shape[0])
    negative_or_positive(lambda x: torch.cond(x.sum() > 0, lambda: x * 2, lambda: x.exp()))
    negative_or_positive(lambda x: torch.cond((x.sum() > 0)[None], torch.sin, torch.cos, [x]))


def test_cond_returns_trees():
    """Of the classes that its branches return."""
    Pair = collections.namedtuple("Pair", "one other")

    def function(x):
        named = torch.cond(x.sum() > 0, lambda v: Pair(v + 1, [v * 2]), lambda v: Pair(v - 1, [v * 3]), (x,))
        mapped = torch.cond(x.sum() > 0, lambda v: {"a": v + 1}, lambda v: {"a": v - 1}, (x,))
        return named, mapped

    region = make_region(function, eager, fullgraph=True)
    (one, (other,)), mapped = region(matrix())
    assert type(region(matrix())[0]) is Pair
    assert_equal((one, other, mapped), (matrix() + 1, matrix() * 2, {"a": matrix() + 1}))


def changes_a_list(x):
    seen = []

    def branch(v):
        seen.append(1)
        return v + 1

    return torch.cond(x.sum() > 0, branch, lambda v: v - 1, (x,)), len(seen)


def changes_a_tensor(x):
    return torch.cond(x.sum() > 0, lambda v: v.add_(1) * 2, lambda v: v - 1, (x,))


def leaves_the_grad_mode(x):
    def branch(v):
        torch.set_grad_enabled(False)
        return v + 1

    return torch.cond(x.sum() > 0, branch, lambda v: v - 1, (x,))


def raises(x):
    def branch(v):
        raise ValueError(v.shape)

    return torch.cond(x.sum() > 0, branch, lambda v: v - 1, (x,))


REFUSED = [
    changes_a_list,
    changes_a_tensor,
    leaves_the_grad_mode,
    raises,
    lambda x: torch.cond(x.sum() > 0, lambda v: v, lambda v: v - 1, (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda: x, lambda: x - 1),
    lambda x: torch.cond(x.sum() > 0, lambda v: v.t(), lambda v: v - 1, (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: v.t() + 1, lambda v: v[:, :3] - 1, (x[:, :3],)),
    lambda x: torch.cond(x.sum() > 0, lambda v: v[:1] + 1, lambda v: v - 1, (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: v.double(), lambda v: v - 1, (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: (v + 1,), lambda v: [v - 1], (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: None, lambda v: None, (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: 1, lambda v: 1, (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: v + 1 if v[0, 0] > 0 else v, lambda v: v - 1, (x,)),
    lambda x: torch.cond(x.sum(), lambda v: v + 1, lambda v: v - 1, (x,)),
    lambda x: torch.cond(x > 0, lambda v: v + 1, lambda v: v - 1, (x,)),
    lambda x: while_loop(lambda v: v.sum() < 100, lambda v: (torch.cat([v, v]),), (x,)),
    lambda x: while_loop(lambda v: v.sum() < 100, lambda v: (v.t() + 50,), (x[:, :3],)),
    lambda x: while_loop(lambda v: v < 100, lambda v: (v + 50,), (x,)),
    lambda x: while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v), (torch.tensor(0), x)),
    lambda x: while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + 1), (0, x)),
    lambda x: while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + 1), (torch.tensor(0), x.t())),
    lambda x: scan(lambda c, row: (c + row, c), torch.zeros(4), x),
    lambda x: scan(lambda c, row: (c + row,), torch.zeros(4), x),
    lambda x: scan(lambda c, row: ((c + row).double(), row * 2), torch.zeros(4), x),
    lambda x: scan(lambda c, row: (c + row, row * 2), torch.zeros(4), x[:0]),
    lambda x: map_over(lambda row: row, x),
    lambda x: map_over(lambda row: row * 2, x[:0]),
    lambda x: map_over(lambda row, w: row * w, x, w=x[0]),
    lambda x: map_over(lambda row: row * 2),
    lambda x: torch.cond(x.sum() > 0, lambda v: v + 1),
    lambda x: torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,), x),
    lambda x: torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, operand=(x,)),
    lambda x: torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,), pred=x.sum() > 0),
    lambda x: torch.cond(x.sum() > 0, lambda *v: v[0] + 1, lambda *v: v[0] - 1, x),
    lambda x: torch.cond(x.sum() > 0, lambda *v: x + 1, lambda *v: x - 1, "x"),
    lambda x: invoke_quant_packed(lambda v: v + 1, x),
    lambda x: invoke_quant_packed(lambda v: (v + 1,), x, scale=2),
    lambda x: while_loop(lambda v: v.sum() < 100, lambda v: (v + 50,)),
    lambda x: while_loop(lambda v: v.sum() < 100, lambda v: (v + 50,), carried=(x,)),
    lambda x: while_loop_stack_output(lambda v: v.sum() < 100, lambda v: (v + 50,), (x,)),
    lambda x: while_loop_stack_output(lambda v: v.sum() < 100, lambda v: (v + 50,), x, ()),
    lambda x: while_loop_stack_output(lambda v: v.sum() < 100, lambda v: (v + 50,), (x,), x),
    lambda x: while_loop_stack_output(lambda v: v.sum() < 100, lambda v: [v + 50], (x,), ()),
    lambda x: while_loop_stack_output(lambda v: v["x"].sum() < 100, lambda v: ({"x": v["x"] + 50},), ({"x": x},), ()),
    lambda x: while_loop_stack_output(lambda v: v.sum() < 100, lambda v: (v.int(),), (x,), ()),
    lambda x: while_loop_stack_output(lambda i, v: i < 3, lambda i, v: (i + 1, v + 1), (0, x), ()),
    lambda x: while_loop_stack_output(lambda v: v.sum() < 100, lambda v: (v + 50,), (x.requires_grad_(),), ()),
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_operators_do_not_take_breaks_before_them(function):
    """What torch refuses, and what a body of a graph may not do."""
    region = make_region(lambda x: function(x + 1), eager, fullgraph=True)
    with pytest.raises(GraphBreakError):
        region(matrix())


REFUSED_BY_TORCH = [
    lambda x: scan(lambda c, row: (c + row, row * 2), torch.zeros(4), x, dim=2),
    lambda x: scan(lambda c, row: (c + row, row * 2), torch.zeros(4), x, dim=-3),
    lambda x: associative_scan(lambda a, b: a + b, x, 2, combine_mode="generic"),
    lambda x: associative_scan(lambda a, b: a + b, x, -3, combine_mode="generic"),
    lambda x: associative_scan(lambda a, b: a + b, x, 0),
    lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="rows"),
    lambda x: associative_scan(lambda a, b: a + b, x[:0], 0, combine_mode="generic"),
    lambda x: associative_scan(lambda a, b: (a[0] + b[0], a[1] + b[1]), (x.t(), x[0]), 1, combine_mode="generic"),
    lambda x: associative_scan(lambda a, b: (a[0] + b[0], 1), (x, 1), 0, combine_mode="generic"),
    lambda x: associative_scan(lambda a, b: (), (), 0, combine_mode="generic"),
]


@pytest.mark.parametrize("function", REFUSED_BY_TORCH)
def test_what_torch_refuses_is_refused_in_its_words(function):
    """A dimension that is not there, a mode for GPUs, nothing to scan."""
    found, expected = (outcome(run, matrix()) for run in (make_region(function, eager), function))
    assert found == expected
    assert found[0] == "raised"


def test_what_a_body_computes_is_not_known_outside():
    """A tensor that a branch leaves in a variable."""

    def function(x):
        kept = x

        def branch(v):
            nonlocal kept
            kept = v * 2
            return v + 1

        return torch.cond(x.sum() > 0, branch, lambda v: v - 1, (x,)) + kept

    with pytest.raises(GraphBreakError):
        make_region(function, eager, fullgraph=True)(matrix())


def test_results_without_gradients_beside_operands_with_some():
    """The operator marks all of its results as differentiable, and the frame sees them so."""

    def function(x):
        made = torch.cond(x.sum() > 0, lambda v: v.detach() + 1, lambda v: v.detach() - 1, (x,))
        return made, made.requires_grad

    for x in (matrix(), matrix().requires_grad_()):
        (found, has), (wanted, had) = make_region(function, eager, fullgraph=True)(x), function(x)
        assert_equal(found, wanted)
        assert has == had == found.requires_grad == x.requires_grad


def test_a_carry_that_has_a_gradient_from_the_second_step_on():
    """The body is traced for those steps too, so that what it gives has the gradient that it has there."""

    def function(x, w):
        return scan(lambda c, row: ((c * w + row).tanh(), c * 2), torch.zeros(4), x, dim=0)

    region = make_region(function, eager, fullgraph=True)
    grads = []
    for call in (region, function):
        x, w = matrix().requires_grad_(), torch.full((4,), 0.5, requires_grad=True)
        carry, rows = call(x, w)
        (carry.sum() + rows.square().sum()).backward()
        grads.append((x.grad, w.grad))
    torch.testing.assert_close(*grads)


def test_a_size_that_a_body_asks_first_is_known_after_it():
    """It is a node of the graph around the body."""

    def function(x):
        made = torch.cond(x.sum() > 0, lambda: torch.ones(2) * x.shape[0], lambda: torch.zeros(2) + x.shape[1])
        return made * x.shape[0] + x.shape[1]

    region = make_region(function, eager, fullgraph=True, dynamic=True)
    for shape in ((2, 3), (4, 5), (3, 3)):
        assert_equal(region(torch.ones(shape)), function(torch.ones(shape)))


def test_floats_that_change_are_compiled_each():
    """An operator hands tensors and integers to bodies."""
    region = make_region(
        lambda x, k: torch.cond(x.sum() > 0, lambda v: v * k, lambda v: v + k, (x,)), eager, fullgraph=True
    )
    for k in (0.5, 0.25, 1.5):
        assert_equal(region(matrix() + 3, k), (matrix() + 3) * k)


def test_while_loops():
    """Over trees, with a condition over what is closed over, and one within another."""
    limit = torch.tensor(4)

    def function(x):
        state = {"i": torch.tensor(0), "x": x}
        done = while_loop(lambda s: s["i"] < limit, lambda s: ({"i": s["i"] + 1, "x": s["x"] * 2},), (state,))

        def outer(i, v):
            return i + 1, while_loop(lambda j, u: j < 2, lambda j, u: (j + 1, u + i), (torch.tensor(0), v))[1]

        return done[0]["x"], while_loop(lambda i, v: i < 3, outer, (torch.tensor(0), x))

    records = []
    region = make_region(function, eager, fullgraph=True, observer=records.append)
    for x in (matrix(), matrix() + 1):
        assert_equal(region(x), (x * 16, (torch.tensor(3), x + 6)))
    assert len(records) == 1


def test_loops_that_stack():
    """As many rows as steps, one at least; the operands are given to both functions. The number is a size like any other, also within a body."""

    def function(n, x, w):
        counts, rows = while_loop_stack_output(
            lambda i, v, w, by: i < n, lambda i, v, w, by: (i + 1, v * w + by), (torch.tensor(0), x), (w, 3)
        )

        def within(v):
            return while_loop_stack_output(lambda u: u.sum() < 50, lambda u: (u * 2,), (v,), ())[0].sum(0)

        either = torch.cond(n > 0, within, lambda v: v + 1, (x,))
        return counts, rows.reshape(-1, 4) * rows.shape[0], torch.arange(len(rows)), either

    records = []
    region = make_region(function, eager, fullgraph=True, observer=records.append)
    w = torch.linspace(0, 1, 4)
    for n in (3, 0, 1, 5):
        assert_equal(region(torch.tensor(n), matrix(), w), function(torch.tensor(n), matrix(), w))
    assert len(records) == 1


def rows_lie_along(dim):
    """Whether torch has the rows of results along the dimension that a scan goes over: 2.11 has them first."""
    _, found = scan(
        lambda carry, row: (carry + row, row * 1), torch.zeros(2), torch.zeros(3, 2).movedim(0, dim), dim=dim
    )
    return found.shape[dim] == 3


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(dim, reverse):
    """Any dimension, both ways, with gradients."""
    w = torch.linspace(0, 1, 3)

    def step(carry, row):
        after = {"total": carry["total"] * w + row["x"]}
        return after, [after["total"] * 2, row["x"].sum()]

    def function(x):
        return scan(step, {"total": torch.zeros(3)}, {"x": x}, dim=dim, reverse=reverse)

    def plainly(x):
        rows = list(x.movedim(dim, 0))
        total, found = torch.zeros(3), []
        for row in reversed(rows) if reverse else rows:
            total = total * w + row
            found.append((total * 2, row.sum()))
        pairs = zip(*(reversed(found) if reverse else found))
        scaled, sums = (torch.stack(part) for part in pairs)
        return {"total": total}, [scaled.movedim(0, dim if rows_lie_along(dim) else 0), sums]

    region = make_region(function, eager, fullgraph=True)
    ours, theirs = (torch.arange(9.0).reshape(3, 3).requires_grad_() for _ in range(2))
    found, expected = region(ours), plainly(theirs)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other)
    expected = function(theirs)  # gradients are those of torch's own rule
    (found[1][0].sum() + found[0]["total"].sum()).backward()
    (expected[1][0].sum() + expected[0]["total"].sum()).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_maps():
    """Over trees of one length; further arguments are handed on as they are."""

    def function(x, w):
        return map_over(lambda part, m, k: [(m @ part["x"]).tanh() * k, part["x"].sum()], {"x": x}, w, 3)

    region = make_region(function, eager, fullgraph=True)
    x, w = matrix(), torch.ones(2, 4)
    assert_equal(region(x, w), [torch.stack([(w @ row).tanh() * 3 for row in x]), x.sum(1)])


MARKED = pytest.mark.parametrize(
    "nested", [nested_compile_region, torch.compiler.nested_compile_region], ids=["own", "of torch"]
)


@MARKED
def test_nested_regions_are_traced_in_place(nested):
    """They are plain calls, which may write to what they are given."""

    @nested
    def layer(x, w):
        x.add_(1)
        return (x @ w).relu()

    def function(x, w):
        x = x.clone()
        return layer(x, w), layer(x, w), x

    region = make_region(function, eager, fullgraph=True)
    w = torch.ones(4, 4)
    assert_equal(region(matrix(), w), function(matrix(), w))


def test_quantised_regions_are_traced_in_place():
    """As in eager: the scheme is for compilers alone."""
    quantised = InvokeQuant()

    def function(x):
        first = quantised(lambda a, b: (a.sin() * b,), x, x, scheme="nf4")[0]
        return (
            first,
            invoke_quant_packed(lambda a: (a.cos(),), first, scheme="nf4", quant_options=quantised)[0],
            quantised(torch.add, x, other=x),
        )

    region = make_region(function, eager, fullgraph=True)
    ours, theirs = (matrix().requires_grad_() for _ in range(2))
    for found, expected in zip(region(ours), function(theirs), strict=True):
        assert_equal(found, expected)
        found.sum().backward(retain_graph=True)
        expected.sum().backward(retain_graph=True)
        assert_equal(ours.grad, theirs.grad)


def test_the_operator_that_registers_a_hook():
    operator = pytest.importorskip("torch._higher_order_ops.register_hook").register_hook_op

    def function(x, w):
        return operator(x * 2, lambda gradient, factor: gradient * factor, w).sin()

    region = make_region(function, eager, fullgraph=True)
    ours, theirs = (matrix().requires_grad_() for _ in range(2))
    found, expected = region(ours, torch.tensor(3.0)), function(theirs, torch.tensor(3.0))
    assert_equal(found, expected)
    found.sum().backward()
    expected.sum().backward()
    assert_equal(ours.grad, theirs.grad)


def test_what_a_nested_region_is_made_of():
    def layer(x, scale=2):
        """Words."""
        return x * scale

    region = nested_compile_region()(layer)
    assert (region.__name__, region.__doc__, region.__wrapped__) == ("layer", "Words.", layer)
    assert_equal(region(matrix(), scale=3), layer(matrix(), 3))
    with pytest.raises(TypeError, match="takes a function, not int"):
        nested_compile_region(3)


@MARKED
def test_nodes_tell_in_which_calls_they_were_made(nested):
    """Each call of a module or of a region has a number, those outside of it come first."""
    inner = torch.nn.Linear(4, 4)
    region = nested(lambda x: inner(x.sin()))
    outer = torch.nn.Sequential(torch.nn.Tanh(), inner)
    graphs = []

    def keep(gm, inputs):
        graphs.append(gm)
        return gm

    make_region(lambda x: outer(region(region(x))).cos(), keep, fullgraph=True)(matrix())
    made = [node.meta.get("calls", ()) for node in graphs[0].graph.nodes if node.op.startswith("call")]
    assert [[(name, marked) for _, name, marked, _ in calls] for calls in made] == [
        *[[("nested_compile_region", True)], [("nested_compile_region", True), ("Linear", False)]] * 2,
        [("Sequential", False), ("Tanh", False)],
        [("Sequential", False), ("Linear", False)],
        [],
    ]
    numbers = [number for calls in made for number, _, _, _ in calls]
    assert made[0][0] == made[1][0] and made[2][0] == made[3][0] and made[4][0] == made[5][0]
    assert len({*numbers}) == 7


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(size, reverse):
    """A cumulative sum, and the recurrence of a state-space model, in one graph."""

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def run(x, decay, value):
        total = associative_scan(lambda a, b: a + b, x, dim=1, reverse=reverse, combine_mode="generic")
        return total, associative_scan(combine, (decay, value), dim=0, combine_mode="generic")[1]

    region = make_region(run, eager, fullgraph=True)
    x, decay, value = torch.randn(2, size, 3), torch.rand(size, 3), torch.randn(size, 3)
    total, states = region(x, decay, value)
    expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
    torch.testing.assert_close(total, expected)
    assert strides(total) == strides(torch.empty(size, 2, 3).movedim(0, 1))
    state = torch.zeros(3)
    for i in range(size):
        state = decay[i] * state + value[i]
        torch.testing.assert_close(states[i], state)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_associative_scan_combines_rows(size):
    """The function sees two rows at a time, whatever it does along their own dimensions."""

    def run(x, w):
        turned = associative_scan(lambda a, b: a + b.flip(0), x, dim=0, combine_mode="generic")
        summed = associative_scan(lambda a, b: a * b.roll(1, 0), x, dim=1, combine_mode="generic")
        products = associative_scan(lambda a, b: a @ b, w, dim=0, combine_mode="generic")
        return (
            turned,
            summed,
            products,
            associative_scan(lambda a, b: a + b.flip(0), x, dim=0, reverse=True, combine_mode="generic"),
        )

    region = make_region(run, eager, fullgraph=True)
    x, w = torch.rand(size, size, 3), torch.rand(size, 2, 2)
    for found, expected in zip(region(x, w), run(x, w), strict=True):
        torch.testing.assert_close(found, expected)
