"""Weights in fewer bits, as libraries of quantisation hold them: subclasses that name their tensors in lists and look up in tables what becomes of operations."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau.accounting import counters

from ..comparison import assert_same

MOVED: list[str] = []


class Base(Tensor):
    """What the classes have in common: everything goes by the names in lists."""

    tensors: ClassVar[list[str]]
    optional: ClassVar[list[str]]
    attributes: ClassVar[list[str]]
    operators: ClassVar[dict[type, dict[Any, Any]]]
    functions: ClassVar[dict[type, dict[Any, Any]]]

    def __init_subclass__(cls) -> None:
        cls.operators, cls.functions = {cls: {}}, {cls: {}}
        aten = torch.ops.aten

        @cls.implements(aten.detach.default, aten.clone.default, aten.alias.default)
        def _(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            return args[0].applied(lambda inner: func(inner, *args[1:], **kwargs))

        @cls.implements(aten._to_copy.default)
        def _(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            """It has an effect, and is of no matter where nothing is moved."""
            MOVED.append(cls.__name__)
            kwargs.pop("dtype", None)
            return args[0].applied(lambda inner: func(inner, **kwargs))

    @classmethod
    def implements(cls, *targets: Any) -> Callable[[Any], Any]:
        return cls._registers(cls.operators[cls], targets)

    @classmethod
    def implements_function(cls, *targets: Any) -> Callable[[Any], Any]:
        return cls._registers(cls.functions[cls], targets)

    @staticmethod
    def _registers(table: dict[Any, Any], targets: tuple[Any, ...]) -> Callable[[Any], Any]:
        def decorator(function: Any) -> Any:
            for target in targets:

                def wrapper(f: Any, types: Any, args: Any, kwargs: Any, _function: Any = function) -> Any:
                    return _function(f, types, args, kwargs)

                table[target] = wrapper
            return function

        return decorator

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        if not hasattr(self, "tensors"):
            raise NotImplementedError("it has no names")
        names = self.tensors.copy()
        for name in self.optional:
            if getattr(self, name) is not None:
                names.append(name)
        return names, {name: getattr(self, name) for name in self.attributes} | {"kind": type(self).__name__}

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], told: dict[str, Any], size: Any, stride: Any) -> Any:
        given = [inner[name] for name in cls.tensors]
        optional = {name: inner.get(name) for name in cls.optional}
        return cls(*given, *[told[name] for name in cls.attributes], **optional)

    def applied(self, function: Callable[[Tensor], Tensor]) -> Any:
        optional: dict[str, Any] = {}
        for name in self.optional:
            inner = getattr(self, name)
            optional[name] = None if inner is None else function(inner)
        given = [function(getattr(self, name)) for name in self.tensors]
        return self.__class__(*given, *[getattr(self, name) for name in self.attributes], **optional)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if hasattr(cls, "functions") and cls in cls.functions and func in cls.functions[cls]:
            return cls.functions[cls][func](func, types, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.operators[cls]:
            return cls.operators[cls][func](func, types, args, kwargs or {})
        raise NotImplementedError(f"{cls.__name__} has no {func}")


class Whole(Base):
    """Whole numbers, a factor for each row, maybe an offset."""

    tensors: ClassVar[list[str]] = ["packed", "scale"]
    optional: ClassVar[list[str]] = ["offset"]
    attributes: ClassVar[list[str]] = ["block", "dtype"]

    @staticmethod
    def __new__(
        cls: Any, packed: Tensor, scale: Tensor, block: list[int], dtype: torch.dtype, offset: Tensor | None = None
    ) -> Any:
        return Tensor._make_wrapper_subclass(cls, packed.shape, dtype=dtype, device=packed.device)

    def __init__(
        self, packed: Tensor, scale: Tensor, block: list[int], dtype: torch.dtype, offset: Tensor | None = None
    ) -> None:
        super().__init__()
        self.packed, self.scale, self.block, self.offset = packed, scale, block, offset

    @classmethod
    def of(cls, weight: Tensor, *, offset: bool = False) -> Any:
        scale = weight.abs().amax(1, keepdim=True) / 127
        packed = (weight / scale).round().to(torch.int8)
        return cls(packed, scale, [1, weight.shape[1]], weight.dtype, torch.ones(1) if offset else None)

    def plain(self) -> Tensor:
        found = self.packed.to(self.dtype)
        if self.offset is not None:
            found = found - self.offset
        return found * self.scale * (1 if self.block[0] == 1 else 2)


class Small(Whole):
    """Numbers of eight bits with a fraction."""

    @classmethod
    def of(cls, weight: Tensor, *, offset: bool = False) -> Any:
        scale = weight.abs().amax(1, keepdim=True) / 448
        return cls((weight / scale).to(torch.float8_e4m3fn), scale, [1, weight.shape[1]], weight.dtype)


def _linear(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    x, weight, bias = args[0], args[1], args[2] if len(args) > 2 else None
    found = torch.mm(x.reshape(-1, x.shape[-1]), weight.plain().t()).reshape(*x.shape[:-1], weight.shape[0])
    if bias is not None:
        found += bias
    return found


for _cls in (Whole, Small):
    _cls.implements_function(nn.functional.linear)(_linear)
    _cls.implements(torch.ops.aten.linear.default)(_linear)


def model(cls: Any, seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    for layer in (made[0], made[2]):
        assert isinstance(layer, nn.Linear)
        layer.weight = nn.Parameter(cls.of(layer.weight.detach(), **options), requires_grad=False)
    return made


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


classes = pytest.mark.parametrize("cls", [Whole, Small])


@classes
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_one_graph(cls: Any, dynamic: bool | None) -> None:
    """With other numbers of rows too, and in three dimensions."""
    plain = model(cls)
    compiled = flambeau.compile(plain, fullgraph=True, dynamic=dynamic)
    before = graphs()
    for size in ((4, 8), (5, 8), (6, 8), (7, 8)):
        x = torch.randn(size)
        assert_same(compiled(x), plain(x))
    assert graphs() - before == {None: 2, True: 1, False: 4}[dynamic]
    assert_same(compiled(torch.ones(2, 3, 8)), plain(torch.ones(2, 3, 8)))


@classes
def test_gradients(cls: Any) -> None:
    """Of the rows and of what is no weight."""
    plain = model(cls)
    compiled = flambeau.compile(plain, fullgraph=True)
    found = []
    for function in (plain, compiled):
        x = torch.linspace(-1, 1, 24).reshape(3, 8).requires_grad_()
        function(x).square().sum().backward()
        found.append([x.grad, *(value.grad for value in plain.parameters() if value.grad is not None)])
        plain.zero_grad()
    assert len(found[0]) == 3
    assert_same(found[1], found[0], strides=False)


@classes
def test_other_weights(cls: Any) -> None:
    """Weights of the same kind need no new graph, also where they were saved, loaded or copied; what is of another kind is noticed."""
    plain, other = model(cls), model(cls, seed=1)
    compiled = flambeau.compile(plain, fullgraph=True)
    x = torch.randn(3, 8)
    before = graphs()

    def check(made: int) -> None:
        assert_same(compiled(x), plain(x))
        assert graphs() - before == made

    def give(layer: int, value: Any) -> None:
        plain[layer].weight = nn.Parameter(value, requires_grad=False)

    with torch.no_grad():
        check(1)
        plain[0].weight = other[0].weight
        check(1)
        give(2, copy.deepcopy(other[2].weight))
        check(1)
        buffer = io.BytesIO()
        torch.save(other.state_dict(), buffer)
        buffer.seek(0)
        with torch.serialization.safe_globals([Whole, Small]):
            plain.load_state_dict(torch.load(buffer), assign=True)
        check(1)
        plain[0].weight.scale.mul_(2)
        check(1)
        plain[0].weight.block[0] = 2
        check(2)
        give(0, model(cls, seed=2)[0].weight)
        check(2)
        give(2, torch.randn(4, 16))
        assert_same(compiled(x), plain(x))
        give(2, Whole.of(torch.randn(4, 16), offset=True))
        assert_same(compiled(x), plain(x))
        give(2, Small.of(torch.randn(4, 16)))
        assert_same(compiled(x), plain(x))


@classes
def test_copies_of_a_model(cls: Any) -> None:
    plain = model(cls)
    x = torch.randn(3, 8)
    compiled = flambeau.compile(plain, fullgraph=True)
    expected = compiled(x)
    assert_same(copy.deepcopy(compiled)(x), expected)
    assert_same(flambeau.compile(copy.deepcopy(plain), fullgraph=True)(x), expected)
    buffer = io.BytesIO()
    torch.save(plain, buffer)
    buffer.seek(0)
    assert_same(flambeau.compile(torch.load(buffer, weights_only=False), fullgraph=True)(x), expected)


@pytest.mark.falls_back("a break where classes of tensors are not asked")
def test_what_has_effects_is_called_as_often_as_in_eager() -> None:
    weight = Whole.of(torch.randn(4, 8))

    def program(x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.linear(x * 2, weight.to(torch.float64)) + 1

    compiled = flambeau.compile(program)
    x = torch.randn(3, 8)
    for _ in range(3):
        MOVED.clear()
        assert_same(compiled(x, weight), program(x, weight))
        assert MOVED == ["Whole"] * 2
