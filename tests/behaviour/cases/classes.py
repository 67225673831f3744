"""Classes made and used: properties, descriptors, inheritance, special methods, slots, attribute hooks."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from .table import case

T = TypeVar("T")


class Positive:
    """A descriptor that stores under another name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, owner: type) -> Any:
        return self if obj is None else getattr(obj, self.name)

    def __set__(self, obj: Any, value: Any) -> None:
        setattr(obj, self.name, abs(value))


class Base(abc.ABC):
    factor = 2
    size = Positive()

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.size = -3

    @abc.abstractmethod
    def scaled(self) -> Tensor: ...

    @property
    def doubled(self) -> Tensor:
        return self.x * 2

    @doubled.setter
    def doubled(self, value: Tensor) -> None:
        self.x = value / 2

    @functools.cached_property
    def expensive(self) -> Tensor:
        return self.x.exp()

    @classmethod
    def make(cls, x: Tensor) -> Base:
        return cls(x)

    @staticmethod
    def plus(x: Tensor) -> Tensor:
        return x + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Base) and self.factor == other.factor

    def __hash__(self) -> int:
        return hash(self.factor)

    def __contains__(self, item: int) -> bool:
        return item == self.size

    def __iter__(self) -> Iterator[Any]:
        yield self.x
        yield self.size

    def __len__(self) -> int:
        return self.size


class Derived(Base):
    factor = 3

    def __init__(self, x: Tensor, extra: float = 1.0) -> None:
        super().__init__(x)
        self.extra = extra

    def scaled(self) -> Tensor:
        return self.x * self.factor + self.extra

    def __add__(self, other: Any) -> Derived:
        return type(self)(self.x + (other.x if isinstance(other, Derived) else other))

    __radd__ = __add__

    def __neg__(self) -> Derived:
        return Derived(-self.x)

    def __bool__(self) -> bool:
        return self.extra > 0


class Mixin:
    def scaled(self) -> Any:
        return super().scaled() * 10  # type: ignore[misc]


class Mixed(Mixin, Derived):
    pass


class Slotted(Generic[T]):
    __slots__ = ("count", "x")

    def __init__(self, x: T) -> None:
        self.x = x
        self.count = 0


class Proxy:
    """Forwards every attribute, and notes what was set."""

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "names", [])

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "target"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.names.append(name)
        object.__setattr__(self, name, value)


@case()
def properties_and_descriptors(x: Tensor) -> Any:
    made = Derived.make(x)
    made.doubled = x * 4
    made.size = -5
    return made.doubled, made.size, made.expensive, made.expensive is made.expensive, made.plus(x)


@case()
def inheritance_and_mixins(x: Tensor) -> Any:
    made = Mixed(x, extra=2.0)
    return (
        made.scaled(),
        isinstance(made, Base),
        issubclass(Mixed, Mixin),
        type(made).__name__,
        Mixed.__mro__[1].__name__,
    )


@case()
def special_methods(x: Tensor) -> Any:
    a, b = Derived(x), Derived(x + 1)
    c = 1 + (a + b)
    return c.x, (-a).x, a == b, a != b, 3 in a, list(a)[1], len(a), bool(a)


@case()
def slots_and_generics(x: Tensor) -> Any:
    made = Slotted[Tensor](x)
    made.count += 2
    return made.x * made.count, made.count


@case()
def attribute_hooks(x: Tensor) -> Any:
    made = Proxy(Derived(x))
    made.extra = 7
    made.note = x + 1
    return made.scaled(), made.note, made.names, made.extra


@case(factory=True)
def attributes_of_an_object_from_outside() -> Callable[[Tensor], Any]:
    state = Derived(torch.ones(3, 4))

    def run(x: Tensor) -> Any:
        state.extra += 1
        state.doubled = x
        state.last = x * state.extra
        del state.last
        return state.scaled(), state.extra, hasattr(state, "last")

    return run


@case(factory=True)
def slots_of_an_object_from_outside() -> Callable[[Tensor], Any]:
    state: Slotted[Any] = Slotted(torch.ones(3, 4))

    def run(x: Tensor) -> Any:
        state.count += 1
        state.x = state.x + x
        return state.x * state.count

    return run


@case()
def getattr_setattr_by_name(x: Tensor) -> Any:
    made = Derived(x)
    for name in ("extra", "more"):
        setattr(made, name, getattr(made, name, 5) * 2)
    return made.scaled(), made.more, vars(made)["more"], "extra" in made.__dict__  # type: ignore[attr-defined]


@case()
def class_attribute_of_instance_shadowed(x: Tensor) -> Any:
    made = Derived(x)
    made.factor = 10
    return made.scaled(), Derived.factor, Derived(x).scaled()


@case()
def exceptions_with_own_class(x: Tensor) -> Any:
    class_of_error = Failed
    try:
        try:
            raise class_of_error("why", x.shape[0])
        except Failed as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        cause = error.__cause__
        return x + 1, type(cause).__name__, cause.size, str(error)  # type: ignore[union-attr]


class Failed(Exception):
    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


@case(graphs=0, breaks=("uncaught-exception",))
def raises_own_class(x: Tensor) -> Any:
    raise Failed("never caught", x.shape[0])


@case()
def callable_instances_and_bound_methods_kept(x: Tensor) -> Any:
    made = Derived(x)
    method = made.scaled
    table = {"m": method, "f": Derived.plus}
    return table["m"](), table["f"](x), method.__self__ is made
