"""Making functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...values.functions import CellValue, ClosureValue
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("MAKE_FUNCTION")
def make_function(f: Frame, i: Instruction) -> None:
    code = f.pop().real()
    closure = f.pop() if i.arg & 8 else None
    annotations = f.pop() if i.arg & 4 else None
    kwdefaults = f.pop() if i.arg & 2 else None
    defaults = f.pop() if i.arg & 1 else None
    cells = (
        tuple(cell for cell in f.tracer.operators.iterate_all(closure) if isinstance(cell, CellValue))
        if closure is not None
        else ()
    )
    f.push(ClosureValue(code, f.globals, defaults, kwdefaults, cells, annotations))
