"""Masks made of positions become index expressions: nothing is compared that is known, nothing checked that is inside."""

import pytest
import torch

from flambeau_inductor.expr import Int, Symbol
from flambeau_inductor.ir import scalar as sc

I, J = Symbol("i", bound=Int(8)), Symbol("j", bound=Int(4))


def at(e):
    """A position as a value."""
    return sc.index_value(e)


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (sc.op("add", at(I), at(J)), at(I + J)),
        (sc.op("sub", at(I), at(I)), sc.constant(0, torch.int64)),
        (sc.op("sub", at(I + J), at(J)), at(I)),
        (sc.op("le", at(I), at(Int(7))), sc.constant(True, torch.bool)),
        (sc.op("gt", at(I), at(Int(7))), sc.constant(False, torch.bool)),
        (sc.op("eq", at(I), at(I)), sc.constant(True, torch.bool)),
        (sc.op("mul", at(I), at(Int(3))), at(I * 3)),
        (sc.op("lt", at(I), at(Int(8))), sc.constant(True, torch.bool)),
        (sc.op("ge", at(I), at(Int(8))), sc.constant(False, torch.bool)),
        (sc.op("ne", at(I + 8), at(J)), sc.constant(True, torch.bool)),
        (sc.op("where", sc.constant(True, torch.bool), at(I), at(J)), at(I)),
        (sc.op("check_bounds", at(I), at(Int(9))), at(I)),
    ],
)
def test_positions_fold(node, wanted):
    """Arithmetic and comparisons that ranges decide."""
    assert node is wanted


def test_what_is_not_known_stays():
    """An undecided comparison, a narrow type, and arithmetic that could wrap."""
    assert sc.op("lt", at(I), at(Int(7))).kind == "op"
    assert sc.op("add", sc.index_value(I, torch.int16), sc.index_value(I, torch.int16)).kind == "op"
    large = sc.index_value(I * (1 << 30), torch.int32)
    assert sc.op("add", large, large).kind == "op"
    assert sc.op("add", sc.constant(2**63 - 1, torch.int64), at(I)).kind == "op"


def test_positions_of_32_bits():
    """They fold where they cannot wrap around, and are positions of 64 bits as they are."""
    i, five = sc.index_value(I, torch.int32), sc.constant(5, torch.int32)
    assert sc.op("sub", i, five) is sc.index_value(I + -5, torch.int32)
    assert sc.op("to_dtype", i, dtype=torch.int64) is at(I)
    assert sc.indirect(sc.op("add", i, five), Int(13)) is I + 5
    beyond = sc.index_value(I * (1 << 30), torch.int32)
    assert sc.op("to_dtype", beyond, dtype=torch.int64).kind == "op"


def test_an_index_inside_needs_no_check():
    """Reading at a position is a plain read."""
    assert sc.indirect(at(I), Int(8)) is I
    assert sc.indirect(at(I), Int(7)).definition is not None


def test_opposite_conditions_of_nested_choices():
    """Of integers: the inner choice is decided by the outer one; with floats a NaN satisfies neither."""
    low, high = sc.op("lt", at(I), at(Int(2))), sc.op("ge", at(I), at(Int(2)))
    assert sc.masked(low, at(J), sc.masked(high, at(I), at(J))) is sc.masked(low, at(J), at(I))
    x, one = sc.load("x", I, torch.float32), sc.constant(1.0, torch.float32)
    low, high = sc.op("lt", x, one), sc.op("ge", x, one)
    assert sc.masked(low, at(J), sc.masked(high, at(I), at(J))) is not sc.masked(low, at(J), at(I))


def test_a_guarded_load_stays_guarded():
    """What stands elsewhere is evaluated everywhere: a load behind a condition must not go there."""
    low, high = sc.op("lt", at(I), at(Int(2))), sc.op("ge", at(I), at(Int(2)))
    inner = sc.masked(high, sc.load("x", I - 2, torch.float32), sc.constant(0.0, torch.float32))
    assert sc.masked(low, sc.load("y", I, torch.float32), inner).args[2] is inner
