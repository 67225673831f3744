"""From a frame to the code that replaces it: the stages of capture in order.

In: `FrameInfo`, a backend, options. Out: the answer for the frame hook (`RunCode`, `RunGraph`, `SkipAlways`).

    trace (stepped back, or again, to before a break) -> FrameResult -> backend -> guards -> replacement code
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve, frozen

from . import hook, log
from .aliasing import history_guards, object_guards, refuse_resized, refuse_writes, tensor_guards
from .backend_call import call_backend
from .breaks import STEP_UNSUPPORTED
from .captured import Break, DeleteAttribute, Effect, FrameResult, Return, SetAttribute
from .class_names import class_name
from .config import Config
from .cut import computes, goes_over_tensors, handles_groups, loops_around, place_to_cut, step_back, stores_data_later
from .effects.describe import effects_text, tell_of_changes
from .frame import Answer, FrameInfo, RunCode, RunGraph, Skip, SkipAlways
from .graph.describe import symbols_text
from .graph.dynamics import Dynamics
from .graph.shapes import check_marks, open_conditions, shape_guards
from .graph.trials import BEYOND_MEMORY
from .guard_filter import filter_guards, skip_guard_on_all_nn_modules_unsafe
from .guards.check import holds
from .guards.explain import explain
from .guards.spec import GuardSpec, IdentityIs
from .guards.state import beyond_graphs, current_state
from .inference import settle_inference
from .interp.moved_calls import settle_moved
from .interp.outputs import needed_outputs
from .interp.tracer import Tracer
from .library import time
from .modes import (
    mode_effects,
    needs_gradients,
    refuse_unchecked,
    restored_modes,
)
from .patches import unpatched
from .policy import leave_rest
from .reasons import describe
from .record import BreakRecord, CompileRecord
from .refusal import CannotCapture, NumbersRefused, TraceAnew, refuse_fullgraph
from .results import result_nodes
from .rewrite.assemble import assemble
from .rewrite.break_point import needed_locals
from .rewrite.listing import listing
from .rewrite.resume import CannotResume, sees_frames
from .rewrite.rounds import separate_rounds
from .rewrite.source_text import source_text
from .signals import GraphBreak, Position, TracedRaise
from .sources.source import Local
from .values.base import Value
from .values.sequences import ListValue, TupleValue
from .values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType

Backend = Callable[..., Any]
_RAISES = ("uncaught-exception", "operator-error")
"""Breaks at which the program itself raises: with `fullgraph` too, the exception is its own, from plain Python (a call that then returns
without having run anything that was compiled is an error: `hook.py:nothing_ran`)."""
_OF_HISTORY = ("is being used in an in-place operation", "is being modified inplace")
"""What autograd says of a write, by how its target was taken and whether somebody has asked for its history since: what a graph hands on to
a break are views of the same, taken anew."""


@frozen(eq=False)
class Traced:
    """A trace that ended: the tracer, how it ended, the break that ended it."""

    tracer: Tracer
    result: FrameResult
    guards: tuple[GuardSpec, ...]
    broken: GraphBreak | None


class LoopBreaks(CannotCapture):
    """The frame is left to plain Python for a break inside a loop, which begins before anything was computed.

    Attributes:
        heads: where a loop computes, or goes over tensors, the indices of the instructions where those begin that the break lies in, the outermost first.
    """

    def __init__(self, reason: GraphBreak, tracer: Tracer) -> None:
        super().__init__(reason)
        self.heads = loops_around(tracer) if computes(tracer) or goes_over_tensors(tracer) else []


def capture_frame(
    info: FrameInfo,
    *,
    backend: Backend,
    config: Config,
    dynamics: Dynamics,
    observer: Callable[[CompileRecord], None] | None = None,
) -> Answer:
    """The answer for a frame. Raises CaptureError when `fullgraph` is asked for and impossible, or the backend fails."""
    started = time.perf_counter()
    try:
        with _tracing(config.recursion_limit), log.logger.stage("trace"):
            traced = trace_frame(info, config, dynamics)
        _refuse_open_sizes(info, traced.tracer)
    except TraceAnew:
        return capture_frame(info, backend=backend, config=config, dynamics=dynamics, observer=observer)
    except LoopBreaks as error:
        return _round_by_round(info, error, config, started, observer)
    except CannotCapture as error:
        return _left_out(info, error, config, started, observer)
    tell_of_changes(traced.result, config, info.code)
    if not config.guard_nn_modules:
        traced = evolve(traced, guards=filter_guards(traced.guards, skip_guard_on_all_nn_modules_unsafe, info))
    if config.guard_filter_fn is not None:
        traced = evolve(traced, guards=filter_guards(traced.guards, config.guard_filter_fn, info))
    result = traced.result
    before_backend = time.perf_counter()
    if result.graph is None and traced.broken is None and not result.effects and not config.fullgraph:
        traced = evolve(traced, guards=(*traced.guards, *shape_guards(traced.tracer.graph)))
        _report(observer, _record(info, traced, None, started, skipped="no tensor operation"))
        return RunCode(info.code, traced.guards, tuple(traced.tracer.wrapper.keep_alive))
    compiled = None
    if result.graph is not None:
        try:
            with log.logger.stage("backend"):
                compiled = call_backend(backend, traced.tracer.graph, result)
        except NumbersRefused:
            settings = evolve(config, capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False)
            info.fixed.update(("capture_scalar_outputs", "capture_dynamic_output_shape_ops"))
            return capture_frame(info, backend=backend, config=settings, dynamics=dynamics, observer=observer)
        except GraphBreak as broken:  # the backend ran code that must not run while it is compiled
            return _left_out(info, CannotCapture(broken), config, started, observer)
        result = evolve(result, caught=result.graph.meta.get("starts_anew", False))
    # Only now: a backend may assume more about sizes than tracing did.
    try:
        refuse_unchecked(result.graph)
        traced.tracer.wrapper.wrapper_tensors.refuse_called()
        _refuse_open_sizes(info, traced.tracer)
    except CannotCapture as error:
        return _left_out(info, error, config, started, observer)
    traced = evolve(traced, guards=(*traced.guards, *shape_guards(traced.tracer.graph)))
    backend_seconds = time.perf_counter() - before_backend
    try:
        with log.logger.stage("rewrite"):
            code = assemble(info, result, compiled)
        if traced.broken is not None and traced.broken.code == STEP_UNSUPPORTED:
            leave_rest(code)
    except CannotResume as error:
        reason = GraphBreak(
            traced.broken.code if traced.broken else "cannot-rebuild",
            f"{traced.broken.message if traced.broken else ''}; the frame cannot be resumed there: {error}",
        )
        reason.position = traced.broken.position if traced.broken else None
        _report(observer, _record(info, traced, reason, started, skipped=str(error)))
        return SkipAlways()
    _report(observer, _record(info, traced, traced.broken, started, backend_seconds=backend_seconds))
    shape = _direct_outputs(result)
    _tell(info.code, code, traced, direct=shape is not None)
    if compiled is not None and shape is not None:
        return RunGraph(compiled, result.inputs, shape[0], traced.guards, tuple(traced.tracer.wrapper.keep_alive))
    return RunCode(code, traced.guards, tuple(traced.tracer.wrapper.keep_alive))


def _left_out(
    info: FrameInfo,
    error: CannotCapture,
    config: Config,
    started: float,
    observer: Callable[[CompileRecord], None] | None,
) -> Answer:
    """The answer for a frame that plain Python runs. Of a module's call nothing is told: `forward` is looked at next, and tells."""
    if error.reason.code not in _RAISES:
        refuse_fullgraph(error.reason, info.traces[-1].config if info.traces else config)
    if info.code is hook.MODULE_CALL:
        return SkipAlways() if error.always else Skip(raises=error.reason.code in _RAISES)
    _report(observer, _record(info, None, error.reason, started, skipped=error.reason.message))
    return SkipAlways(error.recursive) if error.always else Skip(raises=error.reason.code in _RAISES)


def _round_by_round(
    info: FrameInfo,
    error: LoopBreaks,
    config: Config,
    started: float,
    observer: Callable[[CompileRecord], None] | None,
) -> Answer:
    """The answer for a frame with a loop that breaks: plain Python, where rounds that can be functions are called as such."""
    at = error.reason.position
    log.logger.info(
        log.BREAK_IN_LOOP,
        artifact="perf_hints",
        **log.place_of(info.code),
        at="" if at is None else f"{at.file}:{at.line}",
        reason=error.reason.message,
        hint="the frame runs in plain Python from the loop on; move what breaks out of the loop, or the loop's body into a function",
    )
    for head in error.heads:
        try:
            code = separate_rounds(info.code, head)
        except CannotResume:
            continue
        _report(observer, _record(info, None, error.reason, started, skipped="a loop is captured round by round"))
        log.logger.debug(
            log.BYTECODE, artifact="bytecode", function=info.code.co_qualname, code=log.Text(partial(listing, code))
        )
        return RunCode(code, _owner_guards(info))
    return _left_out(info, error, config, started, observer)


def _owner_guards(info: FrameInfo) -> tuple[GuardSpec, ...]:
    """Modules of one class share their methods' code: what holds for one need not for another."""
    name = info.code.co_varnames[0] if info.code.co_argcount else ""
    owner = info.locals.get(name)
    return (IdentityIs(Local(name), owner),) if isinstance(owner, torch.nn.Module) else ()


def trace_frame(info: FrameInfo, config: Config, dynamics: Dynamics) -> Traced:
    """Trace to the end, or to the first instruction that breaks (by tracing once more up to it, where it cannot be stepped back)."""
    if info.replaced:
        broken = GraphBreak("unsupported-call", f"{', '.join(info.replaced)} is not Python's own")
        raise CannotCapture(broken, always=False)
    with unpatched():
        state = current_state()
    if what := beyond_graphs(state):
        raise CannotCapture(GraphBreak("unsupported-call", f"{what} is active"), always=False)
    handled = sys.exception()
    tracer = Tracer(info, config, dynamics, None)
    try:
        with restored_modes(tracer):
            try:
                returned = _run(tracer)
            except GraphBreak as error:
                if not step_back(tracer, error):
                    raise
                broken, returned = error.without_frames(handled), None
            if returned is not None:
                return _finish(tracer, Return(returned), None, state)
            _step_to_cut_at(info, tracer, broken)
            with _refused(broken, handled):
                return _finish(tracer, _break_of(tracer, broken), broken, state)
    except GraphBreak as error:
        broken = error.without_frames(handled)
    stop = _step_to_cut_at(info, tracer, broken)
    again = Tracer(info, config, dynamics, stop)
    with _refused(broken, handled), restored_modes(again):
        if _run(again) is not None:
            raise CannotCapture(broken)
        if stop != tracer.frames.root_steps and not again.graph.operations:
            raise LoopBreaks(broken, tracer)  # with nothing to compute before it
        return _finish(again, _break_of(again, broken), broken, state)


@contextmanager
def _refused(broken: GraphBreak, handled: BaseException | None) -> Iterator[None]:
    """What cannot be cut at a break is left to plain Python, for that break or because its values cannot be made again."""
    try:
        yield
    except GraphBreak as error:
        error.without_frames(handled)
        raise CannotCapture(error if error.code == "cannot-rebuild" else broken) from None


def _step_to_cut_at(info: FrameInfo, tracer: Tracer, broken: GraphBreak) -> int:
    """A step of the root frame. Raises `CannotCapture` for one that is left to plain Python."""
    config = tracer.config
    if broken.code in _RAISES and (
        config.refuses_breaks or any(words in broken.message for words in (*_OF_HISTORY, BEYOND_MEMORY))
    ):
        raise CannotCapture(broken, always=False)
    if broken.code in _RAISES and tracer.told_compiling:
        # What raises may be the program's other way, for compilers only: plain Python does not take it.
        raise CannotCapture(broken)
    refuse_fullgraph(broken, config)
    if info.code is hook.MODULE_CALL:
        raise CannotCapture(broken)
    if stores_data_later(tracer) and tracer.graph.has_history():
        # If it is a tensor's, what eager saved of that for the backward changes as well, what a graph saved before does not.
        raise CannotCapture(broken, recursive=True)
    if handles_groups(tracer) or broken.whole or sees_frames(info.code):
        raise CannotCapture(broken)
    stop = place_to_cut(tracer)
    if stop is None:
        raise LoopBreaks(broken, tracer)
    return stop


def _refuse_open_sizes(info: FrameInfo, tracer: Tracer) -> None:
    """Leave the call to eager where sizes marked unbacked are not as the trace went on to assume."""
    for condition in open_conditions(tracer.graph):
        if not holds(condition, info.locals, info.globals, info.builtins):
            reason = GraphBreak("open-size", explain(condition, info.locals, info.globals, info.builtins))
            refuse_fullgraph(reason, tracer.config)
            raise CannotCapture(reason, always=False)


def _run(tracer: Tracer) -> Value | None:
    try:
        return tracer.run()
    except TracedRaise as error:
        broken = GraphBreak("uncaught-exception", f"{class_name(error.value.python_type())} is raised")
        tracer.frames.frame = tracer.frames.root
        tracer.frames.locate(broken)
        raise broken from error


def _break_of(tracer: Tracer, broken: GraphBreak) -> Break:
    root = tracer.frames.root
    variables: dict[str, Value] = dict(root.locals)
    variables.update({name: cell for name, cell in root.cells.items() if name in root.code.co_cellvars})
    handled = tuple(error for error in root.current_exceptions if error is not None)
    position = broken.position or tracer.frames.position_of(root)
    is_open = broken.code == "dynamic-output-shape" and broken.is_in_root
    made = Break(root.index, tuple(root.stack), variables, broken.message, position, handled, is_open)
    tracer.hit_loops.check(variables[name] for name in _needed_locals(root.code, made) if name in variables)
    return made


def _finish(tracer: Tracer, exit: Return | Break, broken: GraphBreak | None, state: GuardSpec) -> Traced:
    if any(generator.has_more_to_do() for generator in tracer.generators):
        # When Python ends it, and so runs what it has left to do, depends on who holds it.
        raise CannotCapture(GraphBreak("generator-function", "a generator is left inside of a with or try statement"))
    settle_moved(tracer)
    effects: tuple[Effect, ...] = tracer.heap.effects()
    effects += mode_effects(tracer)
    effects = _without_lost_tensors(tracer.info.code, exit, effects)
    outputs = needed_outputs(_live_values(tracer.info.code, exit, effects))
    graph = None
    nodes, effects = result_nodes(tracer, outputs, effects)
    settle_inference(tracer.graph, nodes)
    wants_grad = needs_gradients(tracer)
    if tracer.graph.operations or outputs:
        graph = tracer.graph.finish(nodes)
    check_marks(tracer.wrapper.tensor_inputs)
    if tracer.wrapper.declared is not None:
        tracer.wrapper.declared.check()
    tracer.wrapper.wrapper_tensors.note_writes()
    tracer.wrapper.wrapper_tensors.refuse_called()
    refuse_writes(tracer)
    refuse_resized(tracer)
    guards = (
        state,
        *tracer.guards.all(),
        *tensor_guards(tracer),
        *object_guards(tracer),
        *history_guards(tracer, broken),
    )
    written = any(fake._version for _, fake, _ in tracer.wrapper.tensor_inputs if not fake.is_inference())
    repeated = tracer.frames.caught or tracer.graph.is_open
    caught = (repeated or bool(effects)) and not written
    if graph is not None:
        graph.meta.update(starts_anew=caught, may_start_anew=repeated and written, is_open=tracer.graph.is_open)
        graph.meta["within_modes"] = bool(tracer.overrides.outer)
        tracer.scopes.note(tracer.graph.operations)
        graph.meta["recorded"] = tracer.scopes.recorded
    result = FrameResult(
        graph,
        tuple(tracer.graph.inputs) if graph is not None else (),
        tuple(outputs),
        effects,
        exit,
        tuple(tracer.graph.input_values),
        caught,
        wants_grad,
    )
    return Traced(tracer, result, guards, broken)


def _without_lost_tensors(code: CodeType, exit: Return | Break, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """The effects, but for attributes set on tensors that the graph computes and nobody gets."""
    own = [effect for effect in effects if _is_on_computed(effect)]
    if not own:
        return effects
    others = [effect for effect in effects if not _is_on_computed(effect)]
    seen = {id(value) for value in needed_outputs(_live_values(code, exit, others))}
    lost = {id(effect) for effect in own if id(getattr(effect, "target", None)) not in seen}
    return tuple(effect for effect in effects if id(effect) not in lost)


def _is_on_computed(effect: Effect) -> bool:
    target = effect.target if isinstance(effect, (SetAttribute, DeleteAttribute)) else None
    return isinstance(target, TensorValue) and target.source is None


def _live_values(code: CodeType, exit: Return | Break, effects: Sequence[Effect]) -> Iterator[Value]:
    from .rewrite.replay import values_of
    from .values.base import NullValue

    if isinstance(exit, Return):
        yield exit.value
    else:
        yield from (value for value in exit.stack if not isinstance(value, NullValue))
        yield from (exit.locals[name] for name in _needed_locals(code, exit) if name in exit.locals)
        yield from exit.handled
    for effect in effects:
        yield from values_of(effect)


def _needed_locals(code: CodeType, exit: Break) -> Iterable[str]:
    """The locals that the rest of the frame may read; all of them where the frame cannot be cut, which is found out later."""
    try:
        return needed_locals(code, exit)
    except CannotResume:
        return exit.locals


@contextmanager
def _tracing(at_least: int) -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, at_least))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _direct_outputs(result: FrameResult) -> tuple[Any] | None:
    """What the frame returns in terms of the graph's outputs alone, `(spec,)`, or None when there is more to do."""
    if result.effects or not isinstance(result.exit, Return) or result.graph is None or result.caught:
        return None
    index = {id(value): i for i, value in enumerate(result.outputs)}
    value = result.exit.value
    if id(value) in index:
        return (index[id(value)],)
    if isinstance(value, (TupleValue, ListValue)) and value.source is None and value.cls in (tuple, list):
        spec: list[int | None] = []
        for item in value.items:
            if id(item) in index:
                spec.append(index[id(item)])
            elif item.is_constant() and item.constant() is None:
                spec.append(None)
            else:
                return None
        return (tuple(spec) if value.cls is tuple else spec,)
    return None


# reports


def _record(
    info: FrameInfo,
    traced: Traced | None,
    broken: GraphBreak | None,
    started: float,
    *,
    backend_seconds: float = 0.0,
    skipped: str = "",
) -> CompileRecord:
    breaks: tuple[BreakRecord, ...] = ()
    if broken is not None:
        reason = describe(broken.code)
        at = broken.position
        file, line, function = (
            (at.file, at.line, at.function)
            if at is not None
            else (info.code.co_filename, info.code.co_firstlineno, info.code.co_qualname)
        )
        breaks = (
            BreakRecord(
                broken.code,
                f"{reason.explanation}: {broken.message}",
                broken.hint or reason.hint,
                file,
                line,
                function,
                broken.stack,
                *_columns(at),
            ),
        )
        log.logger.debug(log.GRAPH_BREAK, code=broken.code, reason=broken.message, file=file, line=line)
    seconds = time.perf_counter() - started - backend_seconds
    log.logger.debug(
        log.CAPTURED, artifact="timings", function=info.code.co_qualname, stage="capture", seconds=round(seconds, 6)
    )
    return CompileRecord(
        info.code,
        info.entries,
        traced.result.graph if traced is not None else None,
        traced.tracer.graph.operations if traced is not None else 0,
        traced.guards if traced is not None else (),
        breaks,
        seconds,
        backend_seconds,
        skipped,
        info.compile_id,
        tuple(info.misses),
        tuple(info.contexts),
        len(traced.result.effects) if traced is not None else 0,
    )


def _columns(at: Position | None) -> tuple[int | None, int | None]:
    if at is None or at.column < 0 or at.end_line != at.line:
        return None, None
    return at.column, at.end_column


def _report(observer: Callable[[CompileRecord], None] | None, record: CompileRecord) -> None:
    if observer is not None:
        observer(record)


def _tell(original: CodeType, code: CodeType, traced: Traced, *, direct: bool) -> None:
    """Log what was made of a frame; `direct`: the entry calls the graph itself, without running the rewritten code."""
    result, builder = traced.result, traced.tracer.graph
    where = log.place_of(original)
    if builder.shape_env is not None and builder.shape_env.var_to_range:
        symbols = log.Text(lambda: symbols_text(builder, traced.tracer.wrapper.dynamics))
        log.logger.debug(log.DYNAMIC, artifact="dynamic", **where, symbols=symbols)
    if result.effects and traced.tracer.config.side_effect_replay_policy != "silent":
        effects = log.Text(lambda: effects_text(result.effects, result.outputs) + "\n")
        log.logger.debug(log.SIDE_EFFECTS, artifact="side_effects", **where, effects=effects)
    log.logger.debug(
        log.BYTECODE,
        artifact="bytecode",
        **where,
        runs="graph" if direct else "rewritten code",
        original=log.Text(lambda: listing(original)),
        rewritten=log.Text(lambda: listing(code)),
        source=log.Text(lambda: source_text(code)),
    )
