"""Each rule of the tables: a graph that it rewrites, graphs like it that it must leave alone, and equal results."""

from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from rule_cases.case import floats
from rule_cases.cells import GRU, SMALL_CELL, Cell
from rule_cases.convolutions import at_points
from rule_cases.table import CASES
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from tracing import traced, traced_on_cuda

from flambeau_inductor.context import CompileContext
from flambeau_inductor.passes.order import CONVOLUTIONS, FOLDING, LIBRARY_CALLS, OPENING_UP, PRODUCTS, TIDYING
from flambeau_inductor.passes.runner import Pass, run_passes
from flambeau_inductor.rewrite.constants import freeze
from flambeau_inductor.rewrite.engine import RuleSet
from flambeau_inductor.rewrite.split_products import count_of
from flambeau_runtime import processor

aten = torch.ops.aten
TABLES = (TIDYING, OPENING_UP, FOLDING, LIBRARY_CALLS, PRODUCTS, CONVOLUTIONS)
RULES = {rule.name: rule for table in TABLES for rule in table.rules}


def graph(case, function, inputs):
    """On fakes of the device that the rule is for, without what nobody reads."""
    if isinstance(function, Cell):
        return function.graph(inputs)
    gm = (traced_on_cuda if case.cuda else traced)(function, *inputs)
    gm.graph.eliminate_dead_code()
    freeze(gm, case.frozen)
    return gm


def applied(name, case, gm):
    """The graph after this rule alone; the graph itself where it does not apply."""
    config = CompileContext().config.with_options(case.options)
    one_thread = mock.patch.object(torch, "get_num_threads", lambda: 1)
    has_kernel = mock.patch("flambeau_runtime.linear.has_kernel", lambda: case.kernel)
    with processor_of(case.slow), rounding(case.rounds), one_thread, has_kernel:
        return run_passes(gm, (Pass(name, RuleSet((RULES[name],)).run),), CompileContext(config))


@contextmanager
def rounding(allowed):
    """Products of float32 may round to TF32, or not."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32" if allowed else "ieee"
    yield
    matmul.fp32_precision = before


def processor_of(slow):
    """A processor on which ATen's products have slow kernels, or one on which they have not; this one for None."""
    if slow is None:
        return nullcontext()
    maker = "AuthenticAMD" if slow else "GenuineIntel"
    return mock.patch.multiple(processor, maker=lambda: maker, features=lambda: frozenset({"avx2", "avx512f"}))


def test_every_rule_has_its_case():
    """And no two rules of all tables have one name."""
    assert CASES.keys() == RULES.keys()
    assert len(RULES) == sum(len(table.rules) for table in TABLES)


@pytest.mark.parametrize("name", CASES)
def test_rewritten_graphs_give_the_same(name):
    case = CASES[name]
    gm = graph(case, case.function, case.inputs)
    after = applied(name, case, gm)
    assert after is not gm
    if case.runs:
        after.recompile()
        got, want = after(*case.inputs), case.function(*case.inputs)
        torch.testing.assert_close(got, want, rtol=case.tolerance, atol=case.tolerance)
        assert got.stride() == want.stride()


@pytest.mark.parametrize(("name", "number"), [(name, n) for name, case in CASES.items() for n in range(len(case.others))])  # fmt: skip
def test_what_only_looks_alike_stays(name, number):
    case = CASES[name]
    gm = graph(case, *case.others[number])
    assert applied(name, case, gm) is gm


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.frozen])
def test_weights_that_are_not_frozen_stay_as_they_are(name):
    case = evolve(CASES[name], frozen=())
    assert applied(name, case, (gm := graph(case, case.function, case.inputs))) is gm


SWITCHES = {
    "masked_attention": {"triton_kernels": False},
    "attention_written_out": {"triton_kernels": False},
    "attention_with_empty_rows": {"cpp_kernels": False},
    "gelu_of_a_linear": {"epilogue_fusion": False},
    "swish_of_a_linear": {"numerics": "faithful"},
    "sum_with_a_convolution": {"epilogue_fusion": False},
    "thnn_fused_lstm_cell": {"triton_kernels": False},
    "thnn_fused_gru_cell": {"triton_kernels": False},
    "bias_of_a_convolution": {"triton_kernels": False},
    "gradients_of_a_depthwise_convolution": {"gemm": "auto"},
    "bias_of_a_product": {"triton_kernels": False},
    "bias_behind_a_product": {"cpp_kernels": False},
    "rounded_product": {"triton_kernels": False},
    "product_in_parts": {"triton_kernels": False},
    "relu_of_a_product": {"epilogue_fusion": False},
    "gelu_of_a_product": {"numerics": "faithful"},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_rules_that_an_option_switches_off(name):
    case = CASES[name]
    gm = graph(case, case.function, case.inputs)
    config = CompileContext().config.with_options(SWITCHES[name])
    assert run_passes(gm, (Pass(name, RuleSet((RULES[name],)).run),), CompileContext(config)) is gm


@pytest.mark.parametrize("state", ["deterministic", "cudnn"])
def test_rules_that_a_setting_of_torch_switches_off(state):
    name = {"deterministic": "gradient_into_a_table", "cudnn": "bias_of_a_convolution"}[state]
    case = CASES[name]
    gm = graph(case, case.function, case.inputs)
    off = torch.backends.cudnn.flags(enabled=False) if state == "cudnn" else nullcontext()
    asked = mock.patch.object(torch, "are_deterministic_algorithms_enabled", return_value=state == "deterministic")
    with off, asked:
        assert applied(name, case, gm) is gm


def test_a_convolution_at_the_points_of_one_row_major_image():
    """The weight is the left operand, whoever made the processor."""

    def function(x, w):
        return at_points(x, w, None)

    inputs = floats((1, 32, 32, 32), (96, 32, 1, 1))
    gm = traced(function, *inputs)
    after = applied("convolution_of_points_on_a_cpu", CASES["convolution_of_points_on_a_cpu"], gm)
    assert aten.mm.default in [node.target for node in after.graph.nodes]
    after.recompile()
    got, want = after(*inputs), function(*inputs)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_an_opened_gru_cell(dtype, biased):
    """The cell that is computed with products, of which the input is the gates themselves and the state gives the other gates."""
    gates = [x.to(dtype) for x in SMALL_CELL[: 5 if biased else 3]]
    name = "thnn_fused_gru_cell"
    after = applied(name, CASES[name], GRU((0,)).graph(gates))
    after.recompile()
    (got,) = after(*gates)
    x, other, state, *biases = (value.double() for value in gates)
    hidden = (torch.linalg.pinv(state) @ other).t()
    want = torch.gru_cell(x, state, torch.eye(15, dtype=torch.float64), hidden, *biases)
    tolerance = 8 * torch.finfo(dtype).eps
    assert got.dtype is dtype
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["relu_of_a_product", "gelu_of_a_product"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_activation_behind_views(name, count):
    """As in a layer of a batch of sequences: the views are those of before, behind the activation."""
    case = CASES[name]

    def layer(b, x, w):
        y = torch.addmm(b, x, w).view(2, 2, 16)
        y = y.view(2, 32) if count == 2 else y
        return y.relu() if name == "relu_of_a_product" else F.gelu(y, approximate="tanh")

    gm = graph(case, layer, case.inputs)
    after = applied(name, case, gm)
    ops = [n.target for n in after.graph.nodes if n.op == "call_function"]
    assert ops == [aten._addmm_activation.default] + [aten.view.default] * count
    after.recompile()
    got, want = after(*case.inputs), layer(*case.inputs)
    torch.testing.assert_close(got, want, rtol=case.tolerance, atol=case.tolerance)
    assert got.stride() == want.stride()


def test_the_gradient_of_a_table_of_unknown_size():
    """It is added into the table, and no guard says how large that is."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x, grad = (mode.from_tensor(t) for t in floats((50, 8), (6, 8)))
    at = mode.from_tensor(torch.zeros(6, dtype=torch.int64), static_shapes=True)

    def function(x, grad, at):
        return x.cos() + aten.embedding_dense_backward(grad, at, x.shape[0], -1, False)

    with mode:
        gm = make_fx(function)(x, grad, at)
    before = list(mode.shape_env.guards)
    name = "gradient_into_a_table"
    after = applied(name, CASES[name], gm)
    assert mode.shape_env.guards == before
    assert after.graph.find_nodes(op="call_function", target=aten.index_put.default)


@pytest.mark.parametrize(("sizes", "turned", "parts"), [
    ((32, 2048, 512), True, 4), ((32, 4096, 1024), True, 8), ((64, 256, 2048), False, 16), ((32, 256, 640), True, 5),
    ((1, 256, 512), True, 1), ((129, 256, 512), True, 1), ((32, 256, 511), True, 1), ((32, 256, 4096), True, 1),
    ((32, 256, 641), True, 1), ((8, 1025, 512), True, 1), ((8, 1025, 512), False, 4), ((8, 1024, 512), True, 4),
    ((12, 1025, 512), True, 4), ((128, 4096, 512), True, 4 if 512 * 4 <= 8 * 132 else 1),
])  # fmt: skip
def test_the_number_of_parts(sizes, turned, parts):
    """It follows the number of terms, and the device has room for all of them."""
    assert count_of(*sizes, turned, 132) == parts
    assert count_of(*sizes, turned, 1) == 1


@pytest.mark.parametrize(
    ("slow", "rows", "frozen", "target"),
    [
        (False, 8, True, "packed_linear"),
        (False, 8, False, "linear"),
        (False, 9, True, "linear"),
        (False, 64, True, "linear"),
        (True, 512, True, "packed_linear"),
        (True, 512, False, "linear"),
    ],
)
def test_who_reads_a_weight_where_our_kernel_multiplies(slow, rows, frozen, target):
    """By rows, what is frozen, and how fast MKL's kernels are; weights whose columns lie side by side are laid out once."""
    case = evolve(CASES["product_by_our_kernel"], slow=slow, frozen=(2,) if frozen else ())
    for turned in (False, True) if frozen else (False,):
        inputs = floats((512,), (rows, 512), (512, 512))
        gm = graph(case, lambda b, x, w: x @ (w if turned else w.t()), inputs)
        after = applied("product_by_our_kernel", case, gm)
        after.recompile()
        assert [n for n in after.graph.nodes if str(n.target) == f"flambeau.{target}.default"]
        want = inputs[1] @ (inputs[2] if turned else inputs[2].t())
        torch.testing.assert_close(after(*inputs), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "frozen", "ours"),
    [
        (128, 2048, 4096, (), True),
        (129, 2048, 4096, (), False),
        (128, 2048, 4096, (2,), False),
        (128, 1024, 8192, (), False),
        (48, 512, 512, (), True),
        (49, 512, 512, (), False),
        (52, 512, 512, (2,), True),
    ],
)
def test_which_rows_our_kernel_multiplies(rows, terms, columns, frozen, ours):
    """Few, those that fill its vectors, and more where a weight is large in both directions and not packed by the library."""
    case = evolve(CASES["product_by_our_kernel"], frozen=frozen)
    inputs = [torch.empty(1), torch.empty(rows, terms), torch.empty(columns, terms)]
    gm = graph(case, lambda b, x, w: x @ w.t(), inputs)
    assert (applied("product_by_our_kernel", case, gm) is not gm) == ours
