"""Operators of the user's own: `torch.library.custom_op`, `Library`, and Triton kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..registry import Made, program

SECTION = "custom operators"
_NAMES = iter(range(10_000))


def _name(base: str) -> str:
    """Each time a program is made its operator gets another name: a library keeps the first."""
    return f"flambeau_programs::{base}_{next(_NAMES)}"


@program(SECTION)
def operator_with_a_fake() -> Made:
    @torch.library.custom_op(_name("twice"), mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    return lambda x: twice(x).sin(), [(torch.randn(4),), (torch.randn(6),)]


@program(SECTION)
def operator_with_a_gradient() -> Made:
    @torch.library.custom_op(_name("cube"), mutates_args=())
    def cube(x: Tensor, scale: float) -> Tensor:
        return x**3 * scale

    cube.register_fake(lambda x, scale: torch.empty_like(x))

    def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * 3 * ctx.saved_tensors[0] ** 2 * ctx.scale, None

    cube.register_autograd(backward, setup_context=setup)
    return lambda x: cube(x, 0.5).exp(), [(torch.rand(4, requires_grad=True),)]


@program(SECTION)
def operator_writing_its_argument() -> Made:
    @torch.library.custom_op(_name("fill_first"), mutates_args={"out"})
    def fill_first(out: Tensor, value: float) -> None:
        out[0] = value

    def f(x: Tensor) -> Tensor:
        buffer = torch.zeros_like(x)
        fill_first(buffer, 3.0)
        return x + buffer

    return f, [(torch.randn(4),)]


@program(SECTION)
def operator_writing_an_input() -> Made:
    @torch.library.custom_op(_name("accumulate"), mutates_args={"total"})
    def accumulate(total: Tensor, x: Tensor) -> None:
        total.add_(x)

    def f(total: Tensor, x: Tensor) -> Tensor:
        accumulate(total, x * 2)
        return total.sum()

    return f, [(torch.zeros(3), torch.randn(3))]


@program(SECTION)
def operator_writing_and_returning() -> Made:
    @torch.library.custom_op(_name("step"), mutates_args={"state"})
    def step(state: Tensor, x: Tensor) -> Tensor:
        state.mul_(0.9).add_(x)
        return state.norm().clone()

    step.register_fake(lambda state, x: state.new_empty(()))

    def f(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return step(state, x), state * 2

    return f, [(torch.ones(3), torch.randn(3))]


@program(SECTION)
def operator_calling_numpy() -> Made:
    @torch.library.custom_op(_name("sort"), mutates_args=())
    def sort(x: Tensor) -> Tensor:
        return torch.from_numpy(np.sort(x.numpy(), axis=-1).copy())

    sort.register_fake(lambda x: torch.empty_like(x))
    return lambda x: sort(x + 1) * 2, [(torch.randn(3, 4),)]


@program(SECTION)
def operator_returning_several() -> Made:
    @torch.library.custom_op(_name("stats"), mutates_args=())
    def stats(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean(-1), x.std(-1)

    @stats.register_fake
    def _(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1])

    def f(x: Tensor) -> Tensor:
        mean, std = stats(x)
        return (x - mean.unsqueeze(-1)) / std.unsqueeze(-1)

    return f, [(torch.randn(3, 4),)]


@program(SECTION)
def operator_taking_lists() -> Made:
    @torch.library.custom_op(_name("weighted"), mutates_args=())
    def weighted(parts: list[Tensor], weights: list[float], bias: Tensor | None = None) -> Tensor:
        out = sum(p * w for p, w in zip(parts, weights))
        return out if bias is None else out + bias

    weighted.register_fake(lambda parts, weights, bias=None: torch.empty_like(parts[0]))

    def f(a: Tensor, b: Tensor) -> Tensor:
        return weighted([a, b], [0.25, 0.75]) + weighted([b], [2.0], a)

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def operator_of_data_dependent_size() -> Made:
    @torch.library.custom_op(_name("positives"), mutates_args=())
    def positives(x: Tensor) -> Tensor:
        return x[x > 0].clone()

    @positives.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    return lambda x: positives(x) * 2, [(torch.tensor([1.0, -1.0, 2.0]),)]


@program(SECTION)
def operator_defined_in_a_library() -> Made:
    space, _, base = _name("shift").partition("::")
    library = torch.library.Library(space, "FRAGMENT")
    library.define(f"{base}(Tensor x, int by=1) -> Tensor")
    torch.library.impl(f"{space}::{base}", "CPU", lambda x, by=1: x + by, lib=library)
    torch.library.register_fake(f"{space}::{base}", lambda x, by=1: torch.empty_like(x), lib=library)
    op = getattr(getattr(torch.ops, space), base)

    def f(x: Tensor) -> Tensor:
        return op(x, 2) * op(x) if library.ns == space else x

    return f, [(torch.randn(4),)]


@program(SECTION)
def operator_without_a_gradient_rule() -> Made:
    space, _, base = _name("scale").partition("::")
    library = torch.library.Library(space, "FRAGMENT")
    library.define(f"{base}(Tensor x) -> Tensor")
    torch.library.impl(f"{space}::{base}", "CPU", lambda x: x * 3, lib=library)
    torch.library.register_fake(f"{space}::{base}", lambda x: torch.empty_like(x), lib=library)

    def f(x: Tensor) -> Tensor:
        return getattr(getattr(torch.ops, library.ns), base)(x).sin()

    return f, [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def operator_composed_of_others() -> Made:
    space, _, base = _name("composed").partition("::")
    library = torch.library.Library(space, "FRAGMENT")
    library.define(f"{base}(Tensor x, float scale) -> Tensor")
    torch.library.impl(
        f"{space}::{base}", "CompositeImplicitAutograd", lambda x, scale: x * scale + x.sin(), lib=library
    )

    def f(x: Tensor) -> Tensor:
        return getattr(getattr(torch.ops, library.ns), base)(x, 2.0).exp()

    return f, [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def operator_under_vmap() -> Made:
    @torch.library.custom_op(_name("negate"), mutates_args=())
    def negate(x: Tensor) -> Tensor:
        return -x

    negate.register_fake(lambda x: torch.empty_like(x))
    negate.register_vmap(lambda info, dims, x: (negate(x), dims[0]))
    return lambda x: torch.vmap(negate)(x + 1), [(torch.randn(3, 2),)]


@program(SECTION)
def operator_without_a_fake() -> Made:
    @torch.library.custom_op(_name("opaque"), mutates_args=())
    def opaque(x: Tensor) -> Tensor:
        return x.flip(0).contiguous()

    return lambda x: opaque(x * 2), [(torch.randn(4),)]


@program(SECTION, needs="cuda")
def operator_of_a_triton_kernel() -> Made:
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x: Any, out: Any, n: Any, block: tl.constexpr) -> None:
        where = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + where, tl.load(x + where, where < n) * 2, where < n)

    @torch.library.triton_op(_name("triton_twice"), mutates_args=())
    def twice(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), 16)
        return out

    return lambda x: twice(x).sin(), [(torch.randn(20, device="cuda"),)]


@program(SECTION)
def operator_inside_a_module() -> Made:
    @torch.library.custom_op(_name("gate"), mutates_args=())
    def gate(x: Tensor, w: Tensor) -> Tensor:
        return x * torch.sigmoid(w)

    gate.register_fake(lambda x, w: torch.empty_like(x))
    gate.register_autograd(
        lambda ctx, g: (g * ctx.saved_tensors[1].sigmoid(), (g * ctx.saved_tensors[0]).sum(0)),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )

    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return gate(x, self.w) + x

    return Gated(), [(torch.randn(2, 4),)]
