"""Small programs, one for each shape that a kernel can take: what they become is kept as text beside this file.

In: nothing. Out: ``PROGRAMS``: name -> a function that gives the graph, and what it takes; ``OPTIONS`` of some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from flexing import Attention, causal, plain
from nesting import Outer
from torch import fx
from tracing import adamw, convolved_on_cuda, traced, traced_on_cuda

Made = tuple[fx.GraphModule, list[Any]]
PROGRAMS: dict[str, Callable[[], Made]] = {}


def shape(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of which only the layout matters."""
    return torch.ones(sizes, dtype=dtype)


def program(*inputs: Any, devices: str = "cpu cuda", mode: str = "fake") -> Callable[..., Any]:
    """Register a function of tensors like ``inputs``, once for each device."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if "cpu" in devices:
            PROGRAMS[f"{function.__name__}_cpu"] = lambda: (traced(function, *inputs, mode=mode), list(inputs))
        if "cuda" in devices:
            PROGRAMS[f"{function.__name__}_cuda"] = lambda: (traced_on_cuda(function, *inputs), list(inputs))
        return function

    return register


@program(shape(64, 48), shape(48), shape(64, 48, dtype=torch.bfloat16))
def pointwise(x: Any, y: Any, half: Any) -> Any:
    """A broadcast operand, types that are rounded, two results of one kernel."""
    return (x * 2 + y).relu(), half * 0.1 + half.exp()


@program(shape(96, 64), shape(64, 96))
def transposed(x: Any, y: Any) -> Any:
    """Operands that lie in two orders."""
    return x.t() * 2 + y


@program(shape(32, 100))
def softmax(x: Any) -> Any:
    """Two reductions and a store over rows that fit into registers."""
    return torch.softmax(x * 0.5, -1)


@program(shape(16, 40000), devices="cuda")
def long_rows(x: Any) -> Any:
    """Rows that are read in a loop, twice."""
    return torch.softmax(x, -1)


@program(shape(64, 48), shape(48), shape(48))
def layer_norm(x: Any, w: Any, b: Any) -> Any:
    """A mean, a variance and what is computed of both."""
    return F.layer_norm(x, (48,), w, b).relu()


@program(shape(256, 48))
def columns(x: Any) -> Any:
    """A reduction along which memory does not run."""
    return (x * x).sum(0)


@program(shape(1 << 20))
def large_sum(x: Any) -> Any:
    """One result of much: two kernels."""
    return (x + 1).sum()


@program(shape(32, 64))
def running_sum(x: Any) -> Any:
    """A scan along rows."""
    return (x * 2).cumsum(1)


@program(torch.ones(20, dtype=torch.int64), shape(50, 32))
def rows_of_a_table(places: Any, table: Any) -> Any:
    """Loads at places that are loaded, and checked."""
    return F.embedding(places, table) * 2


@program(shape(20, 32), torch.ones(20, dtype=torch.int64), shape(50, 32))
def scattered(rows: Any, places: Any, table: Any) -> Any:
    """Sums at places that may be the same."""
    return table.index_add(0, places, rows)


@program(shape(32, 64), shape(64, 48), shape(48))
def product(x: Any, w: Any, b: Any) -> Any:
    """A library's product with a bias and an activation."""
    return F.gelu(torch.addmm(b, x, w))


@program(shape(12, 30), devices="cpu", mode="symbolic")
def sizes_known_at_run_time(x: Any) -> Any:
    """Sizes are arguments of kernels."""
    return torch.softmax(x, -1), x.sum(0) + x.shape[0]


@program(*(shape(size) for size in (30, 70) * 4), devices="cuda")
def several_parameters(*tensors: Any) -> Any:
    """Small kernels that are launched as one."""
    return adamw(*tensors)


def large(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The layout of a tensor that takes long enough to be worth more than one block a program."""
    return torch.empty(sizes, dtype=dtype, device="meta")


@program(large(8192, 1024), devices="cuda")
def blocks_in_turn(x: Any) -> Any:
    """Computes as long as it waits: the next block is loaded ahead, also where a mask says which of two pieces it lies in."""
    y = torch.cat([x.narrow(1, 512, 512), x.narrow(1, 0, 512)], 1)
    return sum(z.sin() * z.cos() + (-z.abs()).exp() + z.abs().log1p() for z in (x, y))


@program(large(4096, 768, dtype=torch.bfloat16), large(50257, 768, dtype=torch.bfloat16), devices="cuda")
def odd_columns(x: Any, w: Any) -> Any:
    """A product of columns that the library has no fast kernel for, and what follows it."""
    return (x @ w.t()).relu()


@program(large(1, 4096, dtype=torch.bfloat16), large(4096, 4096, dtype=torch.bfloat16), devices="cuda")
def one_row(x: Any, w: Any) -> Any:
    """A product that takes as long as its weight takes to be read, without units for matrices."""
    return (x @ w.t()).relu()


@program(large(8, 4096, dtype=torch.bfloat16), large(4096, 4096, dtype=torch.bfloat16), devices="cuda")
def few_rows(x: Any, w: Any) -> Any:
    """A product whose terms are summed in parts."""
    return (x @ w.t()).relu()


@program(large(1, 4096, dtype=torch.bfloat16), large(4096, 4096, dtype=torch.int8), devices="cuda")
def weights_of_eight_bits(x: Any, w: Any) -> Any:
    """A product that computes its weight."""
    return x @ w.to(x.dtype).t()


@program(shape(1, 2, 50, 16), shape(1, 2, 60, 16), shape(1, 2, 60, 16), shape(50, 60), devices="cpu")
def masked_attention(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """Attention of the library under a mask in memory, and under a causal one."""
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), causal


def _a_loop() -> Made:
    """A body that is called while a condition holds."""
    x, start = shape(6, 5), torch.tensor(0)
    o = Outer()
    i, a = o.input(start), o.input(x)
    condition = o.body(lambda i, a: i < 5, i, a)
    step = o.body(lambda i, a: (i + 1, a * 0.5 + a.sum(0)), i, a)
    node = o.call(torch.ops.higher_order.while_loop, condition, step, (i, a), (), val=(i.meta["val"], a.meta["val"]))
    return o.finish(*o.parts(node)), [start, x]


def _attention() -> Made:
    """Causal attention, whose kernels are Triton's also where the interpreter runs them."""
    return Attention(1, 2, 1, (128, 128), (64, 64), plain, causal).forward()


def _convolution() -> Made:
    """A convolution in a kernel of its own, with batch norm's factors, a residual and an activation."""

    def function(x: Any, w: Any, scale: Any, shift: Any, y: Any) -> Any:
        return F.relu(F.conv2d(x, w, stride=2, padding=1) * scale + shift + y)

    sizes = (8, 64, 14, 14), (128, 64, 3, 3), (128, 1, 1), (128, 1, 1), (8, 128, 7, 7)
    half = [shape(*size, dtype=torch.bfloat16) for size in sizes]
    inputs = [t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in half]
    return convolved_on_cuda(function, *inputs), inputs


PROGRAMS |= {"loop_cpu": _a_loop, "attention_triton": _attention, "convolution_cuda": _convolution}
#: What is asked for beside the defaults.
OPTIONS: dict[str, dict[str, Any]] = {"convolution_cuda": {"gemm": "generated"}}
