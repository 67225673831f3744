"""Classes, descriptors and the rest of the language in a compiled program."""

from __future__ import annotations

import abc
import copy
import inspect
import operator
import typing

import torch
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "Python language"


@program(SECTION)
def object_updated_in_place() -> Made:
    class Average:
        def __init__(self) -> None:
            self.total, self.n = torch.zeros(3), 0

        def update(self, x: Tensor) -> Tensor:
            self.total = self.total + x
            self.n += 1
            return self.total / self.n

    average = Average()
    return lambda x: average.update(x) * 2, [(torch.ones(3),), (torch.zeros(3),)], average


@program(SECTION)
def operators_overloaded() -> Made:
    class Complex:
        def __init__(self, re: Tensor, im: Tensor) -> None:
            self.re, self.im = re, im

        def __mul__(self, other: Complex) -> Complex:
            return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

        def __abs__(self) -> Tensor:
            return (self.re**2 + self.im**2).sqrt()

    return lambda a, b: abs(Complex(a, b) * Complex(b, a)), [(torch.rand(3), torch.rand(3))]


@program(SECTION)
def property_and_setter() -> Made:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._scale = 2.0

        @property
        def scale(self) -> float:
            return self._scale

        @scale.setter
        def scale(self, value: float) -> None:
            self._scale = min(value, 10.0)

        def forward(self, x: Tensor) -> Tensor:
            self.scale = self.scale * 3
            return x * self.scale

    return Scaled(), [(torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def abstract_strategy() -> Made:
    class Strategy(abc.ABC):
        @abc.abstractmethod
        def apply(self, x: Tensor) -> Tensor: ...

    class Sine(Strategy):
        def apply(self, x: Tensor) -> Tensor:
            return x.sin()

    class Twice(Strategy):
        def apply(self, x: Tensor) -> Tensor:
            return x * 2

    def f(x: Tensor, strategies: list[Strategy]) -> Tensor:
        for strategy in strategies:
            x = strategy.apply(x)
        return x

    return f, [(torch.ones(3), [Sine(), Twice()]), (torch.ones(3), [Twice()])]


@program(SECTION)
def super_and_class_methods() -> Made:
    class Base(nn.Module):
        scale = 2.0

        @classmethod
        def factor(cls) -> float:
            return cls.scale

        @staticmethod
        def shift(x: Tensor) -> Tensor:
            return x + 1

        def forward(self, x: Tensor) -> Tensor:
            return self.shift(x) * self.factor()

    class Derived(Base):
        scale = 3.0

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).sin()

    return Derived(), [(torch.randn(3),)]


@program(SECTION)
def custom_descriptor() -> Made:
    class Clamped:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, holder: object, owner: type) -> float:
            return getattr(holder, self.name, 1.0)

        def __set__(self, holder: object, value: float) -> None:
            setattr(holder, self.name, max(0.0, value))

    class Settings:
        rate = Clamped()

    settings = Settings()

    def f(x: Tensor, rate: float) -> Tensor:
        settings.rate = rate
        return x * settings.rate

    return f, [(torch.ones(3), 2.0), (torch.ones(3), -1.0)], settings


@program(SECTION)
def getattr_fallback() -> Made:
    class Lazy(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> typing.Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.weight.sum() + self.in_features

    return Lazy(nn.Linear(3, 2)), [(torch.randn(2, 3),)]


@program(SECTION)
def container_protocols() -> Made:
    class Bag:
        def __init__(self, items: list[Tensor]) -> None:
            self.items = items

        def __len__(self) -> int:
            return len(self.items)

        def __getitem__(self, i: int) -> Tensor:
            return self.items[i]

        def __iter__(self) -> typing.Iterator[Tensor]:
            return iter(self.items)

        def __contains__(self, n: int) -> bool:
            return 0 <= n < len(self.items)

    def f(bag: Bag) -> Tensor:
        return sum(bag) / len(bag) + (bag[0] if 0 in bag else 0)

    return f, [(Bag([torch.randn(3), torch.randn(3)]),)]


@program(SECTION)
def context_manager_class() -> Made:
    class Recorded:
        def __init__(self, log: list[str]) -> None:
            self.log = log

        def __enter__(self) -> Recorded:
            self.log.append("in")
            return self

        def __exit__(self, *error: object) -> bool:
            self.log.append("out" if error[0] is None else "failed")
            return False

    log: list[str] = []

    def f(x: Tensor) -> Tensor:
        with Recorded(log) as r:
            y = x * len(r.log)
        return y.sin()

    return f, [(torch.ones(3),), (torch.ones(3),)], log


@program(SECTION)
def keyword_only_and_defaults() -> Made:
    def scaled(x: Tensor, /, *rest: Tensor, by: float = 2.0, **more: float) -> Tensor:
        return x * by + sum(rest) + sum(more.values())

    def f(x: Tensor) -> Tensor:
        options = {"shift": 1.0, "by": 3.0}
        return scaled(x, x, x, **options) - scaled(x)

    return f, [(torch.randn(3),)]


@program(SECTION)
def mutable_default_argument() -> Made:
    def f(x: Tensor, seen: list[int] = []) -> Tensor:
        seen.append(x.shape[0])
        return x * len(seen)

    return f, [(torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def star_unpacking_and_walrus() -> Made:
    def f(x: Tensor) -> Tensor:
        first, *middle, last = x.unbind()
        if (n := len(middle)) > 1:
            first = first * n
        return torch.stack([last, *middle, first])

    return f, [(torch.randn(4),), (torch.randn(3),)]


@program(SECTION)
def match_on_structure() -> Made:
    def f(x: Tensor, op: typing.Any) -> Tensor:
        match op:
            case {"name": "scale", "by": by}:
                return x * by
            case ("shift", float() | int() as by):
                return x + by
            case [first, *rest]:
                return x * len(rest) + first
            case _:
                return x.sin()

    return f, [
        (torch.ones(3), {"name": "scale", "by": 2}),
        (torch.ones(3), ("shift", 3)),
        (torch.ones(3), [1, 2, 3]),
        (torch.ones(3), None),
    ]


@program(SECTION)
def sorting_modules_by_a_key() -> Made:
    def f(x: Tensor, scales: dict[str, float]) -> Tensor:
        for name, scale in sorted(scales.items(), key=operator.itemgetter(1), reverse=True):
            x = x * scale + len(name)
        return x

    return f, [(torch.ones(3), {"a": 1.0, "bb": 3.0, "ccc": 2.0})]


@program(SECTION)
def signature_inspected() -> Made:
    def target(x: Tensor, scale: float = 2.0) -> Tensor:
        return x * scale

    def f(x: Tensor, options: dict[str, float]) -> Tensor:
        known = inspect.signature(target).parameters
        return target(x, **{k: v for k, v in options.items() if k in known})

    return f, [(torch.ones(3), {"scale": 3.0, "unknown": 1.0})]


@program(SECTION)
def deep_copied_configuration() -> Made:
    base = {"dims": [1, 2], "scale": 3.0}

    def f(x: Tensor) -> Tensor:
        mine = copy.deepcopy(base)
        mine["dims"].append(4)
        return x * sum(mine["dims"]) + len(base["dims"])

    return f, [(torch.ones(3),)], base


@program(SECTION)
def global_counter() -> Made:
    _COUNTER["calls"] = 0
    return lambda x: _counted(x), [(torch.ones(3),), (torch.ones(3),)], _COUNTER


_COUNTER = {"calls": 0}


def _counted(x: Tensor) -> Tensor:
    _COUNTER["calls"] += 1
    return x + 1


@program(SECTION)
def type_of_an_argument() -> Made:
    def f(x: Tensor, k: typing.Any) -> Tensor:
        if isinstance(k, bool):
            return x if k else -x
        if type(k) in (int, float):
            return x * k
        return x + k[0] if hasattr(k, "__getitem__") else x

    return f, [(torch.ones(3), True), (torch.ones(3), 2), (torch.ones(3), 2.5), (torch.ones(3), (4,))]


@program(SECTION)
def slots_and_class_attributes() -> Made:
    class Point:
        __slots__ = ("x", "y")
        made = 0

        def __init__(self, x: Tensor, y: Tensor) -> None:
            self.x, self.y = x, y
            type(self).made += 1

    def f(x: Tensor) -> Tensor:
        p = Point(x, x + 1)
        return p.x * p.y + Point.made

    return f, [(torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def recursion_over_a_tree() -> Made:
    def total(tree: typing.Any) -> Tensor:
        if isinstance(tree, Tensor):
            return tree.sum()
        children = tree.values() if isinstance(tree, dict) else tree
        return sum((total(child) for child in children), torch.zeros(()))

    return total, [({"a": torch.randn(2), "b": [torch.randn(3), {"c": torch.randn(1)}]},)]


@program(SECTION)
def iterator_class() -> Made:
    class Countdown:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Countdown:
            return self

        def __next__(self) -> int:
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    return lambda x: torch.stack([x * i for i in Countdown(3)]), [(torch.randn(3),)]


@program(SECTION)
def zip_enumerate_any_all() -> Made:
    def f(xs: list[Tensor], ws: list[float]) -> Tensor:
        assert all(w > 0 for w in ws) and not any(x.dim() > 1 for x in xs)
        pairs = zip(xs, ws, strict=True)
        return torch.stack([x * w + i for i, (x, w) in enumerate(pairs, start=1)]).amax(0)

    return f, [([torch.randn(3), torch.randn(3)], [1.0, 2.0])]


@program(SECTION)
def attribute_by_name() -> Made:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model.order = ["b", "a"]

    def f(x: Tensor, activation: str) -> Tensor:
        for name in model.order:
            x = getattr(torch, activation)(getattr(model, name)(x))
        return x

    return f, [(torch.randn(2, 3), "tanh"), (torch.randn(2, 3), "sigmoid")], model


@program(SECTION)
def bound_method_as_an_argument() -> Made:
    class Scaler:
        def __init__(self, by: float) -> None:
            self.by = by

        def scale(self, x: Tensor) -> Tensor:
            return x * self.by

    return lambda x, f: f(x).sin(), [(torch.ones(3), Scaler(2.0).scale), (torch.ones(3), Scaler(3.0).scale)]


@program(SECTION)
def callable_object_compiled() -> Made:
    class Blur:
        def __init__(self) -> None:
            self.kernel = torch.ones(1, 1, 3, 3) / 9

        def __call__(self, x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.kernel, padding=1)

    return Blur().__call__, [(torch.randn(1, 1, 5, 5),), (torch.randn(1, 1, 7, 7),)]
