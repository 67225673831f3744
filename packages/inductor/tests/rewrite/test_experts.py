"""A loop over experts becomes grouped products of all rows with eager's sums; what is not quite one stays a loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from tracing import TABLE

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_graph
from flambeau_inductor.rewrite.experts import experts
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Launch

TRITON = {"cpu_backend": "triton"}


def traced(function, *inputs, is_open=False):
    """The graph of a function, some of whose results have sizes that only a call knows, and its fake inputs; ``is_open``: nor is the first size of the first input."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    kinds = [DimDynamic.DYNAMIC if is_open else DimDynamic.STATIC, *[DimDynamic.STATIC] * (inputs[0].dim() - 1)]
    first = mode.from_tensor(inputs[0], symbolic_context=StatelessSymbolicContext(kinds))
    fakes = [first, *(mode.from_tensor(tensor, static_shapes=True) for tensor in inputs[1:])]
    with mode:
        return make_fx(function, decomposition_table=TABLE, _allow_non_fake_inputs=True)(*fakes), fakes


def rewritten(function, *inputs, **options):
    """The graph after the pass, and whether it changed anything."""
    gm, _ = traced(function, *inputs)
    changed = experts(gm, CompileContext(Config().with_options({**TRITON, **options})))
    gm.graph.lint()
    gm.recompile()
    return gm, changed


def rounds(gm):
    """How many rounds look for their rows."""
    return len(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.nonzero.default))


def r(*sizes, dtype=torch.bfloat16):
    return (torch.randn(*sizes) / sizes[-1] ** 0.5).to(dtype)


def choose(x, gate, ranks=2):
    return torch.topk(torch.softmax((x @ gate).float(), -1), ranks, -1)


def stacked(x, gate, up, down):
    """Gated experts whose matrices are parts of two tensors."""
    weights, chosen = choose(x, gate)
    weights, result = weights.to(x.dtype), torch.zeros_like(x)
    for number in range(up.shape[0]):
        token, rank = torch.where(chosen == number)
        first, second = F.linear(x[token], up[number]).chunk(2, -1)
        rows = F.linear(F.silu(first) * second, down[number]) * weights[token, rank, None]
        result = result.index_add(0, token, rows)
    return result


def one_hot(x, gate, *matrices):
    """Experts that are found by a table of ones, with matrices of their own, three of them."""
    weights, chosen = choose(x, gate, ranks=3)
    count = len(matrices) // 3
    table = F.one_hot(chosen, count).permute(2, 1, 0)
    result = torch.zeros(x.shape, dtype=x.dtype)
    for number in range(count):
        rank, token = torch.where(table[number])
        first, second, down = matrices[number::count]
        rows = x[None, token].reshape(-1, x.shape[1])
        rows = (F.silu(rows @ first.t()) * (rows @ second.t())) @ down.t()
        result = result.index_add(0, token, (rows * weights[token, rank, None]).to(x.dtype))
    return x + result


def biased(x, gate, *parts):
    """Experts of two layers with biases."""
    weights, chosen = choose(x, gate)
    result = torch.zeros_like(x)
    for number, (first, bias, second, other) in enumerate(zip(*[iter(parts)] * 4, strict=True)):
        token, rank = torch.where(chosen == number)
        rows = F.linear(F.gelu(F.linear(x[token], first, bias)), second, other)
        result = result.index_add(0, token, rows * weights[token, rank, None].to(x.dtype))
    return result


def _inputs(dtype, experts=4):
    return r(19, 32, dtype=dtype), r(32, experts, dtype=dtype)


LOOPS = {
    "stacked": (stacked, lambda d: (*_inputs(d), r(4, 48, 32, dtype=d), r(4, 32, 24, dtype=d))),
    "one hot": (one_hot, lambda d: (*_inputs(d), *(r(24, 32, dtype=d) for _ in range(8)), *(r(32, 24, dtype=d) for _ in range(4)))),
    "biased": (biased, lambda d: (*_inputs(d), *[r(*s, dtype=d) for _ in range(4) for s in ((40, 32), (40,), (32, 40), (32,))])),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOOPS)
def test_rounds_are_done_at_once(name, dtype):
    function, make = LOOPS[name]
    inputs = make(dtype)
    gm, changed = rewritten(function, *inputs)
    assert changed and not rounds(gm)
    torch.testing.assert_close(gm(*inputs), function(*inputs), rtol=1e-2, atol=1e-2)


def test_the_program_has_two_grouped_products_and_waits_for_nothing():
    function, make = LOOPS["stacked"]
    inputs = make(torch.bfloat16)
    gm, fakes = traced(function, *inputs)
    artifact = compile_graph(gm, fakes, TRITON)
    calls = [step.op for step in artifact.program.instructions if isinstance(step, Call)]
    launches = [step for step in artifact.program.instructions if isinstance(step, Launch)]
    assert sorted(calls) == ["aten::mm", "aten::topk"] and len(launches) <= 13
    assert len([kernel for kernel in artifact.kernels if "gemm_grouped_products" in kernel.name]) == 2
    torch.testing.assert_close(load(artifact)(*inputs)[0], function(*inputs), rtol=1e-2, atol=1e-2)


def test_any_number_of_tokens():
    function, make = LOOPS["one hot"]
    inputs = make(torch.bfloat16)
    gm, fakes = traced(function, *inputs, is_open=True)
    artifact = compile_graph(gm, fakes, TRITON)
    calls = [step.op for step in artifact.program.instructions if isinstance(step, Call)]
    assert sorted(calls) == ["aten::mm", "aten::topk"]
    program = load(artifact)
    for tokens in (7, 40):
        inputs = (r(tokens, 32), *inputs[1:])
        torch.testing.assert_close(program(*inputs)[0], function(*inputs), rtol=1e-2, atol=1e-2)


def test_an_expert_without_tokens_and_one_with_all():
    x, gate, up, down = LOOPS["stacked"][1](torch.bfloat16)
    gate[:, 0], gate[:, 1], gate[:, 2], gate[:, 3] = 1, 0, -1, 0
    inputs = (x.abs(), gate, up, down)
    gm, _ = rewritten(stacked, *inputs)
    torch.testing.assert_close(gm(*inputs), stacked(*inputs), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_token_s_results_are_added_in_the_order_of_rounds(ranks):
    """In bfloat16 256 + 1 + 1 is 256, and 1 + 1 + 256 is 258."""

    def function(x, scores, matrices):
        _, chosen = torch.topk(scores, ranks, -1)
        result = x * 0
        for number in range(4):
            token, _rank = torch.where(chosen == number)
            result = result.index_add(0, token, x[token] @ matrices[number])
        return result

    scale = torch.tensor([1.0, 256.0, 1.0, 3.0]).view(4, 1, 1)
    inputs = torch.ones(24, 16).bfloat16(), torch.randn(24, 4), (torch.eye(16) * scale).bfloat16()
    gm, changed = rewritten(function, *inputs)
    assert changed and torch.equal(gm(*inputs), function(*inputs))


def near(number_of=lambda place: place, count=4, source="topk", body=None, after=None, alpha=1, longer=0):
    """A loop like those above, but for something."""

    def function(x, scores, matrices):
        chosen = torch.topk(scores, 2, -1)[1] if source == "topk" else scores[:, :2].long() % count
        result, others = torch.zeros(x.shape[0] + longer, x.shape[1], dtype=x.dtype), []
        for place in range(count):
            token, rank = torch.where(chosen == number_of(place))
            rows = x[token] @ matrices[place]
            rows = rows if body is None else body(rows, place, result, token)
            result = torch.index_add(result, 0, token, rows, alpha=alpha)
            others += [] if after is None else [after(rows, result)]
        return (result, *others)

    return function


NEAR = {
    "choices that may be alike": near(source="given"),
    "numbers in another order": near(number_of=lambda place: 3 - place),
    "numbers that are not among all": near(count=3),
    "rows that look at others": near(body=lambda rows, *_: rows - rows.sum(0)),
    "rows that are softmaxed over each other": near(body=lambda rows, *_: rows.softmax(0)),
    "rows in reverse": near(body=lambda rows, *_: rows.flip(0)),
    "rounds that differ": near(body=lambda rows, place, *_: rows.sin() if place == 2 else rows.cos()),
    "numbers that differ": near(body=lambda rows, place, *_: rows * (place + 1)),
    "rows of random numbers": near(body=lambda rows, *_: rows * torch.bernoulli(rows.sigmoid())),
    "a round that reads the result": near(body=lambda rows, place, result, token: rows + result[token]),
    "rows that are read elsewhere": near(after=lambda rows, result: rows.sum()),
    "results between rounds": near(after=lambda rows, result: result),
    "rows that count twice": near(alpha=2),
    "a result of more rows": near(longer=3),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_only_looks_like_a_loop_over_experts_stays(name):
    inputs = r(12, 16), torch.randn(12, 4), r(4, 16, 16)
    assert rewritten(near(), *inputs)[1]
    before, _ = traced(NEAR[name], *inputs)
    gm, changed = rewritten(NEAR[name], *inputs)
    assert not changed and rounds(gm) >= 3 and str(gm.graph) == str(before.graph)


def test_options_and_devices_without_grouped_products_keep_the_loop():
    """The library multiplies groups on a CPU where their matrices are one tensor, and no bias is rounded with the sums."""
    options = ({"gemm": "library"}, {"cpu_backend": "cpp"})
    for name, is_changed in (("stacked", True), ("one hot", False), ("biased", False)):
        function, make = LOOPS[name]
        assert {rewritten(function, *make(torch.bfloat16), **each)[1] for each in options} == {is_changed}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_library_s_grouped_products(dtype):
    """Each sum is eager's, in the order of the rounds."""
    function, make = LOOPS["stacked"]
    inputs = make(dtype)
    gm, fakes = traced(function, *inputs)
    artifact = compile_graph(gm, fakes, {"cpu_backend": "cpp"})
    calls = [step.op for step in artifact.program.instructions if isinstance(step, Call)]
    assert calls.count("aten::_grouped_mm") == 2 and "aten::nonzero" not in calls
    torch.testing.assert_close(load(artifact)(*inputs)[0], function(*inputs))


def test_float32_is_multiplied_where_products_may_round():
    function, make = LOOPS["one hot"]
    assert not rewritten(function, *make(torch.float32))[1]
