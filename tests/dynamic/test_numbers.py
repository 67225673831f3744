"""Python numbers that change: constants first, inputs of the program from the second value on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .counting import Counted, compilations, compilations_with_gradients

FLOATS = (0.5, 1.5, 2.5, 0.25)
FUNCTIONS: list[tuple[str, Callable[..., Any]]] = [
    ("multiply", lambda x, a: x * a + 1),
    ("arithmetic", lambda x, a: x * (a * 2 + 1) / a),
    ("returned", lambda x, a: (x + 1, a, a + 1.0, -a)),
    ("clamp", lambda x, a: x.clamp(min=a)),
    ("full", lambda x, a: torch.full((3,), a) + x),
    ("where", lambda x, a: torch.where(x > a, x, a)),
    ("alpha", lambda x, a: x.clone().mul_(a).add_(x, alpha=a)),
    ("lerp", lambda x, a: torch.addcmul(x, x, x, value=a).lerp(x * 2, a)),
    ("activations", lambda x, a: F.leaky_relu(x, a) + F.elu(x, a) + F.softplus(x, a)),
    ("power", lambda x, a: x.abs() ** a),
    ("sqrt", lambda x, a: x * math.sqrt(a)),
    ("bfloat16", lambda x, a: x.bfloat16() * a),
    ("float64", lambda x, a: torch.exp(x.double() * a)),
]


@pytest.mark.parametrize(
    "function",
    [pytest.param(function, id=name) for name, function in FUNCTIONS],
)
def test_floats_become_inputs(function: Callable[..., Any]) -> None:
    """A float that changes costs a second compilation, and at most one more where a value is special."""
    assert compilations(function, [(torch.randn(3), a) for a in FLOATS]) <= 3


def test_special_floats() -> None:
    """Infinity, zero, a negative zero and NaN give what eager gives."""
    values = (0.5, 1.5, math.inf, 0.0, -0.0, math.nan, -math.inf, 1.0)
    compilations(lambda x, a: x * a + a, [(torch.randn(3), a) for a in values])


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        pytest.param(lambda x, a: x * (1 / a), (1.5, 2.5, 3.5), id="quotient-float"),
        pytest.param(lambda x, a: x * (1 / a), (5, 7, 3), id="quotient-int"),
        pytest.param(
            lambda x, a: x * (3 % a), (1.5, 2.5, 3.5), id="rest-float",
            marks=pytest.mark.falls_back("symbolic float arithmetic mod"),
        ),
        pytest.param(lambda x, a: x * (3 % a), (5, 7, 3), id="rest-int"),
        pytest.param(
            lambda x, a: x * (3 // a), (1.5, 2.5, 3.5), id="floor-float", marks=pytest.mark.falls_back("FloorToInt")
        ),
        pytest.param(lambda x, a: x * (3 // a), (5, 7, 3), id="floor-int"),
    ],
)  # fmt: skip
def test_division_by_a_number_that_becomes_zero(expression: Callable[..., Any], values: tuple[Any, ...]) -> None:
    """Python's error survives, also when the divisor is an input of the program."""
    counted = Counted(expression)
    for value in values:
        counted.check(torch.randn(3), value)
    with pytest.raises(ZeroDivisionError):
        counted.compiled(torch.randn(3), type(values[0])(0))


def test_branches_rounding_and_text() -> None:
    """What needs the number itself takes it and guards it."""
    compilations(lambda x, a: x * a if a > 1 else x - a, [(torch.randn(3), a) for a in FLOATS])
    compilations(lambda x, a: (x * int(a), x + math.floor(a), x * round(a)), [(torch.randn(3), a) for a in FLOATS])
    compilations(lambda x, a: (x + 1, f"{a:.2f}"), [(torch.randn(3), a) for a in FLOATS])
    compilations(lambda x, a: x * a**2, [(torch.randn(3), a) for a in (0.5, 1.5, -3.25, -2.0)])


def test_integers_become_inputs() -> None:
    """An int that changes is symbolic; 0 and 1 are constants."""
    assert compilations(lambda x, n: x * n + n, [(torch.randn(3), n) for n in (5, 6, 7, -3, 100)]) == 2
    compilations(lambda x, n: x[:n].sum(), [(torch.randn(10), n) for n in (5, 6, 7, 0, 1, -3, 12)])
    compilations(lambda x, n: sum((x * i for i in range(n)), x), [(torch.randn(3), n) for n in (2, 3, 4, 5)])


def test_slices_from_outside() -> None:
    """A slice is taken apart, alone or in a tuple: its bounds are numbers like others, and what is not a number is guarded."""
    slices = [slice(0, 2), slice(0, 3), slice(0, 4), slice(0, 5), slice(None), slice(0, 6, 2)]
    assert compilations(lambda x, s: (x[s] + 1, s, x[(s, 0)]), [(torch.randn(9, 2), s) for s in slices[:4]]) == 2
    compilations(lambda x, s: (x[s] + 1, s.indices(9), s == slice(0, 4)), [(torch.randn(9), s) for s in slices])
    compilations(lambda x, i: (x[i], [1, 2, 3][i[0]], bool(i[0])), [(torch.randn(9, 2), (s, 1)) for s in slices])


def test_gradients_through_a_float_input() -> None:
    """The float reaches the backward program too."""

    def function(x: Tensor, a: float) -> Tensor:
        return (F.leaky_relu(x, a) * (a + 1)).sin() * a

    assert compilations_with_gradients(function, [(torch.randn(3), a) for a in FLOATS]) <= 2


def test_an_attribute_that_changes() -> None:
    """A float attribute of a module, such as a schedule changes it, does not recompile each time."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.scale = 1.5

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * self.scale

    model = Scaled()
    counted = Counted(model)
    for scale in (1.5, 2.5, 3.5, 4.5, 5.5):
        model.scale = scale
        x = torch.randn(2, 3)
        torch.testing.assert_close(counted.compiled(x), model(x))
    assert counted.graphs <= 2


@pytest.mark.falls_back("power with exponent")
def test_a_negative_base_to_the_power_of_a_number() -> None:
    """Printed code binds the minus of a constant less tightly than the power."""
    assert compilations(lambda x, n: x * (-2) ** n, [(torch.randn(3), n) for n in (2, 3, 4, 5)]) <= 2


def test_the_root_of_a_size() -> None:
    """It is computed from the size in each call, and scales the gradient too."""

    def attention(x: Tensor) -> Tensor:
        return x * (1 / math.sqrt(x.shape[-1])) + math.sqrt(x.shape[0] * x.shape[1])

    sizes = ((2, 4), (3, 5), (4, 6), (7, 9))
    assert compilations_with_gradients(attention, [(torch.randn(size),) for size in sizes]) <= 2


def test_a_convolution_with_as_many_groups_as_channels() -> None:
    """The number of groups is a size, by which the layout of the convolution is chosen."""

    def blurred(x: Tensor, k: Tensor) -> Tensor:
        return F.conv2d(x, k.expand(x.shape[1], 1, 3, 3), padding="same", groups=x.shape[1])

    images = [torch.rand(2, channels, 5, 6) for channels in (3, 4, 7)]
    assert compilations(blurred, [(image, torch.rand(3, 3)) for image in images]) <= 2
