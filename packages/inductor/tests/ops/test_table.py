"""The scalar op table."""

import pytest
import torch

from flambeau_inductor.codegen.cpp import ops as cpp
from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ops.table import ScalarOp, names, register, scalar_op


def test_names_are_unique_and_found():
    """A registered op is found; another of the same name is refused."""
    assert len(set(names())) == len(names())
    with pytest.raises(ValueError, match="twice"):
        register(ScalarOp("add", 2, scalar_op("add").result, scalar_op("add").reference))
    with pytest.raises(ValueError, match="no scalar op"):
        scalar_op("nothing")


@pytest.mark.parametrize("name", [n for n in names() if n not in ("check_bounds", "bitcast")])
def test_reference_has_the_dtype_of_the_rule(name):
    """What the reference computes has the dtype the rule promises."""
    record = scalar_op(name)
    dtype = {"bool": torch.bool, "integer": torch.int64}.get(record.domain, torch.float32)
    operands = [torch.ones(3, dtype=dtype) for _ in range(record.arity)]
    if name == "where":
        operands[0] = operands[0].bool()
    given = torch.int32 if name == "to_dtype" else None
    result = record.result([o.dtype for o in operands], given)
    assert record.reference(*operands, dtype=result).dtype is result


def test_mixed_dtypes_are_refused():
    """Operands are promoted before they meet."""
    a, b = sc.constant(1, torch.float32), sc.constant(1, torch.float64)
    with pytest.raises(TypeError):
        sc.op("add", a, b)


@pytest.mark.parametrize("name", ["to_dtype", "bitcast"])
def test_a_conversion_names_its_target(name):
    """Nothing else says what it gives."""
    with pytest.raises(TypeError, match="needs a dtype"):
        sc.op(name, sc.load("x", Int(0), torch.float32))


def test_every_text_is_of_an_op():
    """A record that is lost leaves its text behind."""
    assert set(cpp._TABLE) <= set(names())
