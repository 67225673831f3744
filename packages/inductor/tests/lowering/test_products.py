"""Rows that products read begin at multiples of 16 bytes, and float32 products leave their last terms to another kernel."""

from __future__ import annotations

import pytest
import torch
from torch._guards import detect_fake_mode
from tracing import lowered, traced, traced_on_cuda

from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.lowering import products


def meta(*sizes, dtype=torch.float32):
    return torch.empty(*sizes, dtype=dtype, device="meta")


def calls(graph):
    return [operation for operation in graph.operations if isinstance(operation, Extern)]


def gradients(g, w, x):
    scores = (g * 2).exp()
    return scores @ w, scores.t() @ x


OPERANDS = (meta(4096, 5003), meta(5003, 64), meta(4096, 64))


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 5004), (torch.bfloat16, 5008)])
def test_computed_operands_have_aligned_rows(dtype, step):
    graph = lowered(traced_on_cuda(gradients, *(operand.to(dtype) for operand in OPERANDS)))
    left = [call.args[0] for call in calls(graph)]
    assert [int(ref.strides[0]) for ref in left] == [step, 1]
    assert [int(ref.strides[1]) for ref in left] == [1, step]


def keeps_shape(g, w):
    return (g * 2).view(-1, 5003) @ w


def leaves(g, w, x):
    scores = (g * 2).exp()
    return scores @ w, scores


def leaves_as_a_view(g, w, x):
    scores = (g * 2).exp()
    return scores @ w, scores.t()


def test_also_through_views():
    graph = lowered(traced_on_cuda(keeps_shape, meta(4, 1024, 5003), OPERANDS[1]))
    assert int(calls(graph)[0].args[0].strides[0]) == 5004


@pytest.mark.parametrize("function", [leaves, leaves_as_a_view])
def test_what_the_caller_sees_lies_as_in_eager(function):
    graph = lowered(traced_on_cuda(function, *OPERANDS))
    assert int(calls(graph)[0].args[0].strides[0]) == 5003


@torch.library.custom_op("test_products::read", mutates_args=())
def read(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


@read.register_fake
def _(x):
    return x.new_empty(())


def read_by_others(g, w, x):
    scores = (g * 2).exp()
    return scores @ w, read(scores)


def test_what_operators_of_others_read_lies_as_in_eager():
    graph = lowered(traced_on_cuda(read_by_others, *OPERANDS))
    product = next(call for call in calls(graph) if call.op is torch.ops.aten.mm.default)
    assert int(product.args[0].strides[0]) == 5003


@pytest.mark.parametrize("operand", [meta(4096, 5004), meta(16, 5003), meta(1 << 16, 31)])
def test_aligned_small_and_short_rows_stay(operand):
    graph = lowered(traced_on_cuda(lambda g, w: (g * 2) @ w, operand, meta(operand.shape[1], 64)))
    assert int(calls(graph)[0].args[0].strides[0]) == operand.shape[1]


def test_sizes_known_at_run_time_are_asked_nothing(monkeypatch):
    monkeypatch.setattr(products, "_minds", lambda value: True)
    gm = traced(lambda g, w: (g * 2) @ w, torch.randn(1024, 603), torch.randn(603, 8), mode="symbolic")
    shapes = detect_fake_mode([node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]).shape_env
    known = list(shapes.guards)
    assert not calls(lowered(gm))[0].args[0].strides[0].is_int
    assert shapes.guards == known


def test_rows_of_the_cpu_stay():
    inputs = [torch.randn(600, 603), torch.randn(603, 8)]
    graph = lowered(traced(lambda g, w: (g * 2) @ w, *inputs))
    assert int(calls(graph)[0].args[0].strides[0]) == 603


def test_last_terms_are_added_apart(monkeypatch):
    monkeypatch.setattr(products, "_LEAST_WORK", 1)
    monkeypatch.setattr(products, "_minds", lambda value: True)
    x, w = torch.randn(20, 203), torch.randn(203, 24)
    graph = lowered(traced(lambda x, w: torch.mm(x, w).relu(), x, w))
    (call,) = calls(graph)
    assert [int(n) for n in call.args[0].sizes] == [20, 200] and [int(n) for n in call.args[1].sizes] == [200, 24]
    (found,) = run_graph(graph, [x, w])
    torch.testing.assert_close(found, (x @ w).relu())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.mm(x[:, :200], w[:200]),
        lambda x, w: torch.mm(x.double(), w.double()),
        lambda x, w: torch.mm(x.bfloat16(), w.bfloat16()),
    ],
)
def test_products_that_stay_whole(function, monkeypatch):
    monkeypatch.setattr(products, "_LEAST_WORK", 1)
    monkeypatch.setattr(products, "_minds", lambda value: True)
    x, w = torch.randn(20, 203), torch.randn(203, 24)
    terms = [int(call.args[0].sizes[1]) for call in calls(lowered(traced(function, x, w)))]
    assert terms in ([200], [203])
