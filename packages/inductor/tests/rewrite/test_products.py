"""Small products with one right operand become one, sums of products too: equal to eager, and only where nothing can tell."""

import functools
import operator

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from tracing import TABLE, traced, traced_on_cuda

import flambeau_runtime
from flambeau_inductor import CompileContext, compile_graph
from flambeau_inductor.passes.order import PASSES
from flambeau_inductor.passes.runner import run_passes
from flambeau_runtime import processor
from flambeau_runtime.artifact import Call

STEPS, BATCH, INPUTS, WIDTH = 5, 3, 7, 9


def calls(gm, **options):
    """Names of the calls after all passes."""
    after = run_passes(gm, PASSES, CompileContext(CompileContext().config.with_options(options)))
    names = [str(n.target).removeprefix("aten.") for n in after.graph.nodes if n.op == "call_function"]
    return [name.partition(".")[0] for name in names]


def products(function, *inputs, mode="fake", tolerance=1e-5, executor="native", **options):
    """How many products the program has; results and strides equal eager's."""
    gm = traced(function, *inputs, mode=mode)
    artifact = compile_graph(gm, inputs, {"verify": True, **options})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact), executor=executor)
    wanted = function(*inputs)
    for got, want in zip(run(*inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
        assert got.stride() == want.stride()
        assert got.untyped_storage().nbytes() == want.untyped_storage().nbytes()
    called = [i.op for i in artifact.program.instructions if isinstance(i, Call)]
    return called.count("aten::mm") + called.count("aten::addmm")


def cell(x, h, c, w, u, b, d):
    """One step of an LSTM."""
    i, f, g, o = (F.linear(x, w, b) + F.linear(h, u, d)).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def loop(dim=1):
    """A loop over dimension ``dim`` of its input, with a head at each step."""

    def run(x, w, u, b, d, head, bias):
        h = c = x.new_zeros(BATCH, WIDTH)
        outputs = []
        for step in x.unbind(dim):
            h, c = cell(step, h, c, w, u, b, d)
            outputs.append(F.linear(h, head, bias))
        return torch.stack(outputs, 1), h

    return run


def weights(inputs=INPUTS, head=2):
    """Of the loop."""
    shapes = ((4 * WIDTH, inputs), (4 * WIDTH, WIDTH), (4 * WIDTH,), (4 * WIDTH,), (head, WIDTH), (head,))
    return [torch.randn(shape) * 0.3 for shape in shapes]


def gradients(function):
    """A function that gives the gradients of the sum of squares of what ``function`` gives."""

    def step(*values):
        values = [value.detach().requires_grad_() for value in values]
        with torch.enable_grad():
            results = function(*values)
            loss = sum(r.square().sum() for r in (results if isinstance(results, tuple) else (results,)))
            return torch.autograd.grad(loss, values)

    return step


@pytest.mark.parametrize("executor", ["python", "native"])
@pytest.mark.parametrize("head", [1, 2, 4])
def test_a_recurrent_loop(executor, head):
    """All steps' inputs are one product, and all heads; the recurrent ones depend on each other."""
    x = torch.randn(BATCH, STEPS, INPUTS)
    assert products(loop(), x, *weights(head=head), executor=executor) == STEPS + 2


def test_the_gradients_of_a_recurrent_loop():
    """One product for each weight, one for the gradients of all inputs, one for those of all heads."""
    x = torch.randn(BATCH, STEPS, INPUTS)
    with torch.no_grad():
        gm = traced(gradients(loop()), x, *weights())
    forward, recurrent = STEPS + 2, STEPS - 1
    found = calls(gm)
    assert found.count("mm") + found.count("addmm") == forward + recurrent + 5
    assert products(gradients(loop()), x, *weights(), tolerance=1e-4) == forward + recurrent + 5


@pytest.mark.parametrize("spend", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_recurrent_loop_on_cuda(spend, fused):
    """As large as they come there; all steps at once only where memory may be spent, and the recurrent products in parts."""
    steps, rows, width = 64, 32, 512

    def run(x, w, u, b, d, head, bias):
        h = c = x.new_zeros(rows, width)
        outputs = []
        for step in x.unbind(1):
            if fused:
                h, c, _ = torch.ops.aten._thnn_fused_lstm_cell(step @ w.t(), h @ u.t(), c, b, d)
            else:
                h, c = cell(step, h, c, w, u, b, d)
            outputs.append(F.linear(h, head, bias))
        return torch.stack(outputs, 1)

    shapes = ((rows, steps, 256), (2048, 256), (2048, width), (2048,), (2048,), (1, width), (1,))
    found = calls(traced_on_cuda(run, *(torch.empty(shape) for shape in shapes)), spend_memory=spend)
    assert "_thnn_fused_lstm_cell" not in found
    # Heads of four steps at a time fit into what may be held for nothing.
    apart = 1 + 1 if spend else steps + steps + steps // 4
    assert found.count("bmm") == (steps if spend else 0)
    assert found.count("mm") + found.count("addmm") == apart


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_opened_cell(dtype):
    """The pointwise form of the library's cell equals a cell written by hand; one whose activations are read stays."""

    def open_cell(gates, other, memory, *rows):
        return torch.ops.aten._thnn_fused_lstm_cell(gates, other, memory, *rows)[:2]

    def by_hand(gates, other, memory, *rows):
        total = gates.double() + other.double() + sum(row.double() for row in rows)
        enter, forget, cell, leave = total.chunk(4, 1)
        result = forget.sigmoid() * memory.double() + enter.sigmoid() * cell.tanh()
        return leave.sigmoid() * result.tanh(), result

    shapes = [(3, 4 * WIDTH)] * 2 + [(3, WIDTH)] + [(4 * WIDTH,)] * 2
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    after = run_passes(traced_on_cuda(open_cell, *inputs), PASSES, CompileContext())
    assert not after.graph.find_nodes(op="call_function", target=torch.ops.aten._thnn_fused_lstm_cell.default)
    after.recompile()
    eps = 4 * torch.finfo(dtype).eps
    for got, want in zip(after(*inputs), by_hand(*inputs), strict=True):
        assert got.dtype is dtype
        torch.testing.assert_close(got.double(), want, rtol=eps, atol=eps)

    kept = traced_on_cuda(torch.ops.aten._thnn_fused_lstm_cell.default, *inputs)
    assert "_thnn_fused_lstm_cell" in calls(kept)


def test_a_product_in_parts():
    """Parts of the sum add up to the product, whichever way its right operand lies."""

    def function(x, w, v):
        return (x @ w.t()).relu(), (x @ v).tanh()

    inputs = [torch.randn(8, 512), torch.randn(96, 512), torch.randn(512, 64)]
    after = run_passes(traced_on_cuda(function, *inputs), PASSES, CompileContext())
    assert len(after.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)) == 2
    after.recompile()
    for got, want in zip(after(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def towers(*rows):
    """A shared weight on inputs of several lengths, results added up."""

    def run(w, *inputs):
        return sum((x @ w).tanh().sum(0) for x in inputs)

    return run, [torch.randn(INPUTS, 6), *(torch.randn(n, INPUTS) for n in rows)]


@pytest.mark.parametrize("rows", [(3, 3, 3), (1, 4, 2, 5), (2, 0, 3), (1, 1, 1, 1)])
def test_shared_weights(rows):
    """Inputs of equal and of different lengths."""
    function, inputs = towers(*rows)
    assert products(function, *inputs) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_number_formats(dtype):
    """Each element is rounded once, as it was."""
    function, inputs = towers(4, 4, 4)
    assert products(function, *(x.to(dtype) for x in inputs), tolerance=2e-2) == 1


def test_two_are_left_alone():
    """A call saved does not pay for the copy."""
    function, inputs = towers(3, 3)
    assert products(function, *inputs) == 2


@pytest.mark.parametrize(("view", "copies"), [
    (lambda x: x.unbind(0), 0),
    (lambda x: x[1:4].unbind(0), 0),
    (lambda x: [x[n] for n in range(5)], 0),
    (lambda x: [x[-n] for n in range(5, 0, -1)], 0),
    (lambda x: x.flatten(0, 1).split(3), 0),
    (lambda x: x.flatten(0, 1).split([1, 4, 4, 6]), 0),
    (lambda x: (lambda rows: [rows[n : n + 3] for n in range(0, 15, 3)])(x.flatten(0, 1)), 0),
    (lambda x: [x[n] for n in (4, 2, 0, 1, 3)], 0),
    (lambda x: x.transpose(0, 1).unbind(1), 0),
    (lambda x: x.unbind(1), 1),
    (lambda x: x.unbind(2), 1),
    (lambda x: [x[n] for n in (0, 2, 4)], 1),
    (lambda x: [x.flatten(0, 1)[n : n + 3] for n in range(4)], 1),
])  # fmt: skip
def test_consecutive_parts_are_read_in_place(view, copies):
    """Rows that lie in memory as they are joined need no copy; others one, for all."""

    def run(x, *ws):
        parts = view(x)
        return sum((part @ ws[part.shape[1] % 2]).exp().sum(0) for part in parts)

    inputs = (torch.randn(5, 3, INPUTS) * 0.1, torch.randn(3, 6) if view(torch.zeros(5, 3, INPUTS))[0].shape[1] == 3 else torch.randn(4, 6), torch.randn(INPUTS, 6))  # fmt: skip
    if view(inputs[0])[0].shape[1] == 3:
        inputs = (inputs[0], inputs[1], torch.randn(3, 6))
    found = calls(traced(run, *inputs))
    assert (found.count("cat") + found.count("clone")) == copies
    assert products(run, *inputs) == 1


def test_dependent_products_stay_apart():
    """A chain through one weight; only what is at the same depth is joined."""

    def chain(x, w):
        for _ in range(4):
            x = (x @ w).tanh()
        return x

    def several(w, *inputs):
        once = [(x @ w).tanh() for x in inputs]
        return sum((x @ w).sin() for x in once)

    w = torch.randn(6, 6)
    assert products(chain, torch.randn(3, 6), w) == 4
    assert products(several, w, *(torch.randn(3, 6) for _ in range(4))) == 2


def test_a_second_layer_is_joined_over_all_steps():
    """Its inputs depend on the first layer alone, so that runs ahead."""

    def two(x, w, u, v):
        h = g = x.new_zeros(BATCH, WIDTH)
        for step in x.unbind(0):
            h = (step @ w + h @ u).tanh()
            g = (h @ v + g @ u).tanh()
        return g

    shapes = ((STEPS, BATCH, INPUTS), (INPUTS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH))
    assert products(two, *(torch.randn(shape) * 0.3 for shape in shapes)) == 2 * STEPS + 2


@pytest.mark.parametrize("function", [
    lambda x, w, b: (x[0] @ w).exp() + (x[1] @ (w + 1)).exp() + (x[2] @ (w + 2)).exp(),
    lambda x, w, b: torch.addmm(b, x[0], w).exp() + (x[1] @ w).exp() + torch.addmm(b + 1, x[2], w).exp(),
    lambda x, w, b: sum(torch.addmm(b, part, w, beta=n).exp() for n, part in enumerate(x.unbind(0), 1)),
    lambda x, w, b: sum(torch.addmm(part @ w, part, w).exp() for part in x[:2].unbind(0)),
    lambda x, w, b: (x[0] @ w, x[1] @ w, (x[2] @ w).t()),
])  # fmt: skip
def test_what_differs_or_leaves_is_not_joined(function):
    """Other weights, biases and factors; results that the caller gets must own their memory."""
    inputs = torch.randn(3, 4, INPUTS) * 0.1, torch.randn(INPUTS, 6), torch.randn(6)
    found = calls(traced(function, *inputs))
    assert found.count("mm") + found.count("addmm") >= 3
    products(function, *inputs)


def test_results_that_leave_after_an_operation_own_their_memory():
    """They are not written over parts of the common product."""

    def run(x, w):
        return tuple((part @ w).tanh() for part in x.unbind(0))

    assert products(run, torch.randn(4, 4, INPUTS), torch.randn(INPUTS, 6)) == 1


def test_draws_and_writes_stay_in_place():
    """An operand that comes from a random draw is not computed earlier, and nothing moves over a write."""

    def draws(x, w):
        first = (x @ w).sum()
        second = (torch.rand_like(x) * first.new_ones(()) @ w).sum() + first
        return second + (torch.rand_like(x) @ w).sum()

    found = calls(traced(draws, torch.randn(4, 6), torch.randn(6, 6)))
    assert found.count("mm") == 3

    def writes(x, w, y):
        first = (x @ w).sum()
        y.copy_(first.expand(4, 6))
        return first + (x.sin() @ w).sum() + (x.cos() @ w).sum()

    found = calls(traced(writes, torch.randn(4, 6), torch.randn(6, 6), torch.randn(4, 6)))
    assert found.count("mm") == 3


def test_large_products_stay_apart(monkeypatch):
    """They hide their launch, and joining them would copy."""
    monkeypatch.setattr(processor, "maker", lambda: "GenuineIntel")
    function, inputs = towers(8, 8, 8)
    large = [torch.randn(1024, 1024), *(torch.randn(1024, 1024) for _ in range(3))]
    assert calls(traced(function, *large)).count("mm") == 3
    wide = [torch.randn(4096, 2), *(torch.randn(512, 4096) for _ in range(3))]
    assert calls(traced(function, *wide)).count("mm") == 3
    assert calls(traced(function, *inputs)).count("mm") == 1


def dynamic(function, x, *inputs):
    """The graph of ``function`` where the first size of ``x`` is a symbol and no other is."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    sizes = [DimDynamic.DYNAMIC, *[DimDynamic.STATIC] * (x.dim() - 1)]
    fakes = [mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))]
    fakes += [mode.from_tensor(i, static_shapes=True) for i in inputs]
    with mode:
        return make_fx(function, decomposition_table=TABLE)(*fakes), mode.shape_env


@pytest.mark.parametrize("columns", [8, 3])
def test_rows_of_unknown_number(columns):
    """They are joined and found again, the same program serves other sizes, and nothing is assumed of them."""

    def run(x, w, b):
        return sum(F.linear(part, w, b).tanh().sum(1) for part in x.unbind(1))

    w, b = torch.randn(columns, INPUTS), torch.randn(columns)
    gm, shapes = dynamic(run, torch.randn(4, STEPS, INPUTS), w, b)
    assumed = list(shapes.guards)
    artifact = compile_graph(gm, [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"], {"verify": True})
    assert len(shapes.guards) == len(assumed)
    assert [i.op for i in artifact.program.instructions if isinstance(i, Call)].count("aten::addmm") == 1
    compiled = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    for batch in (4, 2, 17):
        x = torch.randn(batch, STEPS, INPUTS)
        torch.testing.assert_close(compiled(x, w, b)[0], run(x, w, b))


def test_unknown_rows_of_two_kinds_stay_apart():
    """Their results could not be found again."""

    def run(x, w):
        return sum((part @ w).sum() for part in (x[0], x[0].sin(), x[0, 1:], x[0, 1:].sin()))

    gm, _ = dynamic(lambda x, w: run(x.transpose(0, 1), w), torch.randn(6, 2, INPUTS), torch.randn(INPUTS, 4))
    assert calls(gm).count("mm") == 4


def test_all_sizes_unknown():
    """Rows and columns together are not joined."""
    function, inputs = towers(3, 3, 3)
    assert products(function, *inputs, mode="symbolic") == 3


def test_a_deterministic_mode_repeats_its_bits():
    """One program, one answer."""
    function, inputs = towers(3, 3, 3)
    torch.use_deterministic_algorithms(True)
    try:
        assert products(function, *inputs) == 1
    finally:
        torch.use_deterministic_algorithms(False)


def total(a, b):
    """The sum of all products."""
    return functools.reduce(operator.add, (x.t() @ y for x, y in zip(a, b, strict=True)))


SUMS = {
    "chain": (lambda a, b: total(a, b), 1),
    "tree": (lambda a, b: (a[0].t() @ b[0] + a[1].t() @ b[1]) + (a[2].t() @ b[2] + a[3].t() @ b[3]), 1),
    "others": (lambda a, b: a[0].t() @ b[0] + b[0].exp()[:1] * 0 + (a[1].t() @ b[1] + a[2].t() @ b[2]) + a[3].t() @ b[3], 2),
    "term": (lambda a, b: a[0].t() @ b[0] + (a[1].t() @ b[1] + a[2].t() @ b[2]) + a[3].t().sin() @ b[3] + (a[0].t() @ b[0]).exp(), 2),
    "partial": (lambda a, b: (lambda s: (s, s + a[2].t() @ b[2] + a[3].t() @ b[3]))(a[0].t() @ b[0] + a[1].t() @ b[1]), 4),
    "twice": (lambda a, b: (lambda s: s + s)(a[0].t() @ b[0] + a[1].t() @ b[1] + a[2].t() @ b[2]), 1),
    "scaled": (lambda a, b: torch.add(a[0].t() @ b[0], a[1].t() @ b[1], alpha=2) + a[2].t() @ b[2], 3),
    "columns first": (lambda a, b: (lambda c: c + total(a, b) + a[0].t() @ b[1])(torch.ones(6, 5).t() * 2), 1),
    "columns within": (lambda a, b: (lambda c: a[0].t() @ b[1] + (c + a[1].t() @ b[2] + a[2].t() @ b[3]))(torch.ones(6, 5).t() * 2), 1),
    "read": (lambda a, b: (lambda p: (p + a[1].t() @ b[1] + a[2].t() @ b[2], p.exp()))(a[0].t() @ b[0]), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_products(name):
    """Terms of any order; partial sums and products that others read stay."""
    function, count = SUMS[name]

    def run(*values):
        result = function(values[:4], values[4:])
        return result

    inputs = [torch.randn(3, 5) for _ in range(4)] + [torch.randn(3, 6) for _ in range(4)]
    assert products(run, *inputs) == count


@pytest.mark.parametrize(("dtype", "numerics", "count"), [
    (torch.float64, "faithful", 1), (torch.bfloat16, "faithful", 4), (torch.bfloat16, "fast", 1),
])  # fmt: skip
def test_sums_are_rounded_as_asked(dtype, numerics, count):
    """In half precision eager rounds each product."""

    def run(*values):
        return total(values[:4], values[4:])

    inputs = [torch.randn(3, 5).to(dtype) for _ in range(4)] + [torch.randn(3, 6).to(dtype) for _ in range(4)]
    assert products(run, *inputs, numerics=numerics, tolerance=5e-2) == count


def test_long_sums_of_few_elements_stay_apart():
    """Their operands are larger than their products."""

    def run(*values):
        return total(values[:4], values[4:])

    inputs = [torch.randn(50000, 5) for _ in range(4)] + [torch.randn(50000, 6) for _ in range(4)]
    assert calls(traced(run, *inputs)).count("mm") == 4
