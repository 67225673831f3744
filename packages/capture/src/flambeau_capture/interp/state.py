"""`TracerState`: what one trace owns; `Tracer` adds the operations.

In: the frame to trace, the region's options and what it learnt from earlier compiles. Out: shared by every mixin of `Tracer`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..effects.record import Heap
from ..graph.builder import GraphBuilder
from ..graph.captured import Position
from ..guards.collect import GuardCollector
from ..values.base import Value
from ..values.lazy import LazyValue
from . import trust
from .signals import GraphBreak
from .tried import may_catch

if TYPE_CHECKING:
    import torch

    from ..config import Config
    from ..frame import FrameInfo
    from ..values.functions import CellValue
    from ..values.iterators import GeneratorValue
    from .frame import Frame, Place


class ReachedBreak(Exception):
    """The root frame arrived at the step that is to run for real."""


class Dynamics:
    """What earlier compiles of the code taught: the last seen values of inputs, by the name of their source."""

    def __init__(self) -> None:
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.numbers: dict[str, Any] = {}
        self.changed_dims: dict[str, set[int]] = {}
        self.changed_numbers: set[str] = set()

    def see_sizes(self, name: str, sizes: tuple[int, ...], *, learn: bool) -> frozenset[int]:
        """Note the sizes of an input; the dimensions that have changed so far."""
        old = self.sizes.get(name)
        changed = self.changed_dims.setdefault(name, set())
        if learn:
            if old is not None and len(old) == len(sizes):
                changed.update(d for d in range(len(sizes)) if old[d] != sizes[d])
            self.sizes[name] = sizes
        return frozenset(changed)

    def see_number(self, name: str, value: Any, *, learn: bool) -> bool:
        """Note a Python number; whether it has changed so far."""
        if learn:
            if name in self.numbers and self.numbers[name] != value:
                self.changed_numbers.add(name)
            self.numbers[name] = value
        return name in self.changed_numbers


class TracerState:
    """Fields and the position in the user's program."""

    def __init__(self, info: FrameInfo, config: Config, dynamics: Dynamics, break_at: int | None) -> None:
        info.traces.append(self)
        self.info = info
        self.config = config
        self.dynamics = dynamics
        self.break_at = break_at
        self.root_steps = 0
        self.first_steps: dict[int, int] = {}
        self.steps = 0
        self.depth = 0
        self.frame: Frame = None  # type: ignore[assignment]
        self.root: Frame = None  # type: ignore[assignment]
        #: What the frame that is made next has `left_out`.
        self.left_out: tuple[Place, ...] = ()
        self.initial_grad = True
        self.caught = False
        #: Whether the program asked if it is being compiled, and was told so.
        self.told_compiling = False
        #: Devices that the program has entered, and the one that was in force before.
        self.devices: list[torch.device] = []
        self.outer_device: torch.device | None = None
        #: Generators that the program has begun to run.
        self.generators: list[GeneratorValue] = []
        self.rehearsing = False
        self.graph = GraphBuilder(config, self.user_stack)
        self.guards = GuardCollector(self.user_position, trust)
        self.heap = Heap(info.globals)
        self.wrapped: dict[int, Value] = {}
        #: Kept while the trace lasts, for `wrapped` knows objects by their address; an entry must not keep its first arguments.
        self.met: list[Any] = []
        #: Kept by the entry: they are part of it.
        self.keep_alive: list[Any] = []
        self.pinned: dict[int, Value] = {}
        self.fake_owner: dict[int, Value] = {}
        self.tensor_inputs: list[Any] = []
        self.handled_outside = sys.exc_info()[1] is not None
        """Whether a caller of the frame is handling an exception."""
        self.instance_dicts: dict[int, Value] = {}
        self.real_cells: dict[int, CellValue] = {}
        self._stack_cache: tuple[tuple[Any, ...], tuple[tuple[str, int, str], ...]] | None = None

    # positions

    def step(self, frame: Frame) -> None:
        """Called before every instruction."""
        self.steps += 1
        if self.steps > self.config.unroll_limit:
            raise GraphBreak("too-long", f"more than {self.config.unroll_limit} instructions in one frame")
        if frame is self.root:
            self.root_steps += 1
            self.first_steps.setdefault(frame.index, self.root_steps)
            if self.root_steps == self.break_at:
                raise ReachedBreak

    def note_handlers(self) -> None:
        """Called for every operation of the graph: whether a handler of the program covers it."""
        frame = self.frame
        while frame is not None and not self.caught:
            self.caught = may_catch(frame.code, frame.index, frame.stack, frame.entered)
            frame = frame.caller  # type: ignore[assignment]

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """`(file, line, function)` of every frame being traced, innermost last."""
        frames: list[tuple[str, int, str]] = []
        frame: Frame | None = self.frame
        while frame is not None:
            instruction = frame.instructions[frame.index]
            frames.append(
                (frame.code.co_filename, instruction.position.line or frame.code.co_firstlineno, frame.code.co_qualname)
            )
            frame = frame.caller
        frames.reverse()
        if self._stack_cache is not None and self._stack_cache[1] == tuple(frames):
            return self._stack_cache[1]
        stack = tuple(frames)
        self._stack_cache = ((), stack)
        return stack

    def user_position(self) -> tuple[str, int, str] | None:
        """The innermost traced line."""
        frame = self.frame
        if frame is None:
            return None
        line = frame.instructions[frame.index].position.line
        return (frame.code.co_filename, line or frame.code.co_firstlineno, frame.code.co_qualname)

    def position_of(self, frame: Frame) -> Position:
        """Where a frame is, with columns."""
        code, at = frame.code, frame.instructions[frame.index].position
        return Position(
            code.co_filename, at.line or code.co_firstlineno, code.co_qualname,
            -1 if at.column is None else at.column, -1 if at.end_line is None else at.end_line, -1 if at.end_column is None else at.end_column,
        )  # fmt: skip

    def realise(self, value: Value) -> Value:
        """Look at a lazy value: wrap and guard the object it stands for."""
        if isinstance(value, LazyValue):
            if value.realised is None:
                assert value.source is not None
                value.realised = self.wrap(value.object, value.source)
            return value.realised
        return value

    def wrap(self, obj: Any, source: Any) -> Value:
        """A value for a real object; see `Wrapping`."""
        raise NotImplementedError
