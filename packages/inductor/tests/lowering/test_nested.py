"""Higher-order operators: loop IR, both executors and eager formulas agree; bodies are lowered once."""

from __future__ import annotations

import operator

import pytest
import torch
from nesting import Outer, check, lowered
from torch._higher_order_ops.map import map_impl

from flambeau_inductor.errors import UnsupportedGraphError
from flambeau_inductor.ir.loops import Extern, Nested, Scan
from flambeau_inductor.ir.text import graph_text
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load

aten, hop = torch.ops.aten, torch.ops.higher_order

both = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


def inputs(*sizes):
    torch.manual_seed(len(sizes))
    return [torch.randn(size) for size in sizes]


def val(node):
    return node.meta["val"]


# cond


def branching(symbolic, x, y, yes=lambda x, y: (x * y + 1, x.t().contiguous()), no=lambda x, y: (x - y, x.t() * 2)):
    o = Outer(symbolic)
    a, b = o.input(x), o.input(y)
    predicate = o.op(aten.gt.Scalar, o.op(aten.sum.default, a), 0)
    with o.mode:
        results = yes(val(a), val(b))
    node = o.call(hop.cond, predicate, o.body(yes, a, b), o.body(no, a, b), (a, b), val=results)
    return o.finish(*o.parts(node))


@both
def test_cond_runs_one_branch(symbolic) -> None:
    x, y = inputs((6, 5), (5,))
    gm = branching(symbolic, x, y)
    check(gm, [x.abs(), y], [x.abs() * y + 1, x.abs().t()])
    check(gm, [-x.abs(), y], [-x.abs() - y, -x.abs().t() * 2])


def test_a_symbolic_graph_takes_other_sizes() -> None:
    x, y = inputs((6, 5), (5,))
    gm = branching(True, x, y)
    other, row = inputs((3, 7), (7,))
    check(gm, [other.abs(), row], [other.abs() * row + 1, other.abs().t()])


def test_results_of_a_branch_share_no_memory_with_what_it_is_given() -> None:
    x, y = inputs((6, 5), (5,))

    def same(x, y):
        return aten.alias(x), aten.alias(x)

    artifact = check(branching(False, x, y, same, same), [x, y], [x, x])
    first, second = load(artifact)(x, y)
    assert len({first.data_ptr(), second.data_ptr(), x.data_ptr()}) == 3


@pytest.mark.parametrize("predicate", [True, False])
def test_a_predicate_that_is_known_calls_its_branch_alone(predicate) -> None:
    (x,) = inputs((3,))
    o = Outer()
    a = o.input(x)
    bodies = o.body(lambda x: (x + 1,), a), o.body(lambda x: (x - 1,), a)
    gm = o.finish(o.part(o.call(hop.cond, predicate, *bodies, (a,), val=(val(a),)), 0))
    artifact = check(gm, [x], [x + 1 if predicate else x - 1])
    assert len(artifact.kernels) == 1 and "call(" in artifact.text()


def test_a_predicate_of_sizes() -> None:
    (x,) = inputs((3,))
    o = Outer(True)
    a = o.input(x)
    size = o.op(aten.sym_size.int, a, 0)
    predicate = o.call(operator.gt, size, 5, val=val(size) > 5)
    bodies = o.body(lambda x: (x + 1,), a), o.body(lambda x: (x - 1,), a)
    gm = o.finish(o.part(o.call(hop.cond, predicate, *bodies, (a,), val=(val(a),)), 0))
    check(gm, [x], [x - 1])
    check(gm, [torch.ones(6)], [torch.full((6,), 2.0)])


@pytest.mark.filterwarnings("ignore:Raw SymInt value")
def test_branches_name_sizes_and_constants_from_outside() -> None:
    """One names a size of another input, the other holds a tensor: both are passed to both."""
    x, y = inputs((6, 5), (5,))
    o = Outer(True)
    a, b = o.input(x), o.input(y)
    predicate = o.op(aten.gt.Scalar, o.op(aten.sum.default, b), 0)
    ones = o.body(lambda y: (y + 1,), b)
    for node in ones.graph.nodes:
        if node.target is aten.add.Tensor:
            with ones.graph.inserting_after(node):
                fill = ones.graph.call_function(aten.mul.Scalar, (node, val(a).shape[0]))
            fill.meta["val"] = val(node)
            node.replace_all_uses_with(fill, delete_user_cb=lambda user, fill=fill: user is not fill)
    weights = o.body(lambda y: (y * 2,), b)
    weights.register_buffer("weight", torch.arange(5.0))
    for node in weights.graph.nodes:
        if node.target is aten.mul.Tensor:
            with weights.graph.inserting_before(node):
                weight = weights.graph.get_attr("weight")
            weight.meta["val"] = o.mode.from_tensor(weights.weight)
            node.args = (node.args[0], weight)
    gm = o.finish(o.part(o.call(hop.cond, predicate, ones, weights, (b,), val=(val(b),)), 0), o.op(aten.neg.default, a))
    artifact = check(gm, [x, y.abs()], [(y.abs() + 1) * 6, -x])
    check(gm, [x, -y.abs()], [-y.abs() * torch.arange(5.0), -x])
    assert [spec.name for spec in artifact.constants] == ["body_4.weight"]


def test_branches_of_different_sizes() -> None:
    (x,) = inputs((5,))
    o = Outer()
    a = o.input(x)
    size = o.unbacked()
    with o.mode:
        merged = torch.empty(size)
    predicate = o.op(aten.gt.Scalar, o.op(aten.sum.default, a), 0)
    bodies = o.body(lambda x: (x[:2] * 3,), a), o.body(lambda x: (x[1:] * 3,), a)
    got = o.part(o.call(hop.cond, predicate, *bodies, (a,), val=(merged,)), 0)
    gm = o.finish(o.op(aten.neg.default, got))
    check(gm, [x.abs()], [-3 * x.abs()[:2]])
    check(gm, [-x.abs()], [3 * x.abs()[1:]])


# while_loop


def looping(symbolic, x, y, steps=5):
    o = Outer(symbolic)
    start, a, b = o.input(torch.tensor(0)), o.input(x), o.input(y)
    condition = o.body(lambda i, x, y: i < steps, start, a, b)
    step = o.body(lambda i, x, y: (i + 1, x * 0.5 + y), start, a, b)
    node = o.call(hop.while_loop, condition, step, (start, a), (b,), val=(val(start), val(a)))
    return o.finish(*o.parts(node))


@both
@pytest.mark.parametrize("steps", [0, 5])
def test_while_loop(symbolic, steps) -> None:
    x, y = inputs((6, 5), (5,))
    wanted = x
    for _ in range(steps):
        wanted = wanted * 0.5 + y
    check(looping(symbolic, x, y, steps), [torch.tensor(0), x, y], [torch.tensor(steps), wanted])


def test_while_loop_over_a_number() -> None:
    (x,) = inputs((3,))
    o = Outer()
    a = o.input(x)
    count, after = o.unbacked(), o.unbacked()
    condition = o.body(lambda i, x: i < 4, count, a)
    step = o.body(lambda i, x: (i + 1, x * i), count, a)
    node = o.call(hop.while_loop, condition, step, (1, a), (), val=(after, val(a)))
    gm = o.finish(*o.parts(node))
    check(gm, [x], [4, x * 6])


@pytest.mark.parametrize("taken", [(0, 1), (1,)])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_loop_that_stacks(taken, steps) -> None:
    """As many rows as steps, which later sizes are computed of; what nobody takes is not stacked."""
    x, y = inputs((6, 5), (5,))
    o = Outer()
    start, a, b, rows = o.input(torch.tensor(0)), o.input(x), o.input(y), o.unbacked()
    condition = o.body(lambda i, x, y: i < steps, start, a, b)
    step = o.body(lambda i, x, y: (i + 1, x * 0.5 + y), start, a, b)
    with o.mode:
        stacks = torch.empty((rows,), dtype=torch.int64), torch.empty((rows, 6, 5))
    node = o.call(hop.while_loop_stack_output, condition, step, (start, a), (b,), val=stacks)
    parts = [o.part(node, place) for place in taken]
    length = o.op(aten.sym_size.int, parts[-1], 0)
    gm = o.finish(*parts, o.op(aten.add.Tensor, o.op(aten.sum.dim_IntList, parts[-1], [1, 2]), 1), length)
    given, wanted = [], x
    for _ in range(steps):
        wanted = wanted * 0.5 + y
        given.append(wanted)
    stacked = torch.stack(given or [x])
    counted = torch.arange(1, steps + 1) if steps else torch.tensor([0])
    results = [[counted, stacked][place] for place in taken]
    check(gm, [torch.tensor(0), x, y], [*results, stacked.sum((1, 2)) + 1, max(steps, 1)])
    (loop,) = (op for op in lowered(gm).operations if isinstance(op, Extern) and isinstance(op.op, Nested))
    assert [out is not None for out in loop.outs] == [place in taken for place in (0, 1)]


def test_a_loop_that_carries_other_sizes_is_refused() -> None:
    (x,) = inputs((4,))
    o = Outer()
    a = o.input(x)
    bodies = o.body(lambda x: x.sum() > 0, a), o.body(lambda x: (torch.cat([x, x]),), a)
    gm = o.finish(o.part(o.call(hop.while_loop, *bodies, (a,), (), val=(val(a),)), 0))
    with pytest.raises(UnsupportedGraphError, match="changes the sizes"):
        lowered(gm)


# scan, map, associative_scan


def recurrence(c, x, w):
    return c * 0.5 + x, (c + w).sin()


def scanning(symbolic, init, xs, w, step=recurrence):
    o = Outer(symbolic)
    c, x, k = o.input(init), o.input(xs), o.input(w)
    with o.mode:
        row = val(x)[0]
        carried, stacked = step(val(c), row, val(k))
        many = val(x).new_empty((val(x).shape[0], *stacked.shape))
    node = o.call(hop.scan, o.body(step, c, row, k), [c], [x], (k,), val=[carried, many])
    return o.finish(*o.parts(node))


def eager_scan(c, xs, w):
    ys = []
    for x in xs:
        c, y = recurrence(c, x, w)
        ys.append(y)
    return [c, torch.stack(ys) if ys else xs.new_empty((0, *xs.shape[1:]))]


@both
@pytest.mark.parametrize("length", [1, 7])
def test_scan(symbolic, length) -> None:
    c, xs, w = inputs((5,), (length + 2, 5), (5,))
    check(scanning(symbolic, c, xs, w), [c, xs, w], eager_scan(c, xs, w))


def test_scan_over_nothing() -> None:
    c, xs, w = inputs((5,), (3, 5), (5,))
    gm = scanning(True, c, xs, w)
    check(gm, [c, xs[:0], w], eager_scan(c, xs[:0], w))


def test_scan_over_transposed_memory() -> None:
    c, xs, w = inputs((5,), (3, 5), (5,))
    xs = torch.empty_strided((3, 5), (1, 3)).copy_(xs)
    check(scanning(False, c, xs, w), [c, xs, w], eager_scan(c, xs, w))


def test_scan_writes_what_it_stacks_once() -> None:
    """The kernel of a step writes into the result itself: nothing is allocated or copied for it."""
    c, xs, w = inputs((5,), (3, 5), (5,))
    artifact = check(scanning(False, c, xs, w), [c, xs, w], eager_scan(c, xs, w))
    (loop,) = [i for i in artifact.program.instructions if type(i).__name__ == "Subprogram"]
    kinds = [type(i).__name__ for i in loop.programs[0].instructions]
    assert kinds.count("Alloc") == 1 and "Copy" not in kinds and "Call" not in kinds


@both
def test_map(symbolic) -> None:
    xs, w = inputs((4, 5), (5,))
    o = Outer(symbolic)
    x, k = o.input(xs), o.input(w)
    with o.mode:
        results = [val(x) * val(k), val(x).sum(1)]
    body = o.body(lambda x, w: (x * w, x.sum()), val(x)[0], k)
    gm = o.finish(*o.parts(o.call(map_impl, body, [x], [k], val=results)))
    check(gm, [xs, w], [xs * w, xs.sum(1)])


def associative(symbolic, combine, *tensors):
    o = Outer(symbolic)
    xs = [o.input(tensor) for tensor in tensors]
    rows = [val(x)[0] for x in (*xs, *xs)]
    node = o.call(hop.associative_scan, o.body(combine, *rows), xs, (), val=[val(x) for x in xs])
    return o.finish(*o.parts(node))


@both
@pytest.mark.parametrize(
    ("combine", "wanted"),
    [
        (lambda a, b: (a + b,), lambda x: x.cumsum(0)),
        (lambda a, b: (b * a,), lambda x: x.cumprod(0)),
        (lambda a, b: (torch.maximum(a, b),), lambda x: x.cummax(0).values),
        (lambda a, b: (torch.minimum(a, b),), lambda x: x.cummin(0).values),
        (lambda a, b: (torch.logaddexp(a, b),), lambda x: x.logcumsumexp(0)),
    ],
)
def test_an_associative_scan_of_one_op_is_a_scan_of_the_loop_ir(symbolic, combine, wanted) -> None:
    (x,) = inputs((6, 5))
    gm = associative(symbolic, combine, x)
    check(gm, [x], [wanted(x)])
    assert [type(o) for o in lowered(gm).operations] == [Scan]


@both
@pytest.mark.parametrize("length", [1, 6])
def test_an_associative_scan_of_any_combination(symbolic, length) -> None:
    """The recurrence of a state space model."""
    a, b = inputs((length + 1, 5), (length + 1, 5))
    gm = associative(symbolic, lambda a, b, c, d: (a * c, b * c + d), a, b)
    states = [b[0]]
    for n in range(1, len(a)):
        states.append(states[-1] * a[n] + b[n])
    check(gm, [a, b], [a.cumprod(0), torch.stack(states)])


def test_differences_are_no_scan_of_the_loop_ir() -> None:
    (x,) = inputs((6, 5))
    check(associative(False, lambda a, b: (a - b,), x), [x], [x[:1] * 2 - x.cumsum(0)])


# bodies


def layers(symbolic, x, y, body=lambda x, y: ((x @ y).softmax(-1) * x.sum(),), copies=False, count=3):
    o = Outer(symbolic)
    a, b = o.input(x), o.input(y)
    shared, h = o.body(body, a, b), a
    for _ in range(count):
        module = o.body(body, a, b) if copies else shared
        h = o.part(o.call(hop.invoke_subgraph, module, "layer", h, b, val=(val(a),)), 0)
    return o.finish(o.op(aten.neg.default, h))


def eager_layers(x, y, count=3):
    for _ in range(count):
        x = (x @ y).softmax(-1) * x.sum()
    return -x


@both
@pytest.mark.parametrize("copies", [False, True], ids=["one module", "equal modules"])
def test_a_body_of_several_calls_is_lowered_and_generated_once(symbolic, copies) -> None:
    x, y = inputs((6, 5), (5, 5))
    once = check(layers(symbolic, x, y, count=1), [x, y], [eager_layers(x, y, 1)])
    gm = layers(symbolic, x, y, copies=copies)
    artifact = check(gm, [x, y], [eager_layers(x, y)])
    assert len(lowered(gm).bodies) == 1
    assert len({id(i.programs[0]) for i in artifact.program.instructions if type(i).__name__ == "Subprogram"}) == 1
    assert len(artifact.kernels) <= len(once.kernels) + 1
    assert artifact.text().count("call aten::mm") == 1


def test_bodies_that_differ_are_two() -> None:
    (x,) = inputs((4,))
    o = Outer()
    a = o.input(x)
    h = a

    def plus(number):
        return lambda x: (x.sin().cos().exp() + number,)

    for number in (1, 1.0, 2):
        module = o.body(plus(number), a)
        h = o.part(o.call(hop.invoke_subgraph, module, "layer", h, val=(val(a),)), 0)
    gm = o.finish(h)
    assert len(lowered(gm).bodies) == 3
    check(gm, [x], [(((x.sin().cos().exp() + 1).sin().cos().exp() + 1).sin().cos().exp() + 2)])


@both
def test_bodies_in_bodies(symbolic) -> None:
    c, xs, w = inputs((5,), (6, 5), (5,))

    def step(c, x, w):
        (c,) = hop.cond(x.sum() > 0, lambda c, x, w: (c + x,), lambda c, x, w: (c * w,), (c, x, w))
        return c, c.sin()

    o = Outer(symbolic)
    carry, x, k = o.input(c), o.input(xs), o.input(w)
    body = o.body(step, carry, val(x)[0], k)
    gm = o.finish(*o.parts(o.call(hop.scan, body, [carry], [x], (k,), val=[val(carry), val(x)])))
    ys = []
    for row in xs:
        c = c + row if row.sum() > 0 else c * w
        ys.append(c.sin())
    artifact = check(gm, [inputs((5,), (6, 5), (5,))[0], xs, w], [c, torch.stack(ys)])
    text = artifact.text()
    assert "scan(" in text and "    " in text and "= cond(" in text


def test_text_and_draws() -> None:
    (x,) = inputs((4,))
    o = Outer()
    a = o.input(x)
    body = o.body(lambda x: (aten.bernoulli.default(x),), a)
    used = o.part(o.call(hop.invoke_subgraph, body, "noise", a, val=(val(a),)), 0)
    o.call(hop.invoke_subgraph, body, "noise", a, val=(val(a),))
    graph = lowered(o.finish(used))
    calls = [o.op for o in graph.operations if isinstance(o, Extern)]
    assert all(isinstance(op, Nested) and op.draws for op in calls)
    assert len(calls) == 2, "a draw that nobody reads moves the generator on"
    assert graph_text(graph).startswith("graph body_") and "call call body_" in graph_text(graph)


def test_an_operator_without_a_rule_is_refused() -> None:
    (x,) = inputs((4,))
    o = Outer()
    a = o.input(x)
    node = o.call(hop.strict_mode, o.body(lambda x: (x + 1,), a), (a,), val=(val(a),))
    with pytest.raises(UnsupportedGraphError, match="the higher-order operator strict_mode"):
        lowered(o.finish(o.part(node, 0)))


def test_a_predicate_on_a_gpu_is_named_among_what_waits() -> None:
    o = Outer()
    with o.mode:
        fake = torch.empty(4, device="cuda")
    a = o.graph.placeholder("a")
    a.meta["val"] = fake
    predicate = o.op(aten.gt.Scalar, o.op(aten.sum.default, a), 0)
    bodies = o.body(lambda x: (x + 1,), a), o.body(lambda x: (x - 1,), a)
    artifact = compile_graph(o.finish(o.part(o.call(hop.cond, predicate, *bodies, (a,), val=(fake,)), 0)), [fake])
    assert artifact.meta["waits"] == ["cond cond"]
    (x,) = inputs((6,))
    assert (
        "waits"
        not in check(branching(False, x[None], x), [x[None].abs(), x], [x[None].abs() * x + 1, x[:, None].abs()]).meta
    )
