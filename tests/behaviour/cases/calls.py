"""How functions are called and made: arguments, closures, partials, caches, generators, decorators."""

# ruff: noqa: C416 (the odd ways of writing are what is tested)

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .table import case


@case()
def keyword_only(x: Tensor) -> Tensor:
    def scaled(y: Tensor, /, *, by: float, plus: float = 1.0) -> Tensor:
        return y * by + plus

    return scaled(x, by=2.0) + scaled(x, plus=0.5, by=1.0)


@case()
def forwards_star_arguments(x: Tensor) -> Tensor:
    def inner(*args: Tensor, **kwargs: float) -> Tensor:
        return sum(args, torch.zeros(3, 4)) * kwargs.get("by", 1.0)

    def outer(*args: Any, **kwargs: Any) -> Tensor:
        return inner(*args, x, *args[:1], **{**kwargs, "by": 3.0})

    return outer(x + 1, other=2)


@case(arguments=lambda: ((torch.ones(2), torch.ones(2) * 2), {"scale": 3.0}))
def star_call_of_arguments(pair: Any, options: Any) -> Tensor:
    return torch.add(*pair, alpha=options["scale"]).clamp(min=0.5)


@case()
def partial_of_partial(x: Tensor) -> Any:
    first = functools.partial(torch.clamp, min=-1.0)
    second = functools.partial(first, max=1.0)
    return second(x), second.keywords["max"], second.func is torch.clamp


@functools.cache
def _cached(n: int) -> list[int]:
    return [i * i for i in range(n)]


@case()
def cached_function(x: Tensor) -> Tensor:
    return x * _cached(3)[2] + sum(_cached(4))


@case()
def nonlocal_counter(x: Tensor) -> Any:
    count = 0

    def bump(y: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return y + count

    return bump(bump(x)), count


@case(factory=True)
def closure_over_mutable_state() -> Callable[[Tensor], Any]:
    total = 0
    seen: list[int] = []

    def run(x: Tensor) -> Any:
        nonlocal total
        total += x.shape[0]
        seen.append(total)
        return x + total, list(seen)

    return run


@case(graphs=0, breaks=("generator-function",))
def generator_with_return_and_cleanup(x: Tensor) -> Any:
    log: list[str] = []

    def parts(n: int) -> Iterator[Tensor]:
        try:
            for i in range(n):
                yield x * i
        finally:
            log.append("closed")

    first = [part for part in parts(2)]
    for part in parts(5):
        first.append(part + 1)
        break
    return first, len(log) >= 1


@case()
def generator_that_receives(x: Tensor) -> Any:
    def running() -> Any:
        total = x * 0
        while True:
            given = yield total
            if given is None:
                return
            total = total + given

    made = running()
    next(made)
    return [made.send(x), made.send(x * 2)]


@case()
def generator_expression_and_any(x: Tensor) -> Any:
    sizes = (s for s in x.shape)
    return any(s > 3 for s in sizes), all(s > 3 for s in x.shape), max(s for s in x.shape), x.relu()


def _logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) + 1

    return wrapper


@_logged
def _decorated(x: Tensor, power: int = 2) -> Tensor:
    return x**power


@case()
def decorated_function(x: Tensor) -> Any:
    return _decorated(x), _decorated(x, power=3), _decorated.__name__


@case()
def lambda_defaults(x: Tensor) -> Tensor:
    functions = [lambda y, i=i: y * i for i in range(3)]
    return sum((f(x) for f in functions), x)


@case()
def recursion(x: Tensor) -> Tensor:
    def descend(y: Tensor, depth: int) -> Tensor:
        return y if depth == 0 else descend(y * 2, depth - 1) + 1

    return descend(x, 4)


@torch.no_grad()
def _without_gradients(x: Tensor) -> Tensor:
    return x * 2


@case(arguments=lambda: (torch.ones(3, requires_grad=True),))
def no_grad_decorator(x: Tensor) -> Any:
    y = _without_gradients(x)
    return y, y.requires_grad, torch.is_grad_enabled()


@case(factory=True, arguments=lambda: (torch.ones(3, requires_grad=True),))
def decorated_with_no_grad_from_outside() -> Callable[[Tensor], Any]:
    return torch.no_grad()(lambda x: (x * 2).requires_grad)


@contextlib.contextmanager
def _scaled(x: Tensor, by: float) -> Iterator[Tensor]:
    try:
        yield x * by
    except ValueError:
        pass


@case()
def context_manager_from_a_generator(x: Tensor) -> Tensor:
    with _scaled(x, 2.0) as y:
        x = y + 1
        raise ValueError
    return x


@case(factory=True)
def bound_method() -> Callable[[Tensor], Any]:
    class Model:
        def __init__(self) -> None:
            self.calls = 0

        def run(self, x: Tensor) -> Any:
            self.calls += 1
            return x * self.calls, self.calls

    return Model().run


@case(factory=True)
def callable_object() -> Callable[[Tensor], Any]:
    class Model:
        scale = 2.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.scale

    return Model()


@case(factory=True)
def partial_from_outside() -> Callable[[Tensor], Any]:
    return functools.partial(lambda scale, x, plus: x * scale + plus, 2.0, plus=1)


@case(arguments=lambda: (torch.ones(2), torch.nn.functional.relu))
def function_argument(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return function(x - 2)


@case(graphs=1)
def operator_functions(x: Tensor) -> Any:
    import operator

    pick = operator.itemgetter(1)
    shape = operator.attrgetter("shape")
    return operator.add(x, 1), pick([x, x * 2]), shape(x)[0], operator.methodcaller("relu")(x)


@case(arguments=lambda: (torch.ones(2),))
def missing_argument_is_a_type_error(x: Tensor) -> Any:
    def two(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    try:
        return two(x)  # type: ignore[call-arg]
    except TypeError:
        return x - 1


@functools.cache
def _version(package: str) -> int:
    import importlib.metadata

    return len(importlib.metadata.version(package))


@case()
def cached_function_that_cannot_be_traced(x: Tensor) -> Tensor:
    return x * _version("torch") + _version("torch")
