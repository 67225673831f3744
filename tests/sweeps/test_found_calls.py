"""Calls that no step of a drawn program makes: factories with every keyword, operands that are no plain numbers, `out=`, methods by their special names."""

from __future__ import annotations

import pytest

from .examine import check

DTYPES = [
    "torch.zeros(3, dtype={})",
    "x.to({})",
    "x.sum(dtype={})",
    "torch.tensor([1], dtype={})",
    "x.new_full((2,), 1, dtype={})",
]


@pytest.mark.parametrize("cls", ["bool", "int", "float", "complex"])
def test_a_class_of_numbers_is_a_dtype(cls: str) -> None:
    """A graph's code has no literal for a class."""
    made = ", ".join(call.format(cls) for call in DTYPES)
    check(
        f"""
        def f(x):
            return {made}

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


def test_a_class_of_tensors_is_a_type() -> None:
    """So of `Tensor.type(torch.DoubleTensor)`."""
    check(
        """
        def f(x):
            return x.type(torch.DoubleTensor), x.type(torch.LongTensor)

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


@pytest.mark.parametrize("call", ["torch.arange(3, dtype=torch.bool)", "torch.hann_window(3, dtype=torch.int64)"])
def test_what_a_factory_refuses_for_its_dtype(call: str) -> None:
    """No fake does, and no decomposition."""
    check(
        f"""
        def f(x):
            return x + 1, {call}

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


@pytest.mark.parametrize("number", ["0, float('inf')", "1, float('nan')", "-0.0, -0.0"])
def test_a_complex_number_without_a_literal(number: str) -> None:
    """The text of a graph says `infj`, and loses the sign of a zero."""
    check(
        f"""
        def f(x):
            y = torch.full((2,), complex({number}))
            return torch.view_as_real(y).signbit(), y, x + complex({number})

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.complex64))
        """,
        "eager",
    )


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(3, requires_grad=True)",
        "torch.ones_like(x, requires_grad=True)",
        "torch.tensor([1.0, 2.0, 3.0], requires_grad=True)",
    ],
)
def test_a_factory_makes_a_leaf(made: str) -> None:
    """Under `no_grad` too; what is computed of it has a history."""
    check(
        f"""
        def f(x):
            a = {made}
            with torch.no_grad():
                b = {made}
            return a, a * x, b, b.sum() + x

        def drive(compile, call, show, backward):
            r = call(compile(f), whole((3,), torch.float32))
            backward(r)
            show(r)
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("call", ["__str__()", "__repr__()", "__format__('')", "__getstate__()", "__setitem__(0)"])
def test_a_special_method_by_its_name(call: str) -> None:
    """Of a fake they tell about the fake."""
    check(
        f"""
        def f(x):
            y = x + 1
            return y.{call}, y * 2

        def drive(compile, call, show, backward):
            call(compile(f), whole((3,), torch.float32))
        """,
        "aot_eager",
    )
