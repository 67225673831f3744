"""Tensor subclasses and modes: `__torch_function__`, wrappers through `__tensor_flatten__`, as arguments, results and parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..registry import Made, program

SECTION = "tensor subclasses"


class Named(Tensor):
    """Carries its name through every operation."""

    label = "none"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Logged(Tensor):
    """Doubles what addition returns."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * 2 if func in (torch.add, Tensor.add) else out


class TwoTensor(Tensor):
    """Two tensors that every operation goes through."""

    @staticmethod
    def __new__(cls, a: Tensor, b: Tensor) -> TwoTensor:
        return Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device, requires_grad=a.requires_grad
        )

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b

    def __repr__(self) -> str:
        return "TwoTensor"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, size: Any, stride: Any) -> TwoTensor:
        return TwoTensor(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sides = [
            func(*pytree.tree_map_only(TwoTensor, lambda t, s=side: getattr(t, s), args), **(kwargs or {}))
            for side in "ab"
        ]
        return pytree.tree_map(lambda a, b: TwoTensor(a, b) if isinstance(a, Tensor) else a, *sides)


class Int8Weight(Tensor):
    """A weight kept in int8 with a scale for each row."""

    @staticmethod
    def __new__(cls, data: Tensor, scale: Tensor) -> Int8Weight:
        return Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data: Tensor, scale: Tensor) -> None:
        self.data8, self.scale = data, scale

    @classmethod
    def of(cls, weight: Tensor) -> Int8Weight:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["data8", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], meta: Any, size: Any, stride: Any) -> Int8Weight:
        return cls(inner["data8"], inner["scale"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, w, *bias = args
            out = (x @ w.data8.to(x.dtype).t()) * w.scale.squeeze(1)
            return out + bias[0] if bias and bias[0] is not None else out
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].data8, args[0].scale)
        raise NotImplementedError(str(func))


@program(SECTION)
def subclass_as_an_argument() -> Made:
    return lambda x: x.sin() + 1, [(torch.ones(3).as_subclass(Named),), (torch.zeros(3).as_subclass(Named),)]


@program(SECTION)
def subclass_with_a_plain_tensor() -> Made:
    return lambda x, y: torch.add(x, y).relu(), [(torch.ones(3).as_subclass(Logged), torch.randn(3))]


@program(SECTION)
def subclass_that_changes_an_operation() -> Made:
    return lambda x: torch.add(x, 1) - x, [(torch.ones(3).as_subclass(Logged),)]


@program(SECTION)
def subclass_made_inside() -> Made:
    return lambda x: (x * 2).as_subclass(Named).cos(), [(torch.randn(3),)]


@program(SECTION)
def subclass_asked_for() -> Made:
    def f(x: Tensor) -> Tensor:
        return x.exp() if isinstance(x, Named) else x.log()

    return f, [(torch.ones(3).as_subclass(Named),), (torch.ones(3),)]


@program(SECTION)
def subclass_with_gradients() -> Made:
    x = torch.randn(3).as_subclass(Named).requires_grad_()
    return lambda y: (y * y).sum(), [(x,)]


@program(SECTION)
def subclass_parameter() -> Made:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(3).as_subclass(Named))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.w

    return Scaled(), [(torch.randn(2, 3),)]


@program(SECTION)
def subclass_unwrapped() -> Made:
    return lambda x: x.as_subclass(Tensor) * 2, [(torch.ones(3).as_subclass(Logged),)]


@program(SECTION)
def subclass_with_methods() -> Made:
    class Boxes(Tensor):
        def area(self) -> Tensor:
            return (self[:, 2] - self[:, 0]) * (self[:, 3] - self[:, 1])

    return lambda b: b.area() / b.area().sum(), [(torch.rand(3, 4).as_subclass(Boxes),)]


@program(SECTION)
def function_mode_counting_calls() -> Made:
    seen: list[str] = []

    class Count(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def f(x: Tensor) -> Tensor:
        with Count():
            return torch.sin(x) + torch.cos(x)

    return f, [(torch.randn(3),)], seen


@program(SECTION)
def function_mode_replacing_an_operation() -> Made:
    class NoRelu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.relu:
                return args[0] * 0.5
            return func(*args, **(kwargs or {}))

    def f(x: Tensor) -> Tensor:
        with NoRelu():
            y = torch.relu(x)
        return y + torch.relu(x)

    return f, [(torch.randn(3),)]


@program(SECTION)
def function_mode_around_the_call() -> Made:
    class Shift(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return out + 1 if func is torch.sin else out

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with Shift():
                return self.inner(x)

        def inner(self, x: Tensor) -> Tensor:
            return torch.sin(x) * torch.cos(x)

    return Model(), [(torch.randn(3),)]


@program(SECTION)
def device_mode_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.device("cpu"):
            return x + torch.ones(3) + torch.arange(3)

    return f, [(torch.randn(3),)]


@program(SECTION)
def wrapper_as_an_argument() -> Made:
    return lambda x: x.sin() * 2 + x, [(TwoTensor(torch.randn(3), torch.randn(3)),)]


@program(SECTION)
def wrapper_made_inside() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        both = TwoTensor(x, y) * 2
        return both.a + both.b

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def wrapper_as_a_result() -> Made:
    return lambda x: TwoTensor(x.sin(), x.cos()).relu(), [(torch.randn(4),)]


@program(SECTION)
def wrapper_with_a_plain_tensor() -> Made:
    return lambda x, y: (x @ y).softmax(-1), [(TwoTensor(torch.randn(2, 3), torch.randn(2, 3)), torch.randn(3, 2))]


@program(SECTION)
def wrapper_with_gradients() -> Made:
    x = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
    return lambda y: (y * y).exp(), [(x,)]


@program(SECTION)
def wrapper_parameters() -> Made:
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(TwoTensor(torch.randn(2, 3), torch.randn(2, 3)))
    return lambda x: layer(x).relu(), [(torch.randn(4, 3),)], layer


@program(SECTION)
def wrapper_of_changing_size() -> Made:
    def both(n: int) -> TwoTensor:
        return TwoTensor(torch.randn(n, 3), torch.randn(n, 3))

    return lambda x: x.mean(0) + x.sum(), [(both(2),), (both(4),), (both(5),)]


@program(SECTION)
def wrapper_written_in_place() -> Made:
    return lambda x: x.mul_(2).add_(1).sum(), [(TwoTensor(torch.randn(3), torch.randn(3)),)]


@program(SECTION)
def int8_weight_in_a_linear() -> Made:
    layer = nn.Linear(4, 3).requires_grad_(False)
    layer.weight = nn.Parameter(Int8Weight.of(layer.weight), requires_grad=False)
    return lambda x: layer(x).relu(), [(torch.randn(2, 4),), (torch.randn(5, 4),)]


@program(SECTION)
def int8_weight_as_an_argument() -> Made:
    return lambda x, w: nn.functional.linear(x, w), [(torch.randn(2, 4), Int8Weight.of(torch.randn(3, 4)))]


@program(SECTION)
def jagged_as_an_argument() -> Made:
    parts = [torch.randn(n, 3) for n in (2, 4, 1)]
    return lambda x: (x * 2).sin(), [(torch.nested.nested_tensor(parts, layout=torch.jagged),)]


@program(SECTION)
def jagged_made_from_offsets() -> Made:
    def f(values: Tensor, offsets: Tensor) -> Tensor:
        nested = torch.nested.nested_tensor_from_jagged(values, offsets)
        return (nested.relu() + 1).values()

    return f, [(torch.randn(7, 3), torch.tensor([0, 2, 6, 7]))]


@program(SECTION)
def jagged_through_a_linear() -> Made:
    layer = nn.Linear(3, 2)
    parts = [torch.randn(n, 3) for n in (2, 3)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return lambda x: layer(x), [(nested,)], layer


@program(SECTION)
def jagged_padded() -> Made:
    parts = [torch.randn(n, 3) for n in (2, 3)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return lambda x: torch.nested.to_padded_tensor(x, 0.0) * 2, [(nested,)]
