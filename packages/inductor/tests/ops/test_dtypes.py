"""The one table of element types, and the languages that spell them."""

import pytest
import torch

from flambeau_inductor.codegen.cpp import dtypes as cpp
from flambeau_inductor.ir.scalar import dtype_text
from flambeau_inductor.lowering.values import compute_dtype
from flambeau_inductor.ops.dtypes import EIGHTHS, HALVES, LOOP_TYPES, NARROW, element_type


def test_every_type_of_loops_is_spelt_in_cpp():
    """And no other: a type without a row could not be told from a forgotten one."""
    assert set(cpp.MEMORY) == LOOP_TYPES
    assert len(set(cpp.MEMORY.values())) == len(LOOP_TYPES)


@pytest.mark.parametrize("dtype", sorted(LOOP_TYPES, key=str))
def test_every_type_of_loops_is_spelt_in_triton(dtype):
    """In source and in signatures."""
    types = pytest.importorskip("flambeau_inductor.codegen.triton.types")
    assert types.type_text(dtype).startswith("tl.") and types.signature_text(dtype)


def test_narrow_floats_are_computed_in_float32():
    """Of those, loops hold the half types; libraries compute with the others."""
    narrow = {getattr(torch, name) for name in dir(torch) if name.startswith("float8_e") and "8m0" not in name}
    assert HALVES == {torch.float16, torch.bfloat16}
    assert all(compute_dtype(dtype) is torch.float32 for dtype in HALVES | narrow)
    assert narrow.isdisjoint(LOOP_TYPES) and EIGHTHS <= narrow and NARROW == HALVES | EIGHTHS
    assert all(compute_dtype(dtype) is dtype for dtype in LOOP_TYPES - HALVES)
    assert {cpp.held(dtype) for dtype in HALVES} == {"float"} and {cpp.width(dtype) for dtype in HALVES} == {4}


@pytest.mark.parametrize("dtype", sorted(LOOP_TYPES, key=str))
def test_ends_of_a_range_change_nothing(dtype):
    """The identities of a maximum and a minimum."""
    record = element_type(dtype)
    values = torch.tensor([0, 1, 1 if dtype is torch.bool else 100]).to(dtype)
    assert torch.equal(torch.maximum(values, torch.tensor(record.lowest, dtype=dtype)), values)
    assert torch.equal(torch.minimum(values, torch.tensor(record.highest, dtype=dtype)), values)
    assert cpp.literal(record.lowest, dtype) != cpp.literal(record.highest, dtype)


def test_names_in_printed_ir_differ():
    """Also those of types that have no row."""
    found = [dtype_text(dtype) for dtype in (*LOOP_TYPES, torch.complex64, torch.uint16)]
    assert len(set(found)) == len(found) and {"f32", "bf16", "i64", "complex64"} <= set(found)
    assert not element_type(torch.complex64).looped and element_type(torch.complex64).computed is torch.complex64
