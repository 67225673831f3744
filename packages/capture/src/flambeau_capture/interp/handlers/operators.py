"""Unary, binary, comparison and subscript operators, string formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...values.constants import ConstantValue
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame

_UNARY = {"UNARY_NEGATIVE": "-", "UNARY_POSITIVE": "+", "UNARY_INVERT": "~"}


@handles("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def unary(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.unary(_UNARY[i.name], f.pop()))


@handles("UNARY_NOT")
def unary_not(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.negate(f.pop()))


@handles("TO_BOOL")
def to_bool(f: Frame, i: Instruction) -> None:
    f.push(ConstantValue(f.tracer.truth(f.pop())))


@handles("BINARY_OP")
def binary(f: Frame, i: Instruction) -> None:
    right = f.pop()
    left = f.pop()
    f.push(f.tracer.binary(i.value, left, right))


@handles("COMPARE_OP")
def compare(f: Frame, i: Instruction) -> None:
    right = f.pop()
    left = f.pop()
    f.push(f.tracer.compare(i.value, left, right))


@handles("IS_OP")
def is_op(f: Frame, i: Instruction) -> None:
    right = f.pop()
    left = f.pop()
    f.push(ConstantValue(f.tracer.identical(left, right) != bool(i.arg)))


@handles("CONTAINS_OP")
def contains(f: Frame, i: Instruction) -> None:
    container = f.pop()
    item = f.pop()
    f.push(ConstantValue(container.contains(f.tracer, item) != bool(i.arg)))


@handles("BINARY_SUBSCR")
def subscript(f: Frame, i: Instruction) -> None:
    key = f.pop()
    f.push(f.tracer.get_item(f.pop(), key))


@handles("STORE_SUBSCR")
def store_subscript(f: Frame, i: Instruction) -> None:
    value, container, key = f.pop_many(3)
    f.tracer.set_item(container, key, value)


@handles("DELETE_SUBSCR")
def delete_subscript(f: Frame, i: Instruction) -> None:
    container, key = f.pop_many(2)
    container.delete_item(f.tracer, key)


@handles("BUILD_SLICE")
def build_slice(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.make_slice(f.pop_many(i.arg)))


@handles("CONVERT_VALUE")
def convert_value(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.to_text(f.pop(), {1: "str", 2: "repr", 3: "ascii"}[i.arg]))


@handles("FORMAT_SIMPLE")
def format_simple(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.format(f.pop(), ConstantValue("")))


@handles("FORMAT_WITH_SPEC")
def format_with_spec(f: Frame, i: Instruction) -> None:
    spec = f.pop()
    f.push(f.tracer.format(f.pop(), spec))


@handles("BUILD_STRING")
def build_string(f: Frame, i: Instruction) -> None:
    parts = f.pop_many(i.arg)
    f.push(f.tracer.fold(lambda *pieces: "".join(pieces), parts, {}))
