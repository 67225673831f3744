"""Tensors: in-place operations, `out=`, `.data`, `.grad`, views, dtypes, factories, queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .table import case


def leaf() -> tuple[Tensor]:
    """A leaf that needs a gradient, and has one."""
    x = torch.linspace(-2, 3, 6, requires_grad=True)
    x.grad = torch.ones(6)
    return (x,)


@case()
def in_place_operations(x: Tensor) -> Any:
    y = x.clone()
    y += 1
    y.mul_(2).add_(x, alpha=3)
    y[0] = 7
    y[:, 1:] -= 1
    y.view(-1)[2] = 0
    torch.relu_(y)
    return y


@case(graphs=2, breaks=("external-mutation",))
def in_place_on_an_argument(x: Tensor) -> Any:
    view = x[1:]
    view.zero_()
    x.t_()
    x.t_()
    return x.sum(), view


@case()
def out_arguments(x: Tensor) -> Any:
    out = torch.empty(3, 4)
    result = torch.add(x, 1, out=out)
    values, places = torch.empty(3), torch.empty(3, dtype=torch.long)
    torch.max(x, dim=1, out=(values, places))
    return out, result is out, values, places


@case(arguments=lambda: (torch.ones(3), torch.zeros(3)))
def out_argument_from_outside(x: Tensor, out: Tensor) -> Any:
    torch.mul(x, 3, out=out)
    return out + 1


@case(arguments=leaf)
def data_and_grad(x: Tensor) -> Any:
    assert x.grad is not None
    return x.data * 2, x.grad + 1, x.data.requires_grad, x.detach().requires_grad


@case(arguments=leaf)
def gradient_is_reset(x: Tensor) -> Any:
    y = x * 2
    if x.grad is not None:
        y = y + x.grad
    return y


@case(arguments=leaf)
def writes_data(x: Tensor) -> Any:
    x.data.mul_(2)
    return x + 1


@case(arguments=leaf)
def in_place_under_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        x.add_(1)
        x.copy_(x * 2)
    return x * 1


@case()
def queries(x: Tensor) -> Any:
    return (
        x.sin(), x.dtype, x.device, x.ndim, x.is_contiguous(), x.T.is_contiguous(), x.stride(), x.numel(), x.size(-1), x.is_floating_point(), x.requires_grad,
        torch.is_tensor(x), torch.finfo(x.dtype).eps, len(x), x.shape[:-1], x.itemsize, x.layout, x.is_cuda, isinstance(x, torch.FloatTensor), x.T.shape,
    )  # fmt: skip


@case()
def factories(x: Tensor) -> Any:
    return (
        torch.arange(x.shape[0]), torch.zeros_like(x), x.new_ones(2), torch.full((2,), 3.0), torch.eye(2), torch.linspace(0, 1, 3),
        torch.tensor([1.0, 2.0]), torch.tensor(x.shape), torch.empty(0), torch.as_tensor(3), torch.stack([x, x]), torch.scalar_tensor(2.0),
    )  # fmt: skip


@case()
def dtypes_and_conversions(x: Tensor) -> Any:
    return (
        x.half().float(),
        x.to(torch.float64),
        x.to("cpu"),
        x.type(torch.int32),
        x.bool(),
        x.long() // 2,
        x.double().dtype,
        (x > 0).any(),
    )


@case()
def multiple_results(x: Tensor) -> Any:
    values, places = x.topk(2)
    found = x.max(dim=0)
    a, b = x.split(2, dim=1)
    q, *_ = torch.linalg.qr(x)
    return (
        values,
        places,
        found.values,
        found.indices,
        a,
        b,
        q.shape,
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
    )


@case()
def iteration_over_a_tensor(x: Tensor) -> Any:
    total = torch.zeros(4)
    for row in x:
        total = total + row
    first, *rest = x
    return total, first, len(rest), [r.sum() for r in x.unbind(1)]


@case()
def einsum_and_indexing(x: Tensor) -> Any:
    index = torch.tensor([2, 0])
    return (
        torch.einsum("ij,kj->ik", x, x),
        x[index],
        x[index, :2],
        x.index_select(1, index),
        x[None, ..., 0],
        x.gather(1, torch.zeros(3, 1, dtype=torch.long)),
    )


@case()
def masks_with_data_dependent_shape(x: Tensor) -> Any:
    y = x * 2
    return y[y > 0] + 1


@case()
def where_and_masked(x: Tensor) -> Any:
    return (
        torch.where(x > 0, x, -x),
        x.masked_fill(x < 0, 0.0),
        x.clamp(min=0),
        F.softmax(x, dim=-1),
        torch.where(x > 0, 1, 0),
    )


@case()
def attributes_on_tensors(x: Tensor) -> Any:
    y = x + 1
    y.tag = "note"  # type: ignore[attr-defined]
    return y, y.tag, hasattr(x, "tag"), getattr(y, "other", 3)  # type: ignore[attr-defined]


@case()
def autocast_region(x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
    return y, y.dtype, (x @ x.T).dtype


@case(arguments=lambda: (torch.ones(3, requires_grad=True),))
def grad_modes(x: Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    with torch.set_grad_enabled(False):
        c = x * 4
    return a.requires_grad, b.requires_grad, c.requires_grad, b, a


@case()
def results_share_memory_with_arguments(x: Tensor) -> Any:
    return x, x[0], x.view(-1), x.T


class Tagged(torch.Tensor):
    """A subclass: results are of it too."""


@case(arguments=lambda: (torch.ones(2).as_subclass(Tagged),))
def tensor_subclass(x: Tensor) -> Any:
    return x + 1, type(x * 2).__name__


@case(graphs=0, breaks=("unsupported-tensor",), arguments=lambda: (torch.eye(3).to_sparse(),))
def sparse_tensor(x: Tensor) -> Any:
    return (x * 2).to_dense()


@case(graphs=2, breaks=("unsupported-call",))
def numpy_in_the_middle(x: Tensor) -> Any:
    y = x * 2
    array = y.numpy().sum()
    return y + float(array)


@case(factory=True)
def tensor_from_a_closure() -> Callable[[Tensor], Any]:
    state = torch.ones(4)
    table = {"scale": torch.full((4,), 2.0)}

    def run(x: Tensor) -> Any:
        state.add_(1)
        table["scale"] = table["scale"] * 2
        return x * state + table["scale"]

    return run


@case(factory=True)
def tensor_in_a_list_from_outside() -> Callable[[Tensor], Any]:
    cache: list[Tensor] = []

    def run(x: Tensor) -> Any:
        cache.append(x.clone())
        return torch.stack(cache[-1:]).sum(0)

    return run


@case(arguments=leaf)
def backward_inside(x: Tensor) -> Any:
    loss = (x * x).sum()
    loss.backward()
    assert x.grad is not None
    return x.grad * 2


@case(arguments=lambda: (torch.ones(2, 3), torch.ones(3)))
def vmap_and_grad(x: Tensor, w: Tensor) -> Any:
    return torch.vmap(lambda row: row @ w)(x)
