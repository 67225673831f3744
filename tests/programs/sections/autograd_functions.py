"""`torch.autograd.Function` in the forms that users write it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..registry import Made, program

SECTION = "autograd.Function"


@program(SECTION)
def function_saving_for_backward() -> Made:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 3 * grad * x

    return lambda x: Square.apply(x).sin(), [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def function_with_setup_context() -> Made:
    class Clip(Function):
        @staticmethod
        def forward(x: Tensor, limit: float) -> Tensor:
            return x.clamp(-limit, limit)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.limit = inputs[1]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.limit, None

    return lambda x: Clip.apply(x, 0.5) + 1, [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def function_straight_through() -> Made:
    class Round(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.round()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    def f(x: Tensor, scale: Tensor) -> Tensor:
        return Round.apply(x / scale) * scale

    return f, [(torch.randn(4, requires_grad=True), torch.tensor(0.25, requires_grad=True))]


@program(SECTION)
def function_marking_dirty() -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    def f(x: Tensor) -> Tensor:
        y = x * 1.5
        Double.apply(y)
        return y.exp()

    return f, [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def function_once_differentiable() -> Made:
    class Abs(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x.sign())
            return x.abs()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0]

    return lambda x: Abs.apply(x * 2), [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def function_without_gradient_of_an_output() -> Made:
    class TopOne(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            values, indices = x.max(-1)
            ctx.save_for_backward(indices)
            ctx.mark_non_differentiable(indices)
            ctx.size = x.shape[-1]
            return values, indices

        @staticmethod
        def backward(ctx: Any, grad: Tensor, _: Any) -> Tensor:
            (indices,) = ctx.saved_tensors
            return torch.nn.functional.one_hot(indices, ctx.size) * grad.unsqueeze(-1)

    return lambda x: TopOne.apply(x * 2), [(torch.randn(3, 4, requires_grad=True),)]


@program(SECTION)
def function_with_a_dict_argument() -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, options: dict[str, Any]) -> Tensor:
            ctx.options = options
            return x * options["scale"] if options["on"] else x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.options["scale"], None

    return lambda x: Scale.apply(x, {"scale": 3.0, "on": True}), [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def function_with_a_list_of_tensors() -> Made:
    class SumAll(Function):
        @staticmethod
        def forward(ctx: Any, parts: list[Tensor], *rest: Tensor) -> Tensor:
            ctx.count = len(rest)
            return torch.stack([*parts, *rest]).sum(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            return None, *[grad * (i + 1) for i in range(ctx.count)]

    def f(a: Tensor, b: Tensor) -> Tensor:
        return SumAll.apply([a.detach(), b.detach()], a, b)

    return f, [(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))]


@program(SECTION)
def function_with_plain_arguments() -> Made:
    class Pool(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, size: int, mode: str, keep: bool = True) -> Tensor:
            ctx.shape, ctx.size = x.shape, size
            parts = x.unflatten(-1, (-1, size))
            return parts.mean(-1, keepdim=keep) if mode == "mean" else parts.amax(-1, keepdim=keep)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            return (grad / ctx.size).expand(*grad.shape[:-1], ctx.size).reshape(ctx.shape), None, None, None

    return lambda x: Pool.apply(x, 2, "mean"), [
        (torch.randn(3, 4, requires_grad=True),),
        (torch.randn(3, 6, requires_grad=True),),
    ]


@program(SECTION)
def function_asking_needs_input_grad() -> Made:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
            a, b = ctx.saved_tensors
            return (
                grad @ b.mT if ctx.needs_input_grad[0] else None,
                a.mT @ grad if ctx.needs_input_grad[1] else None,
            )

    return lambda a, b: Product.apply(a, b).tanh(), [(torch.randn(2, 3, requires_grad=True), torch.randn(3, 2))]


@program(SECTION)
def function_with_vmap_rule() -> Made:
    class Cube(Function):
        @staticmethod
        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output[1])
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx: Any, grad: Tensor, _: Any) -> Tensor:
            return grad * ctx.saved_tensors[0]

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
            return Cube.apply(x), (in_dims[0], in_dims[0])

    return lambda x: torch.vmap(lambda row: Cube.apply(row)[0].sum())(x), [(torch.randn(3, 4, requires_grad=True),)]


@program(SECTION)
def function_generating_its_vmap() -> Made:
    class Sine(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].cos()

    return lambda x: torch.func.grad(lambda y: Sine.apply(y).sum())(x), [(torch.randn(4),)]


@program(SECTION)
def function_with_materialized_grads_off() -> Made:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Tensor | None:
            parts = [g * k for g, k in ((a, 2), (b, 3)) if g is not None]
            return sum(parts) if parts else None

    def f(x: Tensor) -> Tensor:
        first, _ = Two.apply(x)
        return first.exp()

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def function_reversing_gradients() -> Made:
    class Reverse(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
            ctx.alpha = alpha
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return -ctx.alpha * grad, None

    layer = torch.nn.Linear(3, 2)

    def f(x: Tensor, alpha: float) -> Tensor:
        return layer(Reverse.apply(x, alpha))

    return f, [(torch.randn(2, 3, requires_grad=True), 0.5), (torch.randn(2, 3, requires_grad=True), 0.9)], layer


@program(SECTION)
def function_calling_another_in_backward() -> Made:
    class Inner(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 5

    class Outer(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return Inner.apply(x) + 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Inner.apply(grad)

    return lambda x: Inner.apply(Outer.apply(x)), [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def function_with_a_jvp() -> Made:
    class Exp(Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.exp()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx: Any, tangent: Tensor) -> Tensor:
            return tangent * ctx.saved_tensors[0]

    return lambda x: torch.func.jvp(Exp.apply, (x,), (torch.ones_like(x),)), [(torch.randn(3),)]


@program(SECTION)
def function_that_prints_in_backward() -> Made:
    class Probe(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            print("gradient of shape", tuple(grad.shape))
            return grad

    return lambda x: Probe.apply(x * 2).sin(), [(torch.randn(3, requires_grad=True),)]
