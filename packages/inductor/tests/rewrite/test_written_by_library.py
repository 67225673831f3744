"""Attention that is written out and that the library has becomes the library's, in inference and training; all other keeps its templates."""

from __future__ import annotations

import math

import pytest
import torch
from tracing import traced

pytest.importorskip("triton")

from attending import (
    TRITON,
    additive,
    capped,
    causal,
    documents,
    einsum,
    empty_rows,
    gradients,
    grouped,
    joint,
    kinds,
    operands,
    plain,
    rewritten,
    sliding,
    slopes,
)
from cudnn_formulas import BACKWARD, FORWARD, Library

from flambeau_inductor import CompileContext
from flambeau_inductor.devices import device_of
from flambeau_inductor.passes.order import PASSES
from flambeau_inductor.passes.runner import run_passes
from flambeau_inductor.rewrite import written_by_library


@pytest.fixture(autouse=True)
def _a_gpus_library(monkeypatch):
    """So that the graphs of a CPU are taken, and problems of a test are large enough."""
    attends = device_of(torch.device("cuda")).libraries.attends
    monkeypatch.setattr(
        written_by_library, "takes_heads", lambda val, context: attends(val.device, val.dtype, val.shape[-1])
    )
    monkeypatch.setattr(written_by_library, "is_faster", lambda case, device, is_written: True)


def projected(q, k, v):
    """Heads lie as projections leave them, and are put side by side again."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    mask = torch.arange(q.shape[2]).unsqueeze(-1) < torch.arange(k.shape[2])
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(mask, -math.inf)
    out = torch.nn.functional.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
    return out.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def scaled_before(q, k, v):
    """Three dimensions, and keys that are transposed in memory."""
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    return torch.softmax(torch.bmm(q * 0.25, k.mT.contiguous()), -1) @ v


SQUARE = operands(2, 2, 70, 16)
TAKEN = {
    "plain": (plain, operands(2, 2, 40, 16, keys=70), False),
    "causal": (causal, SQUARE, True),
    "additive": (additive, operands(2, 2, 70, 16, dtype=torch.bfloat16), True),
    "shared keys": (grouped, operands(2, 4, 40, 16, heads=2), False),
    "einsum": (einsum, SQUARE, False),
    "projected": (projected, SQUARE, True),
    "scaled before": (scaled_before, SQUARE, False),
}


def calls(gm):
    return [node for node in gm.graph.nodes if node.target in (FORWARD, BACKWARD)]


def near(found, wanted):
    """But for the roundings of operands and of the program's other steps."""
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert (got.double() - want).norm() < 2e-3 * want.norm()


@pytest.mark.parametrize("name", TAKEN)
def test_training(name):
    function, inputs, is_causal = TAKEN[name]
    tangent = torch.randn(function(*inputs).shape).to(inputs[0].dtype)
    gm = rewritten(joint(function, *inputs, tangent), numerics="fast")
    forward, backward = calls(gm)
    assert (forward.target, backward.target) == (FORWARD, BACKWARD)
    assert forward.args[6] is backward.args[14] is is_causal
    assert forward.kwargs["scale"] == pytest.approx(backward.kwargs["scale"])
    assert not gm.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)
    near(Library(gm).run(*inputs, tangent), gradients(function, inputs, tangent, torch.float64))


def passed(function, inputs, numerics="fast"):
    options = {**TRITON, "numerics": numerics}
    return run_passes(traced(function, *inputs), PASSES, CompileContext(CompileContext().config.with_options(options)))


@pytest.mark.parametrize("name", TAKEN)
def test_inference(name):
    function, inputs, _ = TAKEN[name]
    gm = passed(function, inputs)
    assert [call.target for call in calls(gm)] == [FORWARD]
    near([Library(gm).run(*inputs)], [function(*(x.double() for x in inputs))])


LEFT = {
    "a window": (sliding, SQUARE),
    "documents": (documents, SQUARE),
    "slopes": (slopes, SQUARE),
    "a soft cap": (capped, SQUARE),
    "a mask that is added and too small": (additive, SQUARE),
    "empty rows": (empty_rows, SQUARE),
    "a causal mask of other lengths": (causal, operands(2, 2, 40, 16, keys=70)),
    "float32": (causal, operands(2, 2, 70, 16, dtype=torch.float32)),
    "a width without a kernel": (causal, operands(2, 2, 70, 12)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_the_library_does_not_have_is_left(name):
    function, inputs = LEFT[name]
    tangent = torch.randn(function(*inputs).shape).to(inputs[0].dtype)
    gm = rewritten(joint(function, *inputs, tangent), numerics="fast")
    assert not calls(gm)
    assert not calls(passed(function, inputs))
    assert name == "empty rows" or kinds(gm), "templates take it"


def test_roundings_stay_unless_they_may_go():
    inputs = [*SQUARE, SQUARE[0]]
    assert not calls(rewritten(joint(causal, *inputs)))
    assert not calls(passed(causal, SQUARE, "faithful"))
