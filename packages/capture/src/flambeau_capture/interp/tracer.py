"""`Tracer`: one trace of one frame, all operations together.

In: `FrameInfo`, options, what earlier compiles learnt, the step to stop at. Out: `run()` gives the way the frame ended; values, graph,
guards and heap are then read by `pipeline.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ..sources.source import Local
from ..values.functions import CellValue, cell_in_a_cell
from ..values.lazy import LazyValue
from . import handlers as handlers
from .calls import Calls
from .frame import Frame
from .signals import GraphBreak
from .state import ReachedBreak

if TYPE_CHECKING:
    from ..values.base import Value


class Tracer(Calls):
    """See the module."""

    def run(self) -> Value | None:
        """Trace the root frame; its returned value, None when the step to stop at was reached."""
        code = self.info.code
        boxed = (*code.co_cellvars, *code.co_freevars)
        variables: dict[str, Value] = {}
        cells: dict[str, CellValue] = {}
        for name, obj in self.info.locals.items():
            if name not in boxed:
                variables[name] = LazyValue(obj, Local(name))
        for name in code.co_cellvars:
            contents = LazyValue(self.info.locals[name], Local(name)) if name in self.info.locals else None
            cells[name] = CellValue(contents, name=name)
        for i, name in enumerate(code.co_freevars):
            contents = LazyValue(self.info.locals[name], Local(name)) if name in self.info.locals else None
            real = self.info.closure[i] if self.info.closure is not None else None
            cells[name] = CellValue(contents, Local(name), real, name=name)
            if real is not None:
                self.real_cells[id(real)] = cells[name]
        self.root = self.frame = Frame(self, code, self.info.globals, variables, cells, None)
        try:
            for name in boxed:
                if type(self.info.locals.get(name)) is types.CellType:
                    raise cell_in_a_cell(name)
            return self.root.run()
        except ReachedBreak:
            return None
        except GraphBreak as error:
            self.locate(error)
            raise
