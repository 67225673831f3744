"""Attention with score and mask functions equals eager's formulas, and no product of both lengths is ever held."""

from __future__ import annotations

import math

import pytest
import torch
from nesting import Outer, check

from flambeau_inductor.errors import UnsupportedGraphError
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Alloc, Call

hop = torch.ops.higher_order


def plain(s, b, h, m, n):
    return s


def sloped(s, b, h, m, n):
    return s * 2 + (m - n) * 0.01 * (h + 1)


def causal(b, h, m, n):
    return m >= n


def near(b, h, m, n):
    return (m - n).abs() < 50


def all_pairs(b, h, m, n):
    return m >= 0


def none_of_the_first(b, h, m, n):
    return m > 3


def tensors(batch, heads, few, length, keys, size=16, values=8, shared=False, dtype=torch.float32):
    torch.manual_seed(length)
    rows = 1 if shared else batch
    shapes = [(batch, heads, length, size), (rows, few, keys, size), (rows, few, keys, values)]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


class Case:
    """One attention: its graph and eager's results."""

    def __init__(self, inputs, score, mask, symbolic=False, buffers=()):
        self.o, self.inputs, self.buffers = Outer(symbolic), [*inputs, *buffers], list(buffers)
        self.nodes = [self.o.input(x) for x in self.inputs]
        with self.o.mode:
            self.numbers = [torch.zeros((), dtype=inputs[0].dtype)] + [
                torch.zeros((), dtype=torch.int32) for _ in range(4)
            ]
        self.read = self.nodes[3:]
        self.score = self.o.body(score, *self.numbers, *self.read)
        self.mask = self.o.body(mask, *self.numbers[1:])
        self.scale = 1 / math.sqrt(inputs[0].shape[-1])

    def table(self, mask):
        """A block mask of which only the function counts."""
        return (1, 1, *(None,) * 11, 128, 128, mask)

    def forward(self, results=3):
        """The graph of so many results, and what eager gives."""
        score, mask = self.o.attribute(self.score), self.o.attribute(self.mask)
        want = hop.flex_attention(
            *self.inputs[:3], self.score, self.table(self.mask), self.scale, {}, tuple(self.buffers), ()
        )
        with self.o.mode:
            vals = hop.flex_attention(
                *(n.meta["val"] for n in self.nodes[:3]), self.score, self.table(self.mask), self.scale, {}, (), ()
            )
        args = (*self.nodes[:3], score, self.table(mask), self.scale, {}, tuple(self.read), ())
        return self.o.finish(*self.o.parts(self.o.call(hop.flex_attention, *args, val=vals))[:results]), want


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    ("sizes", "score", "mask"),
    [
        ((2, 4, 4, 200, 200), plain, causal),
        ((2, 4, 2, 130, 300), sloped, near),
        ((1, 2, 1, 7, 40), plain, none_of_the_first),
        ((1, 2, 2, 5, 256), sloped, all_pairs),
    ],
)
def test_forward(sizes, score, mask, symbolic):
    case = Case(tensors(*sizes), score, mask, symbolic)
    gm, want = case.forward()
    check(gm, case.inputs, want, only_rewritten=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_forward_of_other_types(dtype):
    """Computed in float32 (float64 in double precision), rounded at the end; the sums are float32 as tracing promises."""
    case = Case(tensors(1, 2, 2, 150, 150, dtype=dtype), plain, causal)
    gm, _ = case.forward()
    wide = torch.promote_types(dtype, torch.float32)
    _, (out, *sums) = Case([x.to(wide) for x in case.inputs], plain, causal).forward()
    check(gm, case.inputs, [out.to(dtype), *(x.float() for x in sums)], only_rewritten=True)


def test_keys_that_a_batch_shares():
    case = Case(tensors(3, 2, 2, 20, 140, shared=True), plain, causal)
    gm, want = case.forward()
    check(gm, case.inputs, want, only_rewritten=True)


def test_a_score_function_that_reads_a_table():
    """Keys that do not exist look up nothing outside of it."""
    case = Case(tensors(2, 2, 2, 30, 150), lambda s, b, h, m, n, t: s + torch.ops.aten.index.Tensor(t, [h, n]), causal,
                buffers=[torch.randn(2, 150)])  # fmt: skip
    gm, want = case.forward()
    check(gm, case.inputs, want, only_rewritten=True)


def largest(program):
    """The most elements of one tensor that a program makes."""
    found = [math.prod(i.sizes) for i in program.instructions if isinstance(i, Alloc)]
    for instruction in program.instructions:
        assert not (isinstance(instruction, Call) and "softmax" in instruction.op)
        found += [largest(nested) for nested in getattr(instruction, "programs", ())]
    return max(found, default=0)


def test_no_tensor_has_both_lengths():
    length = 1024
    case = Case(tensors(1, 1, 1, length, length), plain, causal)
    gm, want = case.forward()
    assert largest(check(gm, case.inputs, want, only_rewritten=True).program) <= length * 128


def curved(s, b, h, m, n):
    return s.exp()


@pytest.mark.parametrize(("score", "mask", "kernel"), [(sloped, none_of_the_first, True), (curved, causal, False)])
def test_a_result_alone_is_one_kernel_in_cpp(score, mask, kernel):
    """Nobody asks for sums, and the functions are short: attention in float32 without a matrix of scores."""
    case = Case(tensors(2, 4, 2, 40, 300), score, mask)
    gm, want = case.forward(results=1)
    artifact = compile_graph(gm, case.inputs)
    (got,) = load(artifact)(*case.inputs)
    torch.testing.assert_close(got, want[0], rtol=1e-5, atol=1e-5)
    assert any("attention" in found.name for found in artifact.kernels) is kernel
    assert (largest(artifact.program) == got.numel()) is kernel


def backward(case, joint):
    o, nodes = case.o, case.nodes
    q, k, v = case.inputs[:3]
    out, lse, _ = hop.flex_attention(q, k, v, case.score, case.table(case.mask), case.scale, {}, (), ())
    grad, grad_lse = torch.randn_like(out), torch.randn_like(lse)
    more = [o.input(x) for x in (out, lse, grad, grad_lse)]
    joint_graph = o.body(joint, *case.numbers, case.numbers[0])
    given = (q, k, v, out, lse, grad, grad_lse)
    want = hop.flex_attention_backward(*given, case.score, joint_graph, case.table(case.mask), case.scale, {}, (), ())
    score, mask, both = map(o.attribute, (case.score, case.mask, joint_graph))
    args = (*nodes, *more, score, both, case.table(mask), case.scale, {}, (), ())
    vals = (*(node.meta["val"] for node in nodes), ())
    node = o.call(hop.flex_attention_backward, *args, val=vals)
    return o.finish(*o.parts(node)[:3]), given, want[:3]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    ("sizes", "shared", "mask"),
    [
        ((2, 4, 2, 130, 300), False, near),
        ((2, 2, 2, 20, 140), True, causal),
        ((1, 2, 1, 7, 40), False, none_of_the_first),
    ],
)
def test_backward(sizes, shared, mask, symbolic):
    case = Case(tensors(*sizes, shared=shared), sloped, mask, symbolic)
    gm, given, want = backward(case, lambda s, b, h, m, n, g: [g * 2, None, None, None, None])
    check(gm, given, want, only_rewritten=True)


def test_gradients_of_what_a_score_function_reads_are_refused():
    case = Case(tensors(1, 1, 1, 8, 8), plain, causal)
    gm, given, _ = backward(case, lambda s, b, h, m, n, g: [g, None, None, None, None])
    (node,) = gm.graph.find_nodes(op="call_function", target=hop.flex_attention_backward)
    joint = gm.get_submodule(node.args[8].target)
    output = joint.graph.output_node()
    output.args = ([*output.args[0], output.args[0][0]],)
    with pytest.raises(UnsupportedGraphError, match="gradient of what its score function reads"):
        check(gm, given, [], only_rewritten=True)
