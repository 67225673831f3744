"""The replacement code of a traced frame.

In: the frame, what tracing it gave, and the compiled graph. Out: a code object with the frame code's arguments, cells and free
variables, which loads the graph's inputs, calls it, replays effects, and returns (or runs the instruction that broke the graph
and goes on in a resume function).

Order is what keeps this right: everything is loaded and made before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from attrs import evolve

from ..bytecode.encode import argument_names, spec_of
from ..bytecode.model import Label, Position, Protect
from ..bytecode.normalise import decode_normalised
from ..captured import Break, FrameResult
from ..frame import FrameInfo
from ..library import functools, inspect
from ..native import _C
from ..saved_tensor_hooks import hooks_set_aside, raised_in_hook
from ..sources.arguments import FIRST
from .break_point import BreakPoint, analyse, emit_break
from .emitter import Emitter
from .replay import replay, values_of
from .resume import CannotResume, resume_code

_HOOKS = torch.autograd.graph.saved_tensors_hooks
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def assemble(frame: FrameInfo, result: FrameResult, compiled: Callable[..., Any] | None) -> CodeType:
    """The code to run in place of `frame.code`.

    Raises CannotResume when the frame cannot be cut where tracing stopped: it has to run in plain Python then.
    """
    code = frame.code
    if code.co_flags & _SUSPENDS:
        raise CannotResume("generators and coroutines are not rewritten")
    point = analyse(code, result.exit) if isinstance(result.exit, Break) else None
    e = Emitter(evolve(spec_of(code), names=(), constants=code.co_consts[:1]), _first_position(code), frame.builtins)
    failed: Label | None = None
    if result.graph is not None:
        assert compiled is not None, "a graph was traced but no compiled callable given"
        failed = Label("failed") if result.caught else None
        e.protect = Protect(failed, 0, False) if failed is not None else None
        _call_graph(e, result, compiled)
        e.protect = None
    _prepare(e, result, point)
    if result.effects or point is not None:
        e.seal()
    for effect in result.effects:
        replay(e, effect)
    if point is not None:
        emit_break(e, point)
    else:
        assert not isinstance(result.exit, Break)
        e.value(result.exit.value)
        e.ret()
    if failed is not None:
        e.place(failed)
        assert result.graph is not None
        _run_plainly(e, code, recursive=bool(result.graph.meta.get("is_open")))
    return e.finish()


def _first_position(code: CodeType) -> Position:
    """The first line that runs, where trace functions and tracebacks find the graph: they know a function's own line from its start alone."""
    lines = (i.position.line for i in decode_normalised(code) if i.name != "RESUME")
    line = next((line for line in lines if line is not None), code.co_firstlineno)
    return Position(line, line, 0, 0)


def _call_graph(e: Emitter, result: FrameResult, compiled: Callable[..., Any]) -> None:
    """Call the compiled graph; its outputs become what the output values stand for."""
    e.plan(result.inputs)
    e.pinned(compiled)
    for source in result.inputs:
        e.source(source)
    if getattr(compiled, "_boxed_call", False):
        e.build("list", len(result.inputs))
        e.call(1)
    else:
        e.call(len(result.inputs))
    if not result.outputs:
        e.pop()
        return
    e.unpack(len(result.outputs))
    for output in result.outputs:
        name = e.temp()
        e.store_local(name)
        e.bind(output, name)


def _run_plainly(e: Emitter, code: CodeType, *, recursive: bool) -> None:
    """The whole frame in plain Python, with the functions that it calls if `recursive` (they were part of the graph). On the stack is the exception that the graph raised: nothing was changed, and the program will
    come to the operation that raises it, inside of its own handlers."""
    error = e.temp()
    e.store_local(error)
    boxed = (*code.co_cellvars, *code.co_freevars)
    made = resume_code(code, 0, (), tuple(name for name in argument_names(code) if name not in boxed))
    e.pinned(functools.partial(_plain_run, recursive=recursive))
    e.local(error)
    e.function(made.code, made.free)
    e.call(2)
    e.op("DELETE_FAST", value=error)
    for parameter in made.parameters:
        if parameter == FIRST:
            e.op("LOAD_DEREF", value=code.co_varnames[0])
        else:
            e.op("LOAD_FAST", value=parameter)
    e.call(len(made.parameters))
    e.ret()


def _plain_run(error: BaseException, function: Callable[..., Any], *, recursive: bool) -> Callable[..., Any]:
    """What runs the frame, as `function`, after its graph raised `error`. What is no error of an operation is raised: an interrupt has to stop the
    program at once, and one of a hook on saved tensors once the program's effects, which come after the graph, are done."""
    if not isinstance(error, Exception):
        raise error
    run = _C.Disabled(function, recursive)
    if not raised_in_hook(error):
        return run

    def run_and_raise(*arguments: Any) -> Any:
        if any(isinstance(getattr(argument, "__self__", None), _HOOKS) for argument in arguments):
            return run(*arguments)  # inside of a `with` of its own: the program will come to what it saves
        with hooks_set_aside():
            run(*arguments)
        raise error

    return run_and_raise


def _prepare(e: Emitter, result: FrameResult, point: BreakPoint | None) -> None:
    """Make every object that is needed after the first change."""
    for effect in result.effects:
        for value in values_of(effect):
            e.prepare(value)
    if point is not None:
        for value in point.values():
            e.prepare(value)
    elif result.effects and not isinstance(result.exit, Break):
        e.prepare(result.exit.value)
