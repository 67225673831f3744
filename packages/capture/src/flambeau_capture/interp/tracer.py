"""`Tracer`: one trace of one frame. It owns the parts that do the work, and the state that they share.

In: `FrameInfo`, options, what earlier compiles learnt, the step to stop at. Out: `run()` gives the way the frame ended; values, graph,
guards and heap are then read by `pipeline.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..effects.record import Heap
from ..graph.builder import GraphBuilder
from ..guards.collect import GuardCollector
from ..scopes import Followed
from ..signals import GraphBreak, TracedRaise
from ..sources.source import Local
from ..values import trust
from ..values.functions import CellValue, cell_in_a_cell
from ..values.lazy import LazyValue
from . import handlers as handlers
from .arithmetic import Arithmetic
from .attributes import Attributes
from .calls import Caller
from .class_members import ClassMembers
from .devices import Devices
from .exceptions import Exceptions
from .folding import Folder
from .frame import Frame
from .hit_loops import HitLoops
from .lifetimes import Lifetimes
from .operations import Operators
from .overrides import Overrides
from .repeated_calls import RepeatedCalls
from .stack import FrameStack, ReachedBreak
from .tensors import Recorder
from .texts import Texts
from .wrapping import Wrapper

if TYPE_CHECKING:
    from ..config import Config
    from ..frame import FrameInfo
    from ..graph.dynamics import Dynamics
    from ..values.base import Value
    from ..values.generators import GeneratorValue


class Tracer:
    """See the module.

    Args:
        break_at: the step of the root frame to stop at; None on the first trace.
    """

    def __init__(self, info: FrameInfo, config: Config, dynamics: Dynamics, break_at: int | None) -> None:
        info.traces.append(self)
        self.info = info
        self.scopes = Followed(config, info.fixed)
        self.config = self.scopes.config
        self.frames = FrameStack(self.config.unroll_limit, break_at, self.recorded)
        self.graph = GraphBuilder(self.config, self.frames.user_stack)
        self.graph.may_make_leaves = not dynamics.leaves_escape
        self.guards = GuardCollector(self.frames.user_position, trust)
        self.heap = Heap(info.globals)
        self.wrapper = Wrapper(self, dynamics)
        self.members = ClassMembers(self)
        self.recorder = Recorder(self)
        self.folder = Folder(self)
        self.arithmetic = Arithmetic(self)
        self.operators = Operators(self)
        self.texts = Texts(self)
        self.attributes = Attributes(self)
        self.exceptions = Exceptions(self)
        self.lifetimes = Lifetimes(self)
        self.caller = Caller(self)
        self.devices = Devices(self)
        self.overrides = Overrides(self)
        self.repeated_calls = RepeatedCalls(self)
        self.hit_loops = HitLoops(self, dynamics.over_hits_only)
        #: Whether gradients were enabled when the frame began.
        self.initial_grad = True
        #: Whether the program asked if it is being compiled, and was told so.
        self.told_compiling = False
        #: Generators that the program has begun to run.
        self.generators: list[GeneratorValue] = []

    def recorded(self) -> tuple[Any, ...]:
        """How much has been recorded: equal before and after an instruction that left no trace."""
        graph = self.graph
        return (
            graph.operations, graph.runs, len(graph.graph.nodes), len(graph.inputs), len(graph.constants), len(graph.modules),
            *graph.assumed(), graph.numbers_read(), len(graph.open_modes), len(graph.open_inference), len(graph.settings),
            torch.is_grad_enabled(), self.heap.asked, *self.heap.size(), self.guards.size(), len(self.generators),
            len(self.wrapper.tensor_inputs), self.scopes.left_and_entered(), self.scopes.foreign(),
        )  # fmt: skip

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
                self.wrapper.real_cells[id(real)] = cells[name]
        self.frames.root = self.frames.frame = Frame(self, code, self.info.globals, variables, cells, None)
        try:
            for name in boxed:
                if type(self.info.locals.get(name)) is types.CellType:
                    raise cell_in_a_cell(name)
            returned = self.frames.root.run()
            self.hit_loops.check()
            return returned
        except ReachedBreak:
            return None
        except TracedRaise:
            self.hit_loops.check()
            raise
        except GraphBreak as error:
            self.hit_loops.check()
            self.frames.locate(error)
            raise
