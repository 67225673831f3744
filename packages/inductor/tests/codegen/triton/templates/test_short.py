"""What is done to scores means the same in fewer operations."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from flambeau_inductor.codegen.triton.templates.short import exact, factor_of, shortened
from flambeau_inductor.expr import Int, Symbol
from flambeau_inductor.ir import scalar as sc

F32 = torch.float32
S, G = sc.reduced("score", F32), sc.reduced("slope", F32)


def number(value):
    return sc.constant(value, F32)


def mul(a, b):
    return sc.op("mul", a, b)


def ops(body):
    return sorted(node.op for node in sc.walk(body) if node.op)


def test_factors_of_a_product_are_one():
    """Also those of both sides, and quotients; what comes to 1 is gone."""
    core, factor = factor_of(shortened(mul(mul(S, number(3.0)), mul(number(0.5), G))))
    assert core is mul(S, G) and factor == 1.5
    assert shortened(mul(number(20.0), sc.op("truediv", S, number(20.0)))) is S
    assert factor_of(S) == (S, 1.0)


@pytest.mark.parametrize("divisor", [0.0, float("inf"), 1e-30])
def test_quotients_without_an_exact_reciprocal_stay(divisor):
    body = sc.op("truediv", S, number(divisor))
    assert shortened(body) is body


def test_factors_that_leave_the_range_stay_apart():
    body = mul(mul(S, number(1e14)), number(1e14))
    assert ops(shortened(body)) == ["mul", "mul"]


def distance(m, n):
    return sc.op("to_dtype", sc.index_value(n - m, torch.int32), dtype=F32)


def test_positions_are_converted_each_by_itself():
    m, n = (Symbol(name, bound=Int(4096)) for name in "mn")
    found = shortened(distance(m, n))
    assert ops(found) == ["sub", "to_dtype", "to_dtype"]
    assert all(node.children[0].kind == "index" for node in sc.walk(found) if node.op == "to_dtype")


def test_positions_beyond_what_float32_counts_stay_integers():
    m, n = (Symbol(name, bound=Int(1 << 24)) for name in "mn")
    body = distance(m, n)
    assert shortened(body) is body


def halved(value, dtype):
    return sc.op("to_dtype", value, dtype=dtype)


def evaluated(body, numbers):
    """Of a body of conversions, products and quotients."""
    if body.kind == "reduced":
        return numbers
    if body.kind == "constant":
        return torch.tensor(body.args[0], dtype=body.dtype)
    parts = [evaluated(child, numbers) for child in body.children]
    return {"to_dtype": lambda x: x.to(body.dtype), "mul": torch.mul, "truediv": torch.div}[body.op](*parts)


@pytest.mark.parametrize("width", [32, 64, 80, 96, 128])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_quotients_of_16_bits_are_the_same_products(width, half):
    score = sc.op("to_dtype", halved(S, half), dtype=F32)
    body = halved(sc.op("truediv", score, number(width**0.5)), half)
    found = exact(body)
    assert ops(found) == ["mul", "to_dtype", "to_dtype", "to_dtype"]
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(half).float()
    assert torch.equal(*(evaluated(b, numbers).nan_to_num(3.0) for b in (found, body)))


def test_other_quotients_stay_exact():
    """Of numbers that are not rounded before or after, or to another type, and by numbers that are not known."""
    score = sc.op("to_dtype", halved(S, torch.bfloat16), dtype=F32)
    quotient = sc.op("truediv", score, number(3.0))
    unrounded = halved(sc.op("truediv", S, number(3.0)), torch.bfloat16)
    for body in (
        quotient,
        unrounded,
        halved(quotient, torch.float16),
        halved(sc.op("truediv", score, G), torch.bfloat16),
    ):
        assert exact(body) is body


def test_positions_are_compared_in_32_bits():
    m, n = (Symbol(name, bound=Int(4096)) for name in "mn")
    body = sc.op("gt", sc.index_value(n - m, torch.int64), sc.constant(-200, torch.int64))
    assert [child.dtype for child in exact(body).children] == [torch.int32] * 2
    far = sc.op("gt", sc.index_value(n * (1 << 30), torch.int64), sc.constant(0, torch.int64))
    assert exact(far) is far
