"""Regions as programs make them: a callable whose frames are captured and compiled with a backend.

In: a callable, a backend, options. Out: `make_region`'s native region, whose questions about frames `_Callback` answers: which frames are looked at
at all, what the stance says of compiling now, and `pipeline.py:capture_frame` for the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve

from . import compile_hooks, hook, log, stance
from .collector import few_collections
from .config import Config
from .error_root import FlambeauError
from .errors import CompileRefusedError, FlambeauCaptureError, InternalError
from .frame import Answer, FrameInfo, Later, Once, RunCode, RunGraph, Skip, SkipAlways
from .graph.declared_shapes import DeclaredShapes
from .graph.dynamics import Dynamics, Profile
from .graph.quiet import quiet_fakes
from .interp.wrapper_code import tripwires_kept
from .library import gc, inspect, threading
from .modes import node_hooks_set_aside
from .pipeline import Backend, capture_frame, trace_frame
from .policy import Decision, Owner, decide, owner_of
from .record import CompileRecord
from .refusal import CannotCapture, TraceAnew

if TYPE_CHECKING:
    from types import CodeType, FrameType

_MODULE_MACHINERY = frozenset(
    method.__code__
    for name, method in vars(torch.nn.Module).items()
    if inspect.isfunction(method) and name not in ("_wrapped_call_impl", "_call_impl")
)
"""Methods of `nn.Module` itself: what they do to a module is replayed by calling them, so they are never compiled on their own."""
Left = Callable[["CodeType", str], None]
"""Told of a function that is not looked at: its code, why."""
Around = Callable[[FrameInfo], AbstractContextManager[Any]]
"""Given a frame, what its compile runs inside of."""
_SUSPENDS = 0x20 | 0x80 | 0x200
_LEFT_TO_PYTHON = {
    Decision.SKIP: "code of a library, which runs in Python; what it calls is looked at",
    Decision.OPAQUE: "code of a library, which runs in Python with all that it calls",
}


def make_region(
    function: Callable[..., Any],
    backend: Backend,
    *,
    config: Config | None = None,
    observer: Callable[[CompileRecord], None] | None = None,
    label: str | None = None,
    around: Around | None = None,
    left: Left | None = None,
    shapes_spec: Any = None,
    profile: Profile | None = None,
    **options: Any,
) -> Any:
    """A callable like `function` whose frames are captured and compiled with `backend` while it runs.

    `options` override fields of `config` (`fullgraph=True`, `dynamic=False`). `observer` is given what became of each compiled frame; each compile of
    a frame runs inside of `around(frame)`; `left` is told of functions that are not looked at. `label` is shown by ranges of torch's profiler.
    `shapes_spec` declares the shapes of the parameters (`graph/declared_shapes.py`). `profile` has what other processes and ranks learnt about sizes.
    """
    settings = config if config is not None else Config.from_environment()
    if options:
        settings = evolve(settings, **options)
    if settings.fullgraph:  # nothing could be left to plain Python
        settings = evolve(settings, capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
    declared = None if shapes_spec is None else DeclaredShapes(shapes_spec, function, hook.MODULE_CALL)
    callback = _Callback(backend, settings, observer, around, declared, profile, left)
    return hook.make_region(function, callback, settings, label)


def _is_running(code: CodeType) -> bool:
    """Whether a frame of this code is on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


class _Callback:
    """What a region asks about a frame; holds what its compiles have learnt, one `Dynamics` a code object."""

    def __init__(
        self,
        backend: Backend,
        config: Config,
        observer: Callable[[CompileRecord], None] | None,
        around: Around | None = None,
        declared: DeclaredShapes | None = None,
        profile: Profile | None = None,
        left: Left | None = None,
    ) -> None:
        self.backend = backend
        self.config = config
        self.observer = observer
        self.around = around
        self.declared = declared
        self.profile = profile
        self.left = left
        self.dynamics: dict[CodeType, Dynamics] = {}
        self.raising = threading.local()
        self.met: set[CodeType] = set()
        self.faults: set[str] = set()

    def forget(self) -> None:
        """Forget what earlier compiles have learnt."""
        self.dynamics.clear()
        self.met.clear()
        self.faults.clear()

    def compiled_by(self, backend: Backend) -> _Callback:
        """The same for another backend, with nothing learnt."""
        return _Callback(backend, self.config, self.observer, self.around, self.declared, self.profile, self.left)

    def __call__(self, info: FrameInfo) -> Answer:
        # Of a call that is left to plain Python because it raises, what it calls is part: with `fullgraph` it would be refused.
        raising = getattr(self.raising, "code", None)
        if raising is not None and raising is not info.code and _is_running(raising):
            return Skip()
        answer = self._answer(info)
        vars(self.raising).clear()
        if isinstance(answer, Skip) and answer.raises:
            self.raising.code = info.code
        return answer

    def _answer(self, info: FrameInfo) -> Answer:
        decision = decide(info.code)
        if decision is not Decision.TRACE or info.code.co_flags & _SUSPENDS:
            suspends = decision is Decision.TRACE
            reason = "a generator or coroutine runs as it is" if suspends else _LEFT_TO_PYTHON[decision]
            # What rebuilds the program's objects after a graph is ours, and no part of the program.
            if owner_of(info.code.co_filename) is not Owner.FLAMBEAU:
                log.logger.info(log.FRAME_SKIPPED, artifact="fallbacks", **log.place_of(info.code), reason=reason)
                if self.left is not None:
                    self.left(info.code, reason)
            return SkipAlways(recursive=decision is Decision.OPAQUE)
        if info.code in _MODULE_MACHINERY:
            return SkipAlways()
        taken = stance.current()
        if taken.refuses and stance.computes(info):
            raise refusal_of(info)
        try:
            with few_collections(), quiet_fakes(), node_hooks_set_aside(), tripwires_kept():
                if taken.puts_off and not info.entries and info.code not in self.met:
                    self.met.add(info.code)
                    return self._first(info, taken)
                return self._captured(info, self.backend)
        except FlambeauError:
            raise
        except Exception as error:
            if not self.config.suppress_errors or self.config.fullgraph:
                raise InternalError(
                    f"capturing {info.code.co_qualname} failed: {type(error).__name__}: {error}"
                ) from error
            self.at_fault(info, error)
            return SkipAlways()
        finally:
            info.let_go()
            if self.config.run_gc_after_compile:
                gc.collect()

    def at_fault(self, info: FrameInfo, error: Exception) -> None:
        """Tell of a frame that runs in plain Python because something of ours failed: each fault is warned of once, what it does to other frames
        (those that the first one calls) is reported."""
        reason = f"{type(error).__name__}: {error}"
        if reason not in self.faults:
            self.faults.add(reason)
            hook.warn_of_fault(info.code, error)
        log.logger.debug(log.FRAME_SKIPPED, artifact="fallbacks", **log.place_of(info.code), reason=reason)
        if self.observer is not None:
            self.observer(CompileRecord(info.code, info.entries, None, 0, (), (), 0.0, 0.0, reason, info.compile_id))

    def _captured(self, info: FrameInfo, backend: Backend) -> Answer:
        dynamics = self._dynamics_of(info)
        if self.profile is not None and self.profile.asks_ranks:
            self._look_first(info, dynamics)
            for record in self.profile.of_ranks(dynamics.record()):
                dynamics.learn(record)
        with compile_hooks.told(info), self.around(info) if self.around is not None else nullcontext():
            answer = capture_frame(info, backend=backend, config=self.config, dynamics=dynamics, observer=self.observer)
        self._keep(info.code, dynamics)
        return answer

    def _dynamics_of(self, info: FrameInfo) -> Dynamics:
        found = self.dynamics.get(info.code)
        if found is None:
            found = self.dynamics[info.code] = Dynamics(self.declared)
            for record in () if self.profile is None else self.profile.read(info.code):
                found.learn(record)
        return found

    def _first(self, info: FrameInfo, taken: stance.Stance) -> Answer:
        """The answer for the first call of a code whose compile is put off: what it is called with is learnt from, so that the next sees what changes."""
        if taken.first is not None:
            answer = self._captured(info, taken.first)
            return Once(answer) if isinstance(answer, (RunCode, RunGraph)) else answer
        dynamics = self._dynamics_of(info)
        self._look_first(info, dynamics)
        self._keep(info.code, dynamics)
        return Later()

    def _look_first(self, info: FrameInfo, dynamics: Dynamics) -> None:
        """Learn the sizes and numbers of a call that is not compiled yet."""
        with suppress(CannotCapture, TraceAnew, FlambeauCaptureError):
            trace_frame(info, evolve(self.config, fullgraph=False), dynamics)

    def _keep(self, code: CodeType, dynamics: Dynamics) -> None:
        """Have other processes know what was learnt; they may have learnt more meanwhile."""
        if self.profile is None or self.declared is not None:
            return
        merged = Dynamics()
        for record in (*self.profile.read(code), dynamics.record()):
            merged.learn(record)
        self.profile.write(code, merged.record())


def refusal_of(info: FrameInfo) -> CompileRefusedError:
    """The error for a frame that would be compiled where the stance refuses it."""
    listed = "".join(f"\n  - {reason}" for reason in info.misses)
    why = f" again; no entry fits:{listed}" if listed else ", and never was before"
    code = info.code
    return CompileRefusedError(
        f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) would be compiled under the stance 'fail_on_recompile'{why}"
    )
