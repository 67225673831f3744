"""What is measured: op-level workloads, and the models of `tests.models.zoo` at the "small" scale.

In: a name. Out: a callable and the arguments of one call, made from a fixed seed on the given device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from attrs import Factory, frozen
from tests.models import zoo
from torch import Tensor, nn


@frozen
class Workload:
    """A callable, its positional and keyword arguments, and whether a backward is part of one step."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Factory(dict)
    train: bool = False


OpMaker = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
_OPS: dict[str, OpMaker] = {}


def op_workload(make: OpMaker) -> OpMaker:
    """Register a maker under its name."""
    _OPS[make.__name__] = make
    return make


@op_workload
def gelu_chain() -> Any:
    """bias + gelu + scale on 4 M elements."""
    return lambda x, b: F.gelu(x + b) * 1.5, (torch.randn(2048, 2048), torch.randn(2048))


@op_workload
def silu_mul() -> Any:
    """SwiGLU's pointwise half."""
    return lambda x, y: F.silu(x) * y, (torch.randn(1024, 4096), torch.randn(1024, 4096))


@op_workload
def add_layer_norm() -> Any:
    """residual + layer norm."""
    x = torch.randn(2048, 1024)
    return lambda x, y, w, b: F.layer_norm(x + y, (1024,), w, b), (x, x.clone(), torch.randn(1024), torch.randn(1024))


@op_workload
def rms_norm() -> Any:
    """Llama's norm, written out."""
    return lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), (
        torch.randn(2048, 1024),
        torch.randn(1024),
    )


@op_workload
def softmax_scaled() -> Any:
    """scale + mask + softmax over the last dimension."""
    return lambda x, m: torch.softmax(x * 0.125 + m, dim=-1), (torch.randn(16, 256, 256), torch.zeros(256, 256))


@op_workload
def log_softmax_nll() -> Any:
    """cross entropy of 1024 rows of 8192 classes."""
    return lambda x, t: F.cross_entropy(x, t), (torch.randn(1024, 8192), torch.randint(0, 8192, (1024,)))


@op_workload
def sum_rows() -> Any:
    """squares summed over the last dimension."""
    return lambda x: (x * x).sum(-1), (torch.randn(4096, 1024),)


@op_workload
def sum_columns() -> Any:
    """absolute values summed over the first dimension."""
    return lambda x: x.abs().sum(0), (torch.randn(4096, 1024),)


@op_workload
def mean_all() -> Any:
    """mean square error of 4 M elements."""
    return lambda x, y: ((x - y) ** 2).mean(), (torch.randn(2048, 2048), torch.randn(2048, 2048))


@op_workload
def variance() -> Any:
    """normalised by mean and variance of each row."""
    return lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(), (
        torch.randn(2048, 1024),
    )


@op_workload
def batch_norm_relu() -> Any:
    """batch norm at inference + relu."""
    arguments = (torch.randn(16, 64, 56, 56), torch.randn(64), torch.rand(64) + 0.5, torch.randn(64), torch.randn(64))
    return lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b, False)), arguments


@op_workload
def group_norm_silu() -> Any:
    """group norm + silu, as in diffusion models."""
    return lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)), (
        torch.randn(4, 128, 48, 48),
        torch.ones(128),
        torch.zeros(128),
    )


@op_workload
def transpose_add() -> Any:
    """x + x.T."""
    return lambda x: x + x.t(), (torch.randn(2048, 2048),)


@op_workload
def cat_gelu() -> Any:
    """concatenation followed by pointwise work."""
    return lambda x, y: F.gelu(torch.cat([x, y], dim=1)) + 1.0, (torch.randn(2048, 512), torch.randn(2048, 512))


@op_workload
def embedding_norm() -> Any:
    """token + position embedding and layer norm."""

    def function(ids: Tensor, table: Tensor, position: Tensor) -> Tensor:
        return F.layer_norm(F.embedding(ids, table) + position, (512,))

    return function, (torch.randint(0, 10000, (16, 256)), torch.randn(10000, 512), torch.randn(256, 512))


@op_workload
def rotary() -> Any:
    """rotary position embedding of queries."""

    def function(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = q.shape[-1] // 2
        rotated = torch.cat((-q[..., half:], q[..., :half]), dim=-1)
        return q * cos + rotated * sin

    return function, (torch.randn(4, 16, 256, 64), torch.randn(256, 64), torch.randn(256, 64))


@op_workload
def masked_fill_softmax() -> Any:
    """causal mask + softmax."""
    mask = torch.ones(256, 256, dtype=torch.bool).tril()
    return lambda x: torch.softmax(x.masked_fill(~mask, float("-inf")), -1), (torch.randn(16, 256, 256),)


@op_workload
def where_clamp() -> Any:
    """a chain of comparisons and selections."""
    return lambda x, y: torch.where(x > y, x.clamp(-1, 1) * 2, y.sigmoid() + x), (
        torch.randn(2048, 1024),
        torch.randn(2048, 1024),
    )


@op_workload
def cumsum_rows() -> Any:
    """running sums of scaled rows."""
    return lambda x: torch.cumsum(x * 0.5, dim=-1), (torch.randn(2048, 1024),)


@op_workload
def index_add() -> Any:
    """rows added where an index says."""

    def function(x: Tensor, index: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x.index_add(0, index, y * 2))

    return function, (torch.randn(4096, 256), torch.randint(0, 4096, (8192,)), torch.randn(8192, 256))


@op_workload
def adamw_update() -> Any:
    """one AdamW update of eight tensors, written out."""

    def function(params: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
        results = []
        for p, g, m, v in zip(params, grads, first, second, strict=True):
            m = m * 0.9 + g * 0.1
            v = v * 0.999 + g * g * 0.001
            results += [p * 0.99 - 1e-3 * m / (v.sqrt() + 1e-8), m, v]
        return results

    groups = tuple([torch.rand(512, 512) for _ in range(8)] for _ in range(4))
    return function, groups


@op_workload
def dtype_mix() -> Any:
    """bfloat16 in, float32 arithmetic, bfloat16 out."""
    return lambda x, y: (torch.tanh(x.float()) * y.float()).bfloat16(), (
        torch.randn(2048, 1024).bfloat16(),
        torch.randn(2048, 1024).bfloat16(),
    )


@op_workload
def transcendental() -> Any:
    """sin, cos, exp, log1p of 1 M elements."""
    return lambda x: torch.sin(x) * torch.cos(x) + torch.exp(-x.abs()) + torch.log1p(x.abs()), (
        torch.randn(1024, 1024),
    )


@op_workload
def linear_gelu() -> Any:
    """a linear layer with GELU: mostly the library's GEMM."""
    return lambda x, w, b: F.gelu(F.linear(x, w, b)), (torch.randn(256, 512), torch.randn(2048, 512), torch.randn(2048))


@op_workload
def small_pointwise() -> Any:
    """ten pointwise operations on 4 K elements: bound by overhead in eager."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(5):
            x = torch.tanh(x + y) * 0.5
        return x

    return function, (torch.randn(64, 64), torch.randn(64, 64))


MODELS = tuple(zoo.ZOO)
OPS = tuple(_OPS)


def make(name: str, *, train: bool = False, scale: str = "small", device: str = "cpu") -> Workload:
    """A workload by name.

    Args:
        name: one of `OPS` or `MODELS`.
        train: for a model, forward and backward of its loss.
        scale: for a model, "tiny" or "small".
        device: where its tensors live.
    """
    torch.manual_seed(0)
    if name in _OPS:
        function, arguments = _OPS[name]()
        return Workload(function, _moved(arguments, device))
    case = zoo.make(name, scale)
    model = case.model.to(device)
    inputs = _moved(case.inputs, device)
    if train:
        return Workload(TrainingLoss(model.train(), case.loss), (), inputs, train=True)
    return Workload(model, (), inputs)


class TrainingLoss(nn.Module):
    """A model with its loss as output, so that one callable is a whole forward."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, **inputs: Any) -> Tensor:
        return self.loss(self.model(**inputs))


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value
