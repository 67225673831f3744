"""Building and unpacking containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ...signals import GraphBreak
from ...values.mappings import DictValue
from ...values.sequences import ListValue
from ...values.sets import SetValue
from ..registry import handles

Container = TypeVar("Container", ListValue, SetValue, DictValue)

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ...values.base import Value
    from ..frame import Frame


@handles("BUILD_TUPLE")
def build_tuple(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.wrapper.sequence(f.pop_many(i.arg), tuple))


@handles("BUILD_LIST")
def build_list(f: Frame, i: Instruction) -> None:
    f.push(ListValue(f.pop_many(i.arg)))


@handles("BUILD_SET")
def build_set(f: Frame, i: Instruction) -> None:
    made = SetValue({})
    for item in f.pop_many(i.arg):
        made.add(f.tracer, item)
    f.push(made)


@handles("BUILD_MAP")
def build_map(f: Frame, i: Instruction) -> None:
    parts = f.pop_many(2 * i.arg)
    made = DictValue({})
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        made.set_item(f.tracer, key, value)
    f.push(made)


@handles("BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, i: Instruction) -> None:
    keys = f.pop().constant()
    f.push(
        DictValue(
            {
                key: (f.tracer.wrapper.from_python(key), value)
                for key, value in zip(keys, f.pop_many(i.arg), strict=True)
            }
        )
    )


@handles("LIST_APPEND")
def list_append(f: Frame, i: Instruction) -> None:
    item = f.pop()
    _changing(f, i, ListValue).items.append(item)


@handles("SET_ADD")
def set_add(f: Frame, i: Instruction) -> None:
    item = f.pop()
    _changing(f, i, SetValue).add(f.tracer, item)


@handles("MAP_ADD")
def map_add(f: Frame, i: Instruction) -> None:
    value = f.pop()
    key = f.pop()
    _changing(f, i, DictValue).set_item(f.tracer, key, value)


@handles("LIST_EXTEND")
def list_extend(f: Frame, i: Instruction) -> None:
    new = f.tracer.operators.collect(f.pop_iterable())
    _changing(f, i, ListValue).items.extend(new)


@handles("SET_UPDATE")
def set_update(f: Frame, i: Instruction) -> None:
    items = f.pop()
    _changing(f, i, SetValue).call_method(f.tracer, "update", [items], {})


@handles("DICT_UPDATE", "DICT_MERGE")
def dict_update(f: Frame, i: Instruction) -> None:
    items = f.pop_mapping()
    target = _changing(f, i, DictValue)
    for key, value in f.tracer.operators.mapping_items(items):
        if i.name == "DICT_MERGE" and f.tracer.wrapper.hashable(key) in target.items:
            raise GraphBreak("unsupported-call", "a keyword argument is given twice")  # the error names the function
        target.set_item(f.tracer, key, value)


def _changing(f: Frame, i: Instruction, cls: type[Container]) -> Container:
    """The container being built; in a resume function it existed before, so its change is an effect."""
    found = f.stack[-i.arg]
    if not isinstance(found, cls):
        raise GraphBreak("unsupported-operation", f"adding to {found.describe()}")
    f.tracer.heap.changed(found)
    return found


@handles("LIST_TO_TUPLE")
def list_to_tuple(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.wrapper.sequence(list(f.tracer.operators.iterate_all(f.pop())), tuple))


@handles("UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, i: Instruction) -> None:
    items = list(f.tracer.operators.iterate_all(f.pop_iterable(), limit=i.arg + 1))
    if len(items) != i.arg:
        text = (
            f"too many values to unpack (expected {i.arg})"
            if len(items) > i.arg
            else f"not enough values to unpack (expected {i.arg}, got {len(items)})"
        )
        raise f.tracer.exceptions.raised(ValueError(text))
    for item in reversed(items):
        f.push(item)


@handles("UNPACK_EX")
def unpack_ex(f: Frame, i: Instruction) -> None:
    before, after = i.arg & 0xFF, i.arg >> 8
    t = f.tracer
    iterator = f.pop_iterable().realise(t).iterate(t)
    items: list[Value] = []
    while len(items) < before and (item := iterator.next(t)) is not None:
        items.append(item)
    if len(items) == before:
        items += t.operators.collect(iterator)  # a list is made of the rest
    if len(items) < before + after:
        raise f.tracer.exceptions.raised(
            ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
        )
    middle = items[before : len(items) - after]
    for item in reversed(items[len(items) - after :] if after else []):
        f.push(item)
    f.push(ListValue(middle))
    for item in reversed(items[:before]):
        f.push(item)
