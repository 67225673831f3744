"""The one table of what scalar ops cost, and the decisions that read it."""

import pytest
import torch
from attrs import astuple

from flambeau_inductor.codegen.cpp.layout import work_of
from flambeau_inductor.codegen.cpp.passes import is_dear
from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ops.costs import COSTS, FUNCTIONS, Cost
from flambeau_inductor.ops.table import names

X = sc.load("x", Int(0), torch.float32)
N = sc.load("n", Int(0), torch.int64)


def test_every_cost_is_of_an_op():
    """A name that is no scalar op would never be asked for, and a row like a simple op's says nothing."""
    assert set(COSTS) <= set(names())
    assert [name for name, cost in COSTS.items() if astuple(cost) == astuple(Cost())] == []


def test_a_function_takes_longer_than_an_instruction():
    """On every target, in every type that it takes."""
    assert {"exp", "floordiv", "pow"} <= FUNCTIONS and FUNCTIONS.isdisjoint({"sqrt", "truediv", "add", "where"})
    assert [name for name in FUNCTIONS if min(COSTS[name].single, COSTS[name].double, COSTS[name].cuda) < 4] == []


def test_types_and_targets_have_their_own_numbers():
    """Integers have one that does not depend on the float types."""
    cost = Cost(2, 3, 4, integer=(5, 6))
    asked = (torch.float32, torch.bfloat16, torch.float64, torch.int64)
    assert [cost.of(dtype, "cpu") for dtype in asked] == [2, 2, 3, 5]
    assert [cost.of(dtype, "cuda") for dtype in asked] == [4, 4, 4, 6]


def test_one_value_in_all_its_costs():
    """What computing it takes, what computing it again takes, and how many ops it has."""
    value = sc.op("to_dtype", sc.op("exp", sc.op("add", X, X)), dtype=torch.bfloat16)
    exp = COSTS["exp"]
    assert sc.recomputing(value, "cpu") == exp.single + 1
    assert sc.recomputing(value, "cuda") == exp.cuda + 1
    assert work_of(value) == exp.single + 7, "a load and a conversion besides"
    assert sc.op_count(value) == 2


@pytest.mark.parametrize(
    ("value", "function", "dear"),
    [
        (sc.op("add", X, sc.constant(1.0, torch.float32)), False, False),
        (sc.op("sqrt", X), False, True),
        (sc.op("truediv", X, sc.constant(3.0, torch.float32)), False, True),
        (sc.op("exp", X), True, True),
        (sc.op("floordiv", N, sc.constant(3, torch.int64)), True, True),
        (sc.op("to_dtype", X, dtype=torch.bfloat16), False, False),
        (X, False, False),
    ],
)
def test_what_is_a_function_and_what_is_kept(value, function, dear):
    """A root is an instruction that takes long: kept for a second pass, but as quick in a loop without vectors."""
    assert sc.has_function(value) == function
    assert is_dear(value) == dear
