"""What is done to each score of attention, in fewer instructions: a multiprocessor has four products of matrices a pair in the time of one instruction of it.

In: a scalar of float32. Out: of ``shortened``, one that differs from it by units in the last place: quotients by numbers are products, factors of products are one factor, and
differences of positions are computed of the rows' and the places' numbers, which are converted once. Scores are sums of 16-bit products, whose order
is nobody's promise: they differ by more. Of ``exact``, which keeps a program's roundings, one that is the same for all numbers: quotients between two numbers of 16 bits are
products where all 65,536 come to the same, and positions are compared in 32 bits.
"""

from __future__ import annotations

import functools

import torch

from ....expr import Expr, linear
from ....ir import scalar as sc
from ....ir.folding import position_of
from ....ir.scalar import Scalar
from ....ops.dtypes import HALVES

#: Between these, numbers and their reciprocals are as exact as float32 is, and so are products of a few of them.
_LEAST, _MOST = 1e-15, 1e15
#: Up to here float32 has all integers, and below this 32 bits have all positions and their differences.
_INTEGERS, _INT32 = 1 << 24, 1 << 30
_COMPARISONS = frozenset(("lt", "le", "gt", "ge"))


def shortened(body: Scalar) -> Scalar:
    """``body`` in fewer instructions."""
    return sc.transform(body, _rule)


def exact(body: Scalar) -> Scalar:
    """``body`` in fewer instructions, to the last bit."""
    return sc.transform(body, _exact_rule)


def factor_of(body: Scalar) -> tuple[Scalar, float]:
    """What ``body`` is a product of: a scalar and a number, 1 where it is none."""
    if body.op == "mul" and body.dtype is torch.float32:
        for part, other in (body.args[1:], body.args[:0:-1]):
            if part.kind == "constant" and _LEAST < abs(part.args[0]) < _MOST:
                return other, float(part.args[0])
    return body, 1.0


def times(body: Scalar, factor: float) -> Scalar:
    """``body`` times a number."""
    return body if factor == 1.0 else sc.op("mul", body, sc.constant(factor, torch.float32))


def _exact_rule(node: Scalar) -> Scalar | None:
    if node.op in _COMPARISONS:
        places = [position_of(child) for child in node.children]
        wide = any(child.dtype is torch.int64 for child in node.children)
        if wide and all(e is not None and max(abs(e.lo), abs(e.hi)) < _INT32 for e in places):
            return sc.op(node.op, *(sc.index_value(e, torch.int32) for e in places if e is not None))
        return None
    if node.op != "to_dtype" or node.dtype not in HALVES or node.children[0].op != "truediv":
        return None
    value, divisor = node.children[0].children
    if divisor.kind != "constant" or value.op != "to_dtype" or value.children[0].dtype is not node.dtype:
        return None
    factor = _reciprocal(float(divisor.args[0]), node.dtype)
    return None if factor is None else sc.op("to_dtype", times(value, factor), dtype=node.dtype)


@functools.cache
def _reciprocal(divisor: float, half: torch.dtype) -> float | None:
    """A factor by which every number of a 16-bit type becomes, in float32 and rounded to that type, what it is divided by ``divisor``; None where there is none. It is the reciprocal in float32 or a neighbour."""
    numbers = torch.arange(1 << 16, dtype=torch.int32, device="cpu").to(torch.int16).view(half).float()
    by = torch.tensor(divisor, dtype=torch.float32, device="cpu")
    nearest = 1 / by
    wanted = (numbers / by).to(half).view(torch.int16)
    for factor in (nearest, *(torch.nextafter(nearest, nearest * other) for other in (0, 2))):
        found = (numbers * factor).to(half).view(torch.int16)
        if bool(((found == wanted) | numbers.isnan()).all()):
            return factor.item()
    return None


def _rule(node: Scalar) -> Scalar | None:
    if node.dtype is not torch.float32:
        return None
    if node.op == "truediv":
        _, value, divisor = node.args
        if divisor.kind == "constant" and _LEAST < abs(divisor.args[0]) < _MOST:
            return _gathered(times(value, 1 / divisor.args[0]))
        return None
    if node.op == "mul":
        return _gathered(node)
    if node.op == "to_dtype" and node.args[1].kind == "index" and node.args[1].dtype in (torch.int32, torch.int64):
        return _apart(node.args[1].index)
    return None


def _gathered(product: Scalar) -> Scalar:
    """A product whose factors that are numbers are one, and the last."""
    core, factor = factor_of(product)
    if core is product:
        _, *parts = product.args
        (first, one), (second, other) = map(factor_of, parts)
        core, factor = sc.op("mul", first, second), one * other
    else:
        core, inner = factor_of(core)
        factor *= inner
    return times(core, factor) if factor == 1.0 or _LEAST < abs(factor) < _MOST else product


def _apart(e: Expr) -> Scalar | None:
    """A sum of positions, each converted by itself: exact, as all parts are."""
    constant, terms = linear(e)
    reach = abs(constant) + sum(abs(factor) * max(abs(term.lo), abs(term.hi)) for term, factor in terms)
    if len(terms) < 2 or reach > _INTEGERS:
        return None
    total: Scalar | None = None
    for term, factor in sorted(terms, key=lambda part: part[1], reverse=True):
        value = sc.op("to_dtype", sc.index_value(term, torch.int32), dtype=torch.float32)
        if total is None:
            total = times(value, float(factor))
        else:
            total = sc.op("sub" if factor < 0 else "add", total, times(value, float(abs(factor))))
    if constant and total is not None:
        total = sc.op("add", total, sc.constant(float(constant), torch.float32))
    return total
