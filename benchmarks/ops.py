"""The op-level workloads: small programs of a few torch calls, most of them bound by memory.

In: a name and `k`, by which the leading size of the large tensors is multiplied (1 on a CPU; more on a GPU, whose caches are
larger). Out: a callable, its arguments, and the bytes that one call must move at least. Tensors are made on torch's default
device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor
from torch.utils import _pytree as pytree


@frozen
class Program:
    """One op-level workload.

    Attributes:
        function: what is compiled.
        args: its positional arguments.
        skipped: positions of arguments of which rows are gathered: what one call reads of them is as large as its outputs,
            and no larger than themselves, for a row that is read again lies in a cache.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    skipped: frozenset[int] = frozenset()

    def bytes_moved(self, result: Any) -> int:
        """Every input read once and every output written once."""
        whole = [value for number, value in enumerate(self.args) if number not in self.skipped]
        tensors = [leaf for leaf in pytree.tree_leaves((whole, result)) if isinstance(leaf, Tensor)]
        written = sum(_bytes(leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        gathered = sum(min(_bytes(self.args[number]), written) for number in self.skipped)
        return sum(map(_bytes, tensors)) + gathered


def _bytes(tensor: Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 else 1
    return count * tensor.element_size()


Maker = Callable[[int], Program]
OPS: dict[str, Maker] = {}
#: Bound by something other than memory, or too small to fill a GPU: not part of the bandwidth table.
NOT_MEMORY_BOUND = frozenset(
    {
        "linear_gelu",
        "odd_head_bf16",
        "one_row_bf16",
        "int8_weights_bf16",
        "first_convolution",
        "point_convolution",
        "window_convolution",
        "small_pointwise",
        "index_add",
    }
)


def op_workload(make: Maker) -> Maker:
    """Register a maker under its name."""
    OPS[make.__name__] = make
    return make


@op_workload
def copy(k: int) -> Program:
    """x + 1 on 4 M elements: as little work as a kernel can have."""
    return Program(lambda x: x + 1, (torch.randn(2048 * k, 2048),))


@op_workload
def gelu_chain(k: int) -> Program:
    """bias + gelu + scale on 4 M elements."""
    return Program(lambda x, b: F.gelu(x + b) * 1.5, (torch.randn(2048 * k, 2048), torch.randn(2048)))


@op_workload
def gelu_chain_bf16(k: int) -> Program:
    """bias + gelu + scale in bfloat16."""
    return Program(
        lambda x, b: F.gelu(x + b) * 1.5, (torch.randn(2048 * k, 2048).bfloat16(), torch.randn(2048).bfloat16())
    )


@op_workload
def silu_mul(k: int) -> Program:
    """SwiGLU's pointwise half."""
    return Program(lambda x, y: F.silu(x) * y, (torch.randn(1024 * k, 4096), torch.randn(1024 * k, 4096)))


@op_workload
def silu_mul_bf16(k: int) -> Program:
    """SwiGLU's pointwise half in bfloat16."""
    return Program(
        lambda x, y: F.silu(x) * y, (torch.randn(1024 * k, 4096).bfloat16(), torch.randn(1024 * k, 4096).bfloat16())
    )


@op_workload
def add_layer_norm(k: int) -> Program:
    """residual + layer norm."""
    x = torch.randn(2048 * k, 1024)
    return Program(
        lambda x, y, w, b: F.layer_norm(x + y, (1024,), w, b), (x, x.clone(), torch.randn(1024), torch.randn(1024))
    )


@op_workload
def add_layer_norm_bf16(k: int) -> Program:
    """residual + layer norm in bfloat16."""
    x = torch.randn(2048 * k, 1024).bfloat16()
    weight, bias = torch.randn(1024).bfloat16(), torch.randn(1024).bfloat16()
    return Program(lambda x, y, w, b: F.layer_norm(x + y, (1024,), w, b), (x, x.clone(), weight, bias))


@op_workload
def rms_norm(k: int) -> Program:
    """Llama's norm, written out."""
    return Program(
        lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        (torch.randn(2048 * k, 1024), torch.randn(1024)),
    )


@op_workload
def rms_norm_bf16(k: int) -> Program:
    """Llama's norm as its source has it: float32 inside, bfloat16 outside."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    return Program(function, (torch.randn(2048 * k, 2048).bfloat16(), torch.randn(2048).bfloat16()))


@op_workload
def softmax_scaled(k: int) -> Program:
    """scale + mask + softmax over the last dimension."""
    return Program(
        lambda x, m: torch.softmax(x * 0.125 + m, dim=-1), (torch.randn(16 * k, 256, 256), torch.zeros(256, 256))
    )


@op_workload
def log_softmax_nll(k: int) -> Program:
    """cross entropy of 1024 rows of 8192 classes."""
    return Program(
        lambda x, t: F.cross_entropy(x, t), (torch.randn(1024 * k, 8192), torch.randint(0, 8192, (1024 * k,)))
    )


@op_workload
def sum_rows(k: int) -> Program:
    """squares summed over the last dimension."""
    return Program(lambda x: (x * x).sum(-1), (torch.randn(4096 * k, 1024),))


@op_workload
def sum_columns(k: int) -> Program:
    """absolute values summed over the first dimension."""
    return Program(lambda x: x.abs().sum(0), (torch.randn(4096 * k, 1024),))


@op_workload
def sum_few_rows(k: int) -> Program:
    """squares summed over the last dimension of eight long rows."""
    return Program(lambda x: (x * x).sum(-1), (torch.randn(8, 524288 * k),))


@op_workload
def mean_all(k: int) -> Program:
    """mean square error of 4 M elements."""
    return Program(lambda x, y: ((x - y) ** 2).mean(), (torch.randn(2048 * k, 2048), torch.randn(2048 * k, 2048)))


@op_workload
def variance(k: int) -> Program:
    """normalised by mean and variance of each row."""
    return Program(
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(),
        (torch.randn(2048 * k, 1024),),
    )


@op_workload
def batch_norm_relu(k: int) -> Program:
    """batch norm at inference + relu."""
    x = torch.randn(16 * k, 64, 56, 56)
    arguments = (x, torch.randn(64), torch.rand(64) + 0.5, torch.randn(64), torch.randn(64))
    return Program(lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b, False)), arguments)


@op_workload
def group_norm_silu(k: int) -> Program:
    """group norm + silu, as in diffusion models."""
    return Program(
        lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)),
        (torch.randn(4 * k, 128, 48, 48), torch.ones(128), torch.zeros(128)),
    )


@op_workload
def transpose_add(k: int) -> Program:
    """x + x.T: every element is read twice, counted once."""
    side = int(2048 * k**0.5) // 64 * 64
    return Program(lambda x: x + x.t(), (torch.randn(side, side),))


@op_workload
def transpose_copy(k: int) -> Program:
    """a transposed copy, doubled."""
    return Program(lambda x: (x.t() * 2).contiguous(), (torch.randn(2048 * k, 2048),))


@op_workload
def cat_gelu(k: int) -> Program:
    """concatenation followed by pointwise work."""
    return Program(
        lambda x, y: F.gelu(torch.cat([x, y], dim=1)) + 1.0, (torch.randn(2048 * k, 512), torch.randn(2048 * k, 512))
    )


@op_workload
def embedding_norm(k: int) -> Program:
    """token + position embedding and layer norm."""

    def function(ids: Tensor, table: Tensor, position: Tensor) -> Tensor:
        return F.layer_norm(F.embedding(ids, table) + position, (512,))

    ids = torch.randint(0, 10000, (16 * k, 256))
    return Program(function, (ids, torch.randn(10000, 512), torch.randn(256, 512)), frozenset({1}))


@op_workload
def rotary(k: int) -> Program:
    """rotary position embedding of queries."""

    def function(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = q.shape[-1] // 2
        rotated = torch.cat((-q[..., half:], q[..., :half]), dim=-1)
        return q * cos + rotated * sin

    return Program(function, (torch.randn(4 * k, 16, 256, 64), torch.randn(256, 64), torch.randn(256, 64)))


@op_workload
def masked_fill_softmax(k: int) -> Program:
    """causal mask + softmax."""
    mask = torch.ones(256, 256, dtype=torch.bool).tril()
    return Program(
        lambda x, mask: torch.softmax(x.masked_fill(~mask, float("-inf")), -1), (torch.randn(16 * k, 256, 256), mask)
    )


@op_workload
def where_clamp(k: int) -> Program:
    """a chain of comparisons and selections."""
    return Program(
        lambda x, y: torch.where(x > y, x.clamp(-1, 1) * 2, y.sigmoid() + x),
        (torch.randn(2048 * k, 1024), torch.randn(2048 * k, 1024)),
    )


@op_workload
def cumsum_rows(k: int) -> Program:
    """running sums of scaled rows."""
    return Program(lambda x: torch.cumsum(x * 0.5, dim=-1), (torch.randn(2048 * k, 1024),))


@op_workload
def index_add(k: int) -> Program:
    """rows added where an index says."""

    def function(x: Tensor, index: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x.index_add(0, index, y * 2))

    rows = 4096 * k
    return Program(function, (torch.randn(rows, 256), torch.randint(0, rows, (2 * rows,)), torch.randn(2 * rows, 256)))


@op_workload
def adamw_update(k: int) -> Program:
    """one AdamW update of eight tensors, written out."""

    def function(params: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
        results = []
        for p, g, m, v in zip(params, grads, first, second, strict=True):
            m = m * 0.9 + g * 0.1
            v = v * 0.999 + g * g * 0.001
            results += [p * 0.99 - 1e-3 * m / (v.sqrt() + 1e-8), m, v]
        return results

    groups = tuple([torch.rand(512 * k, 512) for _ in range(8)] for _ in range(4))
    return Program(function, groups)


@op_workload
def dtype_mix(k: int) -> Program:
    """bfloat16 in, float32 arithmetic, bfloat16 out."""
    return Program(
        lambda x, y: (torch.tanh(x.float()) * y.float()).bfloat16(),
        (torch.randn(2048 * k, 1024).bfloat16(), torch.randn(2048 * k, 1024).bfloat16()),
    )


@op_workload
def transcendental(k: int) -> Program:
    """sin, cos, exp, log1p of 1 M elements."""
    return Program(
        lambda x: torch.sin(x) * torch.cos(x) + torch.exp(-x.abs()) + torch.log1p(x.abs()),
        (torch.randn(1024 * k, 1024),),
    )


@op_workload
def linear_gelu(k: int) -> Program:
    """a linear layer with GELU: mostly the library's GEMM."""
    return Program(
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        (torch.randn(256 * k, 512), torch.randn(2048, 512), torch.randn(2048)),
    )


@op_workload
def odd_head_bf16(k: int) -> Program:
    """the head of a language model whose 50,257 columns are no multiple of what the library wants (GPT-2's, 256 rows)."""
    return Program(
        lambda x, w: F.linear(x, w), (torch.randn(256 * k, 768).bfloat16(), torch.randn(50_257, 768).bfloat16())
    )


@op_workload
def one_row_bf16(k: int) -> Program:
    """one token through a linear layer with SiLU: the weight is read once."""
    return Program(
        lambda x, w: F.silu(F.linear(x, w)), (torch.randn(1, 4096).bfloat16(), torch.randn(4096, 4096).bfloat16())
    )


@op_workload
def int8_weights_bf16(k: int) -> Program:
    """16 tokens through a linear layer whose weights are 8 bits with a scale for each column."""
    weight = torch.randint(-128, 128, (4096, 4096), dtype=torch.int8)
    return Program(
        lambda x, w, s: F.linear(x, w.to(x.dtype)) * s,
        (torch.randn(16, 4096).bfloat16(), weight, torch.randn(4096).bfloat16()),
    )


def _convolution(k: int, channels: tuple[int, int], size: int, taps: int) -> Program:
    """A convolution channels-last with a batch norm's factors, a residual and ReLU, of two images times `k`."""
    images, weight = torch.randn(2 * k, channels[0], size, size), torch.randn(channels[1], channels[0], taps, taps)
    scale, shift, residual = (
        torch.randn(channels[1], 1, 1),
        torch.randn(channels[1], 1, 1),
        torch.randn(2 * k, channels[1], size, size),
    )

    def function(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, y: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, w, padding=taps // 2) * scale + shift + y)

    last = [tensor.to(memory_format=torch.channels_last) for tensor in (images, weight, residual)]
    return Program(function, (last[0], last[1], scale, shift, last[2]))


@op_workload
def first_convolution(k: int) -> Program:
    """the first layer of an image network: three channels, 3 x 3."""
    return _convolution(k, (3, 64), 224, 3)


@op_workload
def point_convolution(k: int) -> Program:
    """1 x 1, from few channels to many."""
    return _convolution(k, (64, 256), 56, 1)


@op_workload
def window_convolution(k: int) -> Program:
    """3 x 3."""
    return _convolution(k, (128, 128), 28, 3)


@op_workload
def depthwise_convolution(k: int) -> Program:
    """7 x 7, each channel by itself, channels-last, with GELU and a residual."""
    images = torch.randn(k, 384, 56, 56).to(memory_format=torch.channels_last)
    weight, bias = torch.randn(384, 1, 7, 7) / 7, torch.randn(384)
    return Program(lambda x, w, b: F.gelu(F.conv2d(x, w, b, padding=3, groups=384)) + x, (images, weight, bias))


@op_workload
def pool_relu(k: int) -> Program:
    """ReLU and the maximum of 3 x 3 windows at every other point, channels-last."""
    images = torch.randn(2 * k, 64, 112, 112).to(memory_format=torch.channels_last)
    return Program(lambda x: F.max_pool2d(F.relu(x), 3, 2, 1), (images,))


@op_workload
def small_pointwise(k: int) -> Program:
    """ten pointwise operations on 4 K elements: bound by overhead in eager."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(5):
            x = torch.tanh(x + y) * 0.5
        return x

    return Program(function, (torch.randn(64, 64), torch.randn(64, 64)))
