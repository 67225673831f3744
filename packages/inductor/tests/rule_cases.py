"""Graphs for the rules of `rewrite/`: for each rule one that it rewrites, and others like it that it must leave alone.

In: nothing. Out: `CASES`, by the name of the rule. `rewrite/test_rules.py` runs them.
"""

import math
from functools import partial
from operator import getitem

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

aten = torch.ops.aten


@frozen
class Case:
    """``function`` of ``inputs`` is rewritten; it and each of ``others``, given these, is like it and is not."""

    function: object
    inputs: list
    others: tuple = ()
    options: dict = {}
    tolerance: float = 0.0
    cuda: bool = True
    #: The op runs on CUDA alone: it is compared elsewhere.
    runs: bool = True
    #: Places of the inputs that are frozen.
    frozen: tuple = ()
    #: Whether products of float32 may round to TF32.
    rounds: bool = False
    #: Whether ATen's products of float32 have slow kernels on the processor; where it is None, those of this one.
    slow: bool | None = None
    #: Whether there is a kernel of our own for products of float32.
    kernel: bool = False


def floats(*shapes, dtype=torch.float32):
    """Tensors of these shapes."""
    return [(torch.randn(shape) * 0.3).to(dtype) for shape in shapes]


def integers(rows, terms, columns, dtype=torch.bfloat16):
    """An operand and a weight of 8 bits."""
    return [*floats((rows, terms), dtype=dtype), torch.randint(-128, 128, (columns, terms), dtype=torch.int8)]


def attention(kind, copied):
    """A call of a library's attention in which the operand ``copied`` is a copy of a transposed view."""

    def function(*operands, swapped=True):
        names = ("query", "key", "value")
        views = {
            n: aten.transpose(x, 1, 2) if n == copied and swapped else x for n, x in zip(names, operands, strict=True)
        }
        views[copied] = aten.clone(views[copied], memory_format=torch.contiguous_format)
        more = {"efficient": (None, False), "flash": (), "cudnn": (None, False)}[kind]
        return getattr(aten, f"_scaled_dot_product_{kind}_attention")(*views.values(), *more)[0]

    return function


def attention_case(kind, copied):
    """Heads of 16 are read where they lie, heads of 12 are not aligned."""

    def inputs(width):
        shapes = {n: (2, 8, 4, width) for n in ("query", "key", "value")}
        return [torch.randn((2, 4, 8, width) if n == copied else shape).half() for n, shape in shapes.items()]

    others = [(attention(kind, copied), inputs(12))]
    if kind != "efficient":
        others.append(
            (attention(kind, "query"), [x.half() for x in floats((2, 4, 8, 16), (2, 8, 4, 16), (2, 8, 4, 16))])
        )
    return Case(attention(kind, copied), inputs(16), tuple(others), runs=False)


@frozen
class Cell:
    """A call of a cell's op of which ``read`` are read; ``widths`` of its results, as multiples of the state's."""

    op: object
    widths: tuple
    read: tuple

    def graph(self, inputs):
        """By hand: the op of a GRU has no fake results where there is no GPU."""
        graph, mode = fx.Graph(), FakeTensorMode()
        places = [graph.placeholder(f"x{n}") for n in range(len(inputs))]
        with mode:
            for place, t in zip(places, inputs, strict=True):
                place.meta["val"] = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda")
            rows, width = places[2].meta["val"].shape
            vals = tuple(places[2].meta["val"].new_empty(rows, n * width) for n in self.widths)
        node = graph.call_function(self.op, tuple(places))
        node.meta["val"] = vals
        parts = [graph.call_function(getitem, (node, n)) for n in self.read]
        for n, part in zip(self.read, parts, strict=True):
            part.meta["val"] = vals[n]
        graph.output(tuple(parts))
        return fx.GraphModule({}, graph)


def written_attention(q, k, v):
    """A softmax over keys, of products in float16."""
    return torch.softmax(q @ k.mT * 0.3, -1) @ v


def attention_with_empty_rows(lowest, dim=2, other=0.0):
    """As torch takes the library's apart."""

    def function(q, k, v):
        scores = q @ k.mT
        shares = torch.softmax(scores, 2)
        return torch.where((scores == lowest).all(dim, keepdim=True), torch.full_like(shares, other), shares) @ v

    return function


def masked_attention(dropped=0.0):
    """Of the library, under a mask that follows from positions, and what is added to it."""

    def function(q, k, v, *bias):
        n = torch.arange(q.shape[2], device=q.device)
        mask = sum(bias, torch.where(n <= n.unsqueeze(-1), 0.0, -torch.inf).to(q.dtype)).expand(1, 2, -1, -1)
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, False, dropped)[0]

    return function


LIBRARY_HEADS = [x.half() for x in floats((1, 2, 32, 16), (1, 2, 32, 16), (1, 2, 32, 16))]
HEADS = [x.half() for x in floats((2, 32, 16), (2, 32, 16), (2, 32, 16))]
SINGLE_HEADS = floats((2, 32, 16), (2, 32, 16), (2, 32, 16))

LSTM = partial(Cell, aten._thnn_fused_lstm_cell.default, (1, 1, 4))
GRU = partial(Cell, aten._thnn_fused_gru_cell.default, (1, 5))


def embedded(grad, indices, padding=-1, scaled=False):
    """The gradient of an embedding's table."""
    return aten.embedding_dense_backward(grad, indices, 50, padding, scaled)


def looked_up(x, grad, indices):
    """Of a table that something else has a gradient for."""
    return x.cos() + embedded(grad, indices)


ROWS = [*floats((50, 8), (3, 4, 8)), torch.randint(0, 9, (3, 4))]
LINEAR = floats((16,), (4, 8), (8, 16))
LARGE = floats((512,), (1024, 128), (128, 512))
CELL = floats((3, 20), (3, 20), (3, 5), (20,), (20,))
SMALL_CELL = floats((3, 15), (3, 15), (3, 5), (15,), (15,))

IMAGES = [*(x.to(memory_format=torch.channels_last) for x in floats((2, 32, 32, 32), (48, 32, 3, 3))), *floats((48,))]
CHANNELS = floats((2, 8, 6, 6), (4, 8, 3, 3), (4,), (4, 1, 1))
TRANSPOSED = floats((2, 8, 6, 6), (8, 4, 3, 3), (4,), (4, 1, 1))
WIDE = floats((512,), (16, 256), (256, 512))
ROWS_OF_WEIGHT = floats((512,), (16, 512), (512, 512))
HALVES = [x.bfloat16() for x in floats((96,), (64, 128), (128, 96))]


def convolved(x, w, b):
    return aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def depthwise_gradients(mask=(True, True, True), dilation=1, groups=6):
    """A function of gradient, image and weight."""
    moves = ([1, 1], [1, 1], [dilation] * 2, False, [0, 0], groups)

    def function(grad, x, w):
        found = aten.convolution_backward(grad, x, w, [6], *moves, list(mask))
        return torch.cat([part.flatten() for part in found if part is not None])

    return function


def at_points(x, w, b, stride=1, groups=1):
    return aten.convolution(x, w, b, [stride, stride], [0, 0], [1, 1], False, [0, 0], groups)


def packed_convolution(x, w, b, *behind, padding=1):
    return torch.ops.mkldnn._convolution_pointwise(x, w, b, [padding, padding], [1, 1], [1, 1], 1, *behind)


def linear(b, x, w):
    return torch.ops.mkldnn._linear_pointwise(x, w.t().contiguous(), b, "none", [], "")


def activated(function):
    """A case of an activation behind the library's linear layer, in one rounding."""
    other = (lambda b, x, w: (lambda y: function(y) + y)(linear(b, x, w)), HALVES)
    return Case(
        lambda b, x, w: function(linear(b, x, w)), HALVES, (other,), {"numerics": "fast"}, tolerance=2e-2, cuda=False
    )


GRADIENTS = floats((2, 6, 7, 7), (2, 6, 7, 7), (6, 1, 3, 3))
SUMMED = [*IMAGES, (torch.randn(2, 48, 32, 32) * 0.3).to(memory_format=torch.channels_last)]
NONE = ("none", [], "")
OF_CPUS = {
    "scale_of_a_convolution": Case(
        lambda x, w, b, s: s * convolved(x, w, b),
        CHANNELS,
        (
            (lambda x, w, b, s: (lambda y: s * y + y)(convolved(x, w, b)), CHANNELS),
            (lambda x, w, b, s: s * convolved(x, w + x[0, 0, 0, 0], b), CHANNELS),
            (lambda x, w, b, s: s.squeeze() * convolved(x[..., :4], w, b), CHANNELS),
            (lambda x, w, b, s: s / convolved(x, w, b), CHANNELS),
            (lambda x, w, b, s: convolved(x, w, b) * s, [x.bfloat16() for x in CHANNELS]),
            (lambda x, w, b, s: s * aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], True, [0, 0], 1), TRANSPOSED),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(1, 2, 3),
    ),
    "shift_of_a_convolution": Case(
        lambda x, w, b, s: convolved(x, w, None) - s,
        CHANNELS,
        (
            (lambda x, w, b, s: s - convolved(x, w, b), CHANNELS),
            (lambda x, w, b, s: torch.add(convolved(x, w, b), s, alpha=2), CHANNELS),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(1, 2, 3),
    ),
    "scale_of_a_biased_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).view(2, 2, 16) * b,
        LINEAR,
        (
            (lambda b, x, w: torch.addmm(b, x, w).view(4, 4, 4) * b[:4], LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w).t() * b[:4], LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2) * b, LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w) * (b + x[0, 0]), LINEAR),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(0, 2),
    ),
    "scale_of_a_product": Case(
        lambda b, x, w: (x @ w) / (b + 3),
        LINEAR,
        ((lambda b, x, w: (b + 3) / (x @ w), LINEAR), (lambda b, x, w: (x @ w) * b[:1], LINEAR)),
        tolerance=1e-5,
        cuda=False,
        frozen=(0, 2),
    ),
    "biased_product_by_our_kernel": Case(
        lambda b, x, w: torch.addmm(b, x, w.t()),
        ROWS_OF_WEIGHT,
        (
            (lambda b, x, w: torch.addmm(b, x[:4], w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, torch.cat([x] * 5), w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b[:31], x, w[:31].t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x[:, :511], w[:, :511].t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x, w.t(), alpha=2), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b.expand(len(x), len(b)), x, w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x.t().contiguous().t(), w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x, w.t().contiguous()), ROWS_OF_WEIGHT),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=False,
        kernel=True,
    ),
    "product_by_our_kernel": Case(
        lambda b, x, w: x @ w.exp().t(),
        ROWS_OF_WEIGHT,
        ((lambda b, x, w: x.double() @ w.double().t(), ROWS_OF_WEIGHT),),
        tolerance=1e-5,
        cuda=False,
        slow=False,
        kernel=True,
    ),
    "biased_product_with_a_packed_weight": Case(
        lambda b, x, w: torch.addmm(b, x, w),
        WIDE,
        (
            (lambda b, x, w: torch.addmm(b, x[:3], w), WIDE),
            (lambda b, x, w: torch.addmm(b[:255], x, w[:, :255]), WIDE),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2), WIDE),
            (lambda b, x, w: torch.addmm(b, x, w * x[0, 0]), WIDE),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(0, 2),
        slow=False,
    ),
    "product_with_a_packed_weight": Case(
        lambda b, x, w: x @ w.exp(),
        WIDE,
        ((lambda b, x, w: x.double() @ w.double(), WIDE), (lambda b, x, w: x @ (w + b.sum()), WIDE)),
        tolerance=1e-5,
        cuda=False,
        frozen=(2,),
        slow=False,
    ),
    "biased_product_by_onednn": Case(
        lambda b, x, w: torch.addmm(b, x, w),
        LARGE,
        (
            (lambda b, x, w: torch.addmm(b, x[:3], w), LARGE),
            (lambda b, x, w: torch.addmm(b[:64], x[:128], w[:, :64]), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w, beta=2), LARGE),
            (lambda b, x, w: torch.addmm(b.expand(1024, 512), x, w), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w), [x.double() for x in LARGE]),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=True,
    ),
    "product_by_onednn": Case(
        lambda b, x, w: x @ w.t().contiguous().t(),
        LARGE,
        ((lambda b, x, w: x[:127].t().contiguous().t() @ w, LARGE),),
        tolerance=1e-5,
        cuda=False,
        slow=True,
    ),
    "biased_product_of_bfloat16": Case(
        lambda b, x, w: torch.addmm(b, x, w.t().contiguous().t()),
        HALVES,
        (
            (lambda b, x, w: torch.addmm(b, x, w), HALVES),
            (lambda b, x, w: torch.addmm(b[:4], x[:4], w[:, :4].t().contiguous().t()), HALVES),
        ),
        tolerance=2e-2,
        cuda=False,
    ),
    "product_of_bfloat16": Case(
        lambda b, x, w: x @ w.t().contiguous().t(),
        HALVES,
        ((lambda b, x, w: x.t().contiguous().t() @ w.t().contiguous().t(), HALVES),),
        tolerance=2e-2,
        cuda=False,
    ),
    "biased_product_with_a_turned_weight": Case(
        lambda b, x, w: torch.addmm(b, x, w.t()),
        floats((64,), (16, 64), (64, 64)),
        (
            (lambda b, x, w: torch.addmm(b, x, w), floats((64,), (16, 64), (64, 64))),
            (lambda b, x, w: torch.addmm(b, x, w.t()), floats((256,), (64, 256), (256, 256))),
            # One result a row has nothing beside it.
            (lambda b, x, w: torch.addmm(b, x, w.t()), floats((1,), (16, 64), (1, 64))),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(2,),
    ),
    "product_with_a_turned_weight": Case(
        lambda x, w: torch.mm(x, w.t()),
        floats((16, 64), (64, 64)),
        ((lambda x, w: torch.mm(x, (w * x.sum()).t()), floats((16, 64), (64, 64))),),
        tolerance=1e-5,
        cuda=False,
        frozen=(1,),
    ),
    "product_with_a_weight_of_eight_bits": Case(
        lambda x, w: x @ w.to(x.dtype).t(),
        integers(4, 160, 512),
        (
            (lambda x, w: x @ w.to(x.dtype).t(), integers(9, 160, 512)),
            # The library would read past the end.
            (lambda x, w: x @ w.to(x.dtype).t(), integers(4, 136, 512)),
            (lambda x, w: x @ w.to(x.dtype).t(), integers(4, 160, 64)),
            (lambda x, w: x @ w.to(x.dtype).t(), integers(4, 160, 512, torch.float32)),
            (lambda x, w: x @ w.to(x.dtype), integers(4, 512, 512)),
            (lambda x, w: x @ w.to(x.dtype).t(), [x.t().contiguous().t() for x in integers(4, 160, 512)]),
            (lambda x, w: x @ (w.to(x.dtype) * 2).t(), integers(4, 160, 512)),
        ),
        tolerance=1e-2,
        cuda=False,
    ),
    "gelu_of_a_linear": activated(F.gelu),
    "swish_of_a_linear": activated(F.silu),
    "sigmoid_of_a_linear": activated(torch.sigmoid),
    "tanh_of_a_linear": activated(torch.tanh),
    "convolution_with_a_packed_weight": Case(
        convolved,
        IMAGES,
        (
            (lambda x, w, b: convolved(x[:, :, :4, :4].contiguous(memory_format=torch.channels_last), w, b), IMAGES),
            (lambda x, w, b: convolved(x.contiguous(), w.contiguous(), b), IMAGES),
            (lambda x, w, b: convolved(x, w * x[0, 0, 0, 0], b), IMAGES),
        ),
        tolerance=1e-4,
        cuda=False,
        frozen=(1, 2),
    ),
    "gradients_of_a_depthwise_convolution": Case(
        depthwise_gradients(),
        GRADIENTS,
        (
            (depthwise_gradients(mask=(True, False, False)), GRADIENTS),
            (depthwise_gradients(mask=(False, True, False)), GRADIENTS),
            (depthwise_gradients(dilation=2), floats((2, 6, 5, 5), (2, 6, 7, 7), (6, 1, 3, 3))),
            (depthwise_gradients(groups=3), floats((2, 6, 7, 7), (2, 6, 7, 7), (6, 2, 3, 3))),
        ),
        options={"gemm": "generated"},
        tolerance=1e-5,
    ),
    "convolution_of_points_on_a_cpu": Case(
        lambda x, w, b: at_points(x, w[:, :, 1:2, 1:2].contiguous(), b),
        IMAGES,
        (
            (lambda x, w, b: at_points(x, w, b), IMAGES),
            (lambda x, w, b: at_points(x[:1].contiguous(), w[:, :, 1:2, 1:2].contiguous(), b), IMAGES),
            (lambda x, w, b: at_points(x, w[:, :, 1:2, 1:2].contiguous(), b, stride=2), IMAGES),
            (lambda x, w, b: at_points(x[:, :2].contiguous(memory_format=torch.channels_last), w[:, :1, 1:2, 1:2].contiguous(), b, groups=2), IMAGES),
            (lambda x, w, b: at_points(x.contiguous(), w[:, :, 1:2, 1:2].contiguous(), b), IMAGES),
            (lambda x, w, b: at_points(x[:, :, :5, :5].contiguous(memory_format=torch.channels_last), w[:, :, 1:2, 1:2].contiguous(), b), IMAGES),
            (lambda x, w, b: at_points(x, w[:, :, 1:2, 1:2].contiguous(), b), [x.bfloat16() for x in IMAGES]),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=True,
    ),
    "sum_with_a_convolution": Case(
        lambda x, w, b, y: y + packed_convolution(x, w, b, *NONE),
        SUMMED,
        (
            (lambda x, w, b, y: y[:1] + packed_convolution(x, w, b, *NONE), SUMMED),
            (lambda x, w, b, y: torch.add(y, packed_convolution(x, w, b, *NONE), alpha=2), SUMMED),
            (lambda x, w, b, y: y.contiguous() + packed_convolution(x, w, b, *NONE), SUMMED),
            (lambda x, w, b, y: y + packed_convolution(x, w, b, "relu", [], ""), SUMMED),
            (lambda x, w, b, y: y + packed_convolution(x, w[:, :, 1:2, 1:2].contiguous(), b, *NONE, padding=0), SUMMED),
            (lambda x, w, b, y: y + packed_convolution(x, w, b, *NONE), [x.bfloat16() for x in SUMMED]),
        ),
        tolerance=1e-5,
        cuda=False,
    ),
}  # fmt: skip

CASES = {
    **OF_CPUS,
    "same_layout": Case(
        lambda x: x.exp().view(3, 4) + 1,
        floats((3, 4)),
        (
            (lambda x: x.exp().view(4, 3) + 1, floats((3, 4))),
            (lambda x: x.exp().view(3, 4), floats((3, 4))),
            (lambda x: aten.permute(x.expand(3, 3), [1, 0]) + 1, floats((1, 1))),
            (lambda x: aten.as_strided(aten.alias(x[1]), [2], [1]) + 1, floats((3, 4))),
        ),
        cuda=False,
    ),
    "two_transposes": Case(
        lambda x: x.permute(2, 0, 1).permute(1, 2, 0) + 1,
        floats((3, 4, 5)),
        (
            (lambda x: x.permute(2, 0, 1).permute(2, 0, 1) + 1, floats((3, 3, 3))),
            (lambda x: x.t().t(), floats((3, 4))),
            (lambda x: x.t().exp().t() + 1, floats((3, 4))),
        ),
        cuda=False,
    ),
    "thnn_fused_lstm_cell": Case(LSTM((0, 1)), CELL, ((LSTM((0, 1, 2)), CELL),), runs=False),
    "thnn_fused_gru_cell": Case(GRU((0,)), SMALL_CELL, ((GRU((0, 1)), SMALL_CELL),), runs=False),
    "gradient_into_a_table": Case(
        looked_up,
        ROWS,
        (
            (lambda x, grad, at: x.cos() + embedded(grad, at, 3), ROWS),
            (lambda x, grad, at: x.cos() + embedded(grad, at, -1, True), ROWS),
            (lambda x, grad, at: torch.add(x.cos(), embedded(grad, at), alpha=2), ROWS),
            (lambda x, grad, at: (lambda e: (x.cos() + e) * e)(embedded(grad, at)), ROWS),
            (lambda x, grad, at: (lambda c: (c + embedded(grad, at)) * c)(x.cos()), ROWS),
            (lambda x, grad, at: x + embedded(grad, at), ROWS),
            (lambda x, grad, at: x.cos() + embedded(grad, at), [floats((8, 50))[0].t(), *ROWS[1:]]),
            (looked_up, [ROWS[0], ROWS[1].view(12, 8), ROWS[2]]),
            (looked_up, [ROWS[0], ROWS[1], ROWS[2].int()]),
            (looked_up, [ROWS[0][:1], *ROWS[1:]]),
            (looked_up, [*(x.bfloat16() for x in ROWS[:2]), ROWS[2]]),
        ),
        tolerance=1e-6,
        cuda=False,
    ),
    "attention_written_out": Case(
        written_attention,
        HEADS,
        (
            (lambda q, k, v: torch.softmax(q @ k.mT, 0) @ v, HEADS),
            (lambda q, k, v: torch.softmax((q @ k.mT).cumsum(-1), -1) @ v, HEADS),
            (lambda q, k, v: (lambda shares: shares @ v + shares.sum())(torch.softmax(q @ k.mT, -1)), HEADS),
            (written_attention, [HEADS[0][:, :8], *HEADS[1:]]),
            (written_attention, [x.float() for x in HEADS]),
            (written_attention, [HEADS[0], *floats((2, 128 * 17, 16), (2, 128 * 17, 16), dtype=torch.float16)]),
        ),
        runs=False,
    ),
    "attention_with_empty_rows": Case(
        attention_with_empty_rows(-math.inf),
        SINGLE_HEADS,
        (
            (attention_with_empty_rows(0.0), SINGLE_HEADS),
            (attention_with_empty_rows(-math.inf, 1), SINGLE_HEADS),
            (attention_with_empty_rows(-math.inf, other=1.0), SINGLE_HEADS),
            (attention_with_empty_rows(-math.inf), [SINGLE_HEADS[0][:, :8], *SINGLE_HEADS[1:]]),
        ),
        cuda=False,
        runs=False,
    ),
    "masked_attention": Case(
        masked_attention(),
        LIBRARY_HEADS,
        (
            (masked_attention(), [*LIBRARY_HEADS, torch.randn(32, 32).half()]),
            (masked_attention(0.1), LIBRARY_HEADS),
            (lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, False, 0.0, True)[0], LIBRARY_HEADS),
            (masked_attention(), [x[:, :, :8] for x in LIBRARY_HEADS]),
        ),
        runs=False,
    ),
    "bias_of_a_convolution": Case(
        lambda x, w, b: F.conv2d(x, w, b).relu(),
        floats((2, 4, 6, 6), (8, 4, 3, 3), (8,)),
        (
            (lambda x, w: F.conv2d(x, w).relu(), floats((2, 4, 6, 6), (8, 4, 3, 3))),
            (lambda x, w, b: F.conv2d(x, w, b, groups=4).relu(), floats((2, 4, 6, 6), (4, 1, 3, 3), (4,))),
        ),
        tolerance=1e-6,
    ),
    "bias_of_a_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).relu(),
        LARGE,
        (
            (lambda b, x, w: torch.addmm(b, x, w).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w, beta=2).relu(), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w) @ w.t(), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), [x.half() for x in LARGE]),
            (lambda b, x, w: torch.addmm(b.expand(1024, 512), x, w).relu(), LARGE),
        ),
        tolerance=1e-5,
    ),
    "bias_behind_a_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).view(32, 32, 512).relu(),
        LARGE,
        (
            (lambda b, x, w: torch.addmm(b, x, w).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2).relu(), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), [x.double() for x in LARGE]),
            (lambda b, x, w: torch.addmm(b.expand(1024, 512), x, w).relu(), LARGE),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=False,
    ),
    "rounded_product": Case(
        lambda g, x: g.t() @ x,
        floats((1536, 1540), (1536, 1400)),
        (
            (lambda g, x: g.t() @ x, floats((1536, 1024), (1536, 1024))),
            (lambda g, x: g.t() @ x, floats((512, 1540), (512, 1400))),
            (lambda g, x: g.t() @ x, floats((1538, 1540), (1538, 1400))),
            (lambda g, x: g.t() @ x, floats((1536, 1540), (1536, 1400), dtype=torch.bfloat16)),
            (lambda g, x: g @ x, floats((1540, 1536), (1536, 1400))),
            (lambda g, x: g.t() @ x.t(), floats((1536, 1540), (1400, 1536))),
        ),
        tolerance=1e-4,
        rounds=True,
    ),
    "rounded_biased_product": Case(
        lambda s, g, x: torch.addmm(s, g.t(), x),
        floats((1400, 1540), (1536, 1400), (1536, 1540)),
        ((lambda s, g, x: torch.addmm(s, g.t(), x), floats((1540,), (1536, 1024), (1536, 1540))),),
        tolerance=1e-4,
        rounds=True,
    ),
    "product_in_parts": Case(
        lambda x, w: (x @ w).relu(),
        floats((16, 512), (512, 48)),
        (
            (lambda x, w: (x @ w).relu(), floats((16, 384), (384, 48))),
            (lambda x, w: (x @ w).relu(), floats((200, 512), (512, 48))),
            (lambda x, w: (x @ w) @ w.t(), floats((16, 512), (512, 48))),
            (lambda x, w: (x @ w).relu(), floats((16, 512), (512, 48), dtype=torch.bfloat16)),
            (lambda x, w: (x.t() @ w).relu(), floats((512, 16), (512, 48))),
            (lambda x, w: (x @ aten.slice.Tensor(w.exp(), 1, 0, 96, 2)).relu(), floats((16, 512), (512, 96))),
        ),
        tolerance=1e-5,
    ),
    "relu_of_a_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).relu(),
        LINEAR,
        (
            (lambda b, x, w: (lambda y: y.relu() + y)(torch.addmm(b, x, w)), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b.expand(4, 16), x, w).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), [x.double() for x in LINEAR]),
            (lambda b, x, w: (x @ w).relu(), LINEAR),
            (lambda b, x, w: (lambda y: y.view(2, 2, 16).relu() + y.sum())(torch.addmm(b, x, w)), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w).t().relu(), LINEAR),
        ),
    ),
    "gelu_of_a_product": Case(
        lambda b, x, w: F.gelu(torch.addmm(b, x, w), approximate="tanh"),
        LINEAR,
        ((lambda b, x, w: F.gelu(torch.addmm(b, x, w)), LINEAR),),
        options={"numerics": "fast"},
        tolerance=2e-3,
    ),
    **{
        f"_scaled_dot_product_{kind}_attention_reads_{name}": attention_case(kind, name)
        for kind, names in {"flash": ("key", "value"), "efficient": ("query", "key", "value"), "cudnn": ("key", "value")}.items()
        for name in names
    },
}  # fmt: skip
