"""Functions of sizes and of numbers that change: Python's own results, to the last bit, and few compilations.

Each expression is computed from the number of rows of an input, or from an argument, for six values; what compiles again for each value
is only what has to: text, containers of that length.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau

from ..comparison import run_as_it_is
from .counting import compilations

VALUES = (7, 4, 9, 12, 5, 20)
_MATH = (
    "ceil", "floor", "trunc", "sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "fabs", "gamma", "lgamma", "erf", "erfc", "degrees", "radians", "isfinite", "isnan", "cbrt", "exp2",
)  # fmt: skip
INTEGERS = (
    "n // 3", "n % 3", "n ** 2", "2 ** n", "divmod(n, 3)", "max(n, 5)", "min(n, 5, 8)", "abs(n - 8)", "-n", "n & 3", "n | 8", "n ^ 5", "n << 1",
    "n >> 1", "n > 6", "n == 9", "6 < n < 10", "bool(n)", "n and 3", "not n", "n.bit_length()", "-(-n // 4)", "n // -3", "n % -3", "sum([n, 1, 2])",
    "pow(n, 2)", "pow(n, 2, 7)", "isinstance(n, int)", "n.real", "n.numerator", "n.conjugate()", "math.gcd(n, 6)", "math.lcm(n, 6)", "math.comb(n, 2)",
    "math.perm(n, 2)", "math.isqrt(n)", "math.factorial(n)",
)  # fmt: skip
FLOATS = (
    "round(n / 3)", "round(n / 3, 1)", "n ** 0.5", "2.0 ** n", "int(n / 2)", "int(n * 0.3)", "float(n)", "n / 4 == 1.0", "n / 3 == 5.333333333333333",
    "0.1 * 3 * n == 1.2", "round(n * 0.1, 2)", "n // 2.5", "n % 2.5", "float(n) // 3", "divmod(n, 2.5)", "int(-n / 2)", "round(-n / 4)", "max(n, 5.0)",
    "min(6.5, n)", "math.cos(math.pi * n / 10)", "0.5 * (1 + math.cos(math.pi * n / 10))", "math.ceil(n / 3)", "math.floor(n * 0.7)", "math.pow(n, 0.5)",
    "math.hypot(n, 3)", "math.atan2(n, 3)", "math.fmod(n, 3)", "math.copysign(n, -1)", "math.isclose(n, 9)", "math.remainder(n, 4)", "math.ulp(n)",
    "1 / (1 + n)", "n ** -1", "n ** -0.5", "0.1 * 0.9 ** n", "0.1 * 0.9 ** (n // 5)", "min(1.0, n / 10)", "max(1, round(n / 4))",
    "1e-3 * min(n ** -0.5, n * 4000 ** -1.5)", *(f"math.{name}({argument})" for name in _MATH for argument in ("n", "n / 25") if hasattr(math, name)),
)  # fmt: skip
FORCED = (
    "str(n)",
    "f'{n}'",
    "[0] * n",
    "list(range(n))",
    "{n: 1}",
    "math.modf(n / 3)",
    "math.acos(n)",
    "math.log(n - 4)",
)
"""What depends on the value itself, or raises for some."""
_HERE = {"math": math, "torch": torch}


SIZES = (
    "n // 3 + 1", "n % 3", "n ** 2", "max(n, 5)", "min(n, 5, 8)", "abs(n - 8)", "n << 1", "n >> 1", "-(-n // 4)", "math.ceil(n / 32) * 32", "math.floor(n / 3)",
    "math.trunc(n / 3)", "int(n * 0.3)", "round(n / 3)", "abs(n // -3)", "n if n > 6 else 2 * n", "n.bit_length()", "math.isqrt(n)",
)  # fmt: skip


def _from_rows(expression: str) -> Callable[..., Any]:
    return eval(f"lambda x: (x * 2, (lambda n: {expression})(x.shape[0]))", dict(_HERE))  # type: ignore[no-any-return]


def _from_argument(expression: str) -> Callable[..., Any]:
    return eval(f"lambda x, n: (x * 2, {expression})", dict(_HERE))  # type: ignore[no-any-return]


def _called(function: Callable[..., Any], *args: Any) -> Any:
    try:
        doubled, result = function(*args)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        return type(error), str(error)
    return doubled.tolist(), type(result), repr(result)


def _compiles(function: Callable[..., Any], calls: list[tuple[Any, ...]], dynamic: bool | None) -> int:
    """Compare every call with plain Python; the number of graphs."""
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return run_as_it_is(graph, inputs)

    compiled = flambeau.compile(function, backend=backend, dynamic=dynamic)
    for args in calls:
        assert _called(compiled, *args) == _called(function, *args), args[-1]
    return len(graphs)


@pytest.mark.parametrize("dynamic", [None, True])
def test_of_a_size(dynamic: bool | None) -> None:
    calls: list[tuple[Any, ...]] = [(torch.ones(n, 2),) for n in VALUES]
    found = {e: _compiles(_from_rows(e), calls, dynamic) for e in (*INTEGERS, *FLOATS)}
    assert {e: count for e, count in found.items() if count > 4} == {}
    assert sum(count > 3 for count in found.values()) <= 3, found
    for expression in FORCED:
        _compiles(_from_rows(expression), calls, dynamic)


@pytest.mark.parametrize("kind", [int, float])
def test_of_an_argument(kind: type) -> None:
    calls: list[tuple[Any, ...]] = [(torch.ones(2), n if kind is int else n + 0.25) for n in VALUES]
    expressions = (*INTEGERS, *FLOATS) if kind is int else FLOATS
    found = {e: _compiles(_from_argument(e), calls, None) for e in expressions}
    assert {e: count for e, count in found.items() if count > 3} == {}
    if kind is int:
        for expression in FORCED:
            _compiles(_from_argument(expression), calls, None)


def test_used_by_a_kernel() -> None:
    """Numbers that Python computes are inputs of the compiled program."""
    calls = [(torch.randn(3), step) for step in range(2, 14, 2)]
    assert compilations(lambda x, step: x * (0.5 * (1 + math.cos(math.pi * step / 10))), calls) <= 3
    rows = [(torch.randn(n, 3),) for n in VALUES]
    assert compilations(lambda x: x[: math.ceil(x.shape[0] * 0.4)] * math.log(x.shape[0]), rows) <= 3


def test_as_a_size() -> None:
    """A tensor of so many elements, which a kernel fills: one program of them all, with gradients."""
    parts = ", ".join(f"x.sum() * x.new_ones({size})" for size in SIZES)
    function = eval(f"lambda x: (lambda n: [{parts}])(x.shape[0])", dict(_HERE))
    compiled = flambeau.compile(function, dynamic=True, fullgraph=True)
    for rows in VALUES:
        x, y = (torch.ones(rows, 2, requires_grad=True) for _ in range(2))
        ours, theirs = compiled(x), function(y)
        assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]
        torch.cat(ours).sum().backward()
        torch.cat(theirs).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()


RESIZING: dict[str, Callable[[Tensor], Tensor]] = {
    "pad": lambda x: F.pad(x, (1, 2, 2, 1)),
    "pad to a multiple": lambda x: F.pad(x, (0, (8 - x.shape[-1] % 8) % 8)),
    "reflect": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
    "scale": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "scale, by the operator": lambda x: torch.ops.aten.upsample_nearest2d.vec(x, None, [2.0, 1.5]),
    "bilinear, by the operator": lambda x: torch.ops.aten.upsample_bilinear2d.vec(x, None, False, [2.0, 2.0]),
    "size, by the operator": lambda x: torch.ops.aten.upsample_bicubic2d.vec(x, [5, 7], True, None),
    "two axes": lambda x: F.interpolate(x, scale_factor=(2.0, 0.5), mode="nearest-exact"),
    "to a size": lambda x: F.interpolate(x, size=(5, 7), mode="bicubic"),
    "to another's size": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] + 1)),
    "shuffle": lambda x: F.pixel_shuffle(torch.cat([x, x[:, :1]], 1), 2),
    "unfold": lambda x: F.unfold(x, 3, padding=1),
    "response norm": lambda x: F.local_response_norm(x, 2),
}


@pytest.mark.parametrize("name", RESIZING)
def test_resizing_keeps_sizes_symbolic(name: str) -> None:
    """One graph of constants, one for each dimension that begins to change, none after that."""
    sizes = [(2, 8, 8), (3, 8, 8), (4, 12, 8), (5, 12, 10), (6, 16, 14), (7, 9, 11)]
    calls = [(torch.randn(batch, 3, height, width),) for batch, height, width in sizes]
    assert compilations(RESIZING[name], calls) <= 4


def test_scaling_that_rounds_is_compiled() -> None:
    """A factor without an exact product makes constants of the sizes; the graphs are still compiled."""
    calls = [(torch.randn(2, 3, height, 9),) for height in (8, 10, 13)]
    compilations(lambda x: F.interpolate(x, scale_factor=0.3), calls)
    compilations(lambda x: torch.ops.aten.upsample_nearest2d.vec(x, None, [0.3, 1.7]), calls)


def test_a_factor_that_a_module_holds() -> None:
    """It is a constant, where every number may change; sizes are not."""
    calls = [(torch.randn(2, 3, height, height + 3),) for height in (5, 6, 8, 11)]
    for module in (nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=(2.0, 1.5), mode="bilinear")):
        assert compilations(module, calls, dynamic=True) == 1


def _drawn(generator: random.Random, depth: int) -> str:
    """An expression of floats whose value depends on the order of its operations."""
    if depth == 0:
        return generator.choice(["a", "b", "c", "a", "b", "c", "n", "0.1", "3.0", "7"])
    operator = generator.choice(["+", "-", "*", "+", "-", "*", "/"])
    return f"({_drawn(generator, depth - 1)} {operator} {_drawn(generator, generator.randrange(depth))})"


@pytest.mark.parametrize("seed", range(6))
def test_arithmetic_of_several_numbers_keeps_its_order(seed):
    """Floats computed from several arguments and a size are returned and stored as Python computes them, to the last bit."""
    generator = random.Random(seed)
    expressions = [_drawn(generator, 4) for _ in range(8)]
    source = f"def function(x, a, b, c, kept):\n    n = x.shape[0]\n    kept['last'] = {expressions[0]}\n"
    source += f"    return x * a, {', '.join(expressions)}, kept['last'] + {expressions[1]}\n"
    scope: dict[str, Any] = {}
    exec(source, scope)
    compiled = flambeau.compile(scope["function"], dynamic=True)
    for call in range(6):
        x, numbers = torch.ones(3 + call), [generator.uniform(0.5, 2) for _ in range(3)]
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        assert compiled(x, *numbers, ours)[1:] == scope["function"](x, *numbers, theirs)[1:]
        assert ours == theirs
