"""`flambeau.explain`: compile and run a call once, measure what came of it, and say what happened.

In: a callable, then the arguments of one call. Out: `Explanation`, with records of graphs, breaks, programs, kernels, and what they take.
It compiles in a region of its own, so nothing of the program's own regions changes. The call runs once, with all its effects; what is run
again for measurements are graphs, on copies of what they write to, and the whole call where it changes nothing outside of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from flambeau_capture.log import NO_FRAME

from .compile import compile_recorded, every_compile_recorded
from .explanation import Explanation
from .module import original_of
from .records import Recorder
from .targets import name_of

if TYPE_CHECKING:
    # Loaded when something is explained.
    from .insight.measure import Measured


def explain(
    function: Callable[..., Any], *, measure: bool = True, backward: bool = True, **compile_arguments: Any
) -> Callable[..., Explanation]:
    """A callable that compiles and runs `function` once and says what happened.

    Args:
        function: a function or a module.
        measure: whether graphs are run again, in eager and compiled, to measure times and memory. Seconds of a call that takes seconds.
        backward: whether gradients are part of what is measured, where a graph has any.
        compile_arguments: as for `flambeau.compile`.

    Example:
        >>> print(flambeau.explain(model)(x))
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        from .insight.measure import measured

        recorder = Recorder()
        compiled = compile_recorded(function, recorder, **compile_arguments)
        result = compiled(*args, **kwargs)
        found = measured(recorder.watched, backward=backward, measure=measure)
        if measure:
            _measure_whole(original_of(function), compiled, args, kwargs, recorder, found)
        return _explanation(recorder, found, result, name_of(function))

    return run


def _nothing_captured(recorder: Recorder) -> str:
    """Why there is no frame to tell of, or ""."""
    if recorder.frames:
        return ""
    return "the functions that ran are not looked at" if recorder.left else NO_FRAME


def explain_program(program: Callable[[], Any], *, measure: bool = True, backward: bool = True) -> list[Explanation]:
    """Run a program once, and say what happened to each function and module that it compiles: those that were called, in the order of their compile calls.

    Args:
        program: runs it. What compiles in a thread that it starts is not seen.
        measure, backward: as for `explain`; graphs are run again when the program is done.
    """
    recorders: list[tuple[str, Recorder]] = []

    def recorder_of(model: Any) -> Recorder:
        recorders.append((name_of(model), Recorder()))
        return recorders[-1][1]

    with every_compile_recorded(recorder_of):
        program()
    from .insight.measure import measured

    return [
        _explanation(recorder, measured(recorder.watched, backward=backward, measure=measure), None, name)
        for name, recorder in recorders
        if recorder.frames or recorder.left or recorder.not_captured
    ]


def _explanation(recorder: Recorder, found: Measured, result: Any, name: str) -> Explanation:
    return Explanation(
        tuple(recorder.graphs),
        tuple(recorder.breaks),
        tuple(recorder.programs),
        tuple(recorder.guards),
        dict(recorder.seconds),
        result,
        tuple(recorder.eager_graphs),
        tuple(recorder.cuda_graphs),
        recorder.not_captured or _nothing_captured(recorder),
        tuple(recorder.repeats),
        tuple(recorder.frames),
        tuple(found.steps),
        tuple(found.speeds),
        tuple(found.memory),
        tuple(found.notes),
        name,
        tuple(recorder.left),
    )


def _measure_whole(
    function: Any, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder, found: Measured
) -> None:
    obstacle = _outside(recorder)
    if not obstacle and torch.autograd._profiler_enabled():
        obstacle = "a profiler is active"
    if obstacle:
        found.notes.append(f"the whole call was not measured: {obstacle}")
        return
    from .insight.measure import whole_call

    try:
        found.speeds.insert(0, whole_call(function, compiled, args, kwargs))
    except Exception as error:
        found.notes.append(f"the whole call was not measured: a second one raised {type(error).__name__}: {error}")


def _outside(recorder: Recorder) -> str:
    """Why the call may change something outside of itself, so that it is not to be repeated, or ""."""
    if recorder.not_captured or not recorder.graphs:
        return "nothing of it was captured, so it may have effects"
    if recorder.breaks or any(frame.skipped for frame in recorder.frames):
        return "parts of it run in Python, which may have effects"
    if any(frame.effects for frame in recorder.frames):
        return "it changes objects outside of itself"
    if any(watched.written is None for watched in recorder.watched):
        return "the backend does not say what its graphs write to"
    if any(watched.written for watched in recorder.watched):
        return "it writes to its inputs, or to parameters or buffers"
    return ""
