"""Unary, binary, comparison and subscript operators, string formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...values.constants import ConstantValue
from ...values.tensor import TensorValue
from ..assumed_branches import is_assumed, truth_of_argument
from ..conversions import as_truth
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame

_UNARY = {"UNARY_NEGATIVE": "-", "UNARY_POSITIVE": "+", "UNARY_INVERT": "~"}


@handles("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def unary(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.operators.unary(_UNARY[i.name], f.pop()))


@handles("UNARY_NOT")
def unary_not(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.operators.negate(f.pop()))


@handles("TO_BOOL")
def to_bool(f: Frame, i: Instruction) -> None:
    value = f.pop()
    if isinstance(value, TensorValue) and is_assumed(f.tracer, value):
        f.push(ConstantValue(truth_of_argument(f.tracer, value)))
    else:
        f.push(as_truth(f.tracer, value) or ConstantValue(value.truth(f.tracer)))


@handles("BINARY_OP")
def binary(f: Frame, i: Instruction) -> None:
    right = f.pop()
    left = f.pop()
    f.push(f.tracer.operators.binary(i.value, left, right))


@handles("COMPARE_OP")
def compare(f: Frame, i: Instruction) -> None:
    right = f.pop()
    left = f.pop()
    f.push(f.tracer.operators.compare(i.value, left, right))


@handles("IS_OP")
def is_op(f: Frame, i: Instruction) -> None:
    right = f.pop()
    left = f.pop()
    f.push(ConstantValue(f.tracer.operators.identical(left, right) != bool(i.arg)))


@handles("CONTAINS_OP")
def contains(f: Frame, i: Instruction) -> None:
    container = f.pop()
    item = f.pop()
    f.push(ConstantValue(container.contains(f.tracer, item) != bool(i.arg)))


@handles("BINARY_SUBSCR")
def subscript(f: Frame, i: Instruction) -> None:
    key = f.pop()
    f.push(f.pop().get_item(f.tracer, key))


@handles("STORE_SUBSCR")
def store_subscript(f: Frame, i: Instruction) -> None:
    value, container, key = f.pop_many(3)
    container.set_item(f.tracer, key, value)


@handles("DELETE_SUBSCR")
def delete_subscript(f: Frame, i: Instruction) -> None:
    container, key = f.pop_many(2)
    container.delete_item(f.tracer, key)


@handles("BUILD_SLICE")
def build_slice(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.operators.make_slice(f.pop_many(i.arg)))


@handles("CONVERT_VALUE")
def convert_value(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.texts.to_text(f.pop(), {1: "str", 2: "repr", 3: "ascii"}[i.arg]))


@handles("FORMAT_SIMPLE")
def format_simple(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.texts.format(f.pop(), ConstantValue("")))


@handles("FORMAT_WITH_SPEC")
def format_with_spec(f: Frame, i: Instruction) -> None:
    spec = f.pop()
    f.push(f.tracer.texts.format(f.pop(), spec))


@handles("BUILD_STRING")
def build_string(f: Frame, i: Instruction) -> None:
    parts = f.pop_many(i.arg)
    f.push(f.tracer.folder.fold(lambda *pieces: "".join(pieces), parts, {}))
