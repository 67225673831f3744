"""Locals, cells, globals and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...signals import GraphBreak, TracedRaise
from ...values.base import NULL
from ...values.functions import CellValue, cell_in_a_cell
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(f: Frame, i: Instruction) -> None:
    value = f.locals.get(i.value)
    if value is None:
        raise f.tracer.exceptions.raised(
            UnboundLocalError(f"cannot access local variable '{i.value}' where it is not associated with a value")
        )
    f.push(value)


@handles("STORE_FAST")
def store_fast(f: Frame, i: Instruction) -> None:
    value = f.pop()
    if value is NULL:
        f.locals.pop(i.value, None)
    elif isinstance(value, CellValue) and i.value in f.code.co_cellvars + f.code.co_freevars:
        # What a comprehension put into the slot meanwhile is gone: nobody else reads its variable.
        f.locals.pop(i.value, None)
        f.cells[i.value] = value
    else:
        f.locals[i.value] = value


@handles("DELETE_FAST")
def delete_fast(f: Frame, i: Instruction) -> None:
    if f.locals.pop(i.value, None) is None:
        raise f.tracer.exceptions.raised(
            UnboundLocalError(f"cannot access local variable '{i.value}' where it is not associated with a value")
        )


@handles("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(f: Frame, i: Instruction) -> None:
    if i.value in f.cells:
        f.stack.append(f.cells.pop(i.value))
        return
    value = f.locals.pop(i.value, None)
    f.stack.append(NULL if value is None else value.realise(f.tracer))


@handles("MAKE_CELL")
def make_cell(f: Frame, i: Instruction) -> None:
    f.cells[i.value] = CellValue(f.locals.pop(i.value, None))


@handles("LOAD_CLOSURE")
def load_closure(f: Frame, i: Instruction) -> None:
    if i.value in f.cells:
        f.stack.append(f.cells[i.value])
    else:  # a comprehension has put the cell away and uses the slot for a variable of its own: Python 3.13 reads both by one instruction
        load_fast(f, i)


@handles("LOAD_DEREF", "LOAD_CLASSDEREF")
def load_deref(f: Frame, i: Instruction) -> None:
    value = f.cells[i.value].contents
    if value is None:
        raise _unbound(f, i.value)
    f.push(value)


def _unbound(f: Frame, name: str) -> TracedRaise:
    if name in f.code.co_cellvars:
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        return f.tracer.exceptions.raised(UnboundLocalError(text))
    text = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
    return f.tracer.attributes.unbound_name(NameError(text), name)


@handles("STORE_DEREF")
def store_deref(f: Frame, i: Instruction) -> None:
    value = f.pop()
    if isinstance(value, CellValue):
        raise cell_in_a_cell(i.value)
    f.tracer.attributes.store_cell(f.cells[i.value], value)


@handles("DELETE_DEREF")
def delete_deref(f: Frame, i: Instruction) -> None:
    cell = f.cells[i.value]
    if cell.source is not None:
        raise GraphBreak("external-mutation", "deleting a variable of an enclosing function")
    if cell.contents is None:
        raise _unbound(f, i.value)
    cell.contents = None


@handles("LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.attributes.load_global(f.globals, i.value))


@handles("STORE_GLOBAL")
def store_global(f: Frame, i: Instruction) -> None:
    f.tracer.heap.store_global(f.globals, i.value, f.pop())


@handles("DELETE_GLOBAL")
def delete_global(f: Frame, i: Instruction) -> None:
    f.tracer.heap.store_global(f.globals, i.value, None)
