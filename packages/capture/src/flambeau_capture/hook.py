"""The frame hook's Python side: regions, and the translation between the compiler's answers and native entries.

In: a callable and a callback `FrameInfo -> RunGraph | RunCode | Skip | SkipAlways`. Out: a native `Region`, called like the callable::

    region = make_region(model_step, capture_frame_callback, Config())
    region(x)         # first call: the callback compiles; later calls: guards, then compiled code

Rules. The hook is installed only while a region runs. While the callback runs, frames of that thread are not looked at. A second thread
that meets a frame which is being compiled runs it in eager. Generators and coroutines are never replaced; frames they call are.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CellType, CodeType, FunctionType
from typing import Any

import torch

from . import cache, compile_hooks, log, stance
from .bytecode.encode import argument_names
from .class_names import class_qualname
from .config import Config
from .error_root import FlambeauError, without_our_frames
from .errors import GraphBreakError, GuardSelfCheckError, InternalError, RecompileLimitError
from .frame import Callback, FrameInfo, Later, Once, RunCode, RunGraph, Skip, SkipAlways
from .guards.build import build
from .guards.check import holds
from .guards.explain import GuardText, explain, verbose_text
from .library import functools
from .native import _C
from .replaced_names import PutBack, are_as_imported
from .scopes import leave_behind

Region = _C.Region
Disabled = _C.Disabled
MODULE_CALL = torch.nn.Module._wrapped_call_impl.__code__
"""The code of a module's call: compiled for a region's own module; for modules called by what broke, `forward` is what gets compiled."""
_C.set_module_call(torch.nn.Module, MODULE_CALL, torch.nn.Module._call_impl.__code__)

_TOLD = 16
"""How many entries a miss is explained for: code shared by many modules may have hundreds."""
_OTHER_COMPILER = "torch._dynamo"
"""Where it is loaded, it may be looking at every frame of this thread."""
_VARIADIC = CO_VARARGS | CO_VARKEYWORDS


def make_region(
    callable: Callable[..., Any], callback: Callback, config: Config | None = None, label: str | None = None
) -> _C.Region:
    """A region around `callable`: same signature, name and docstring; `__wrapped__` is the callable itself, `label` the user's name for it."""
    options = config or Config()
    handler = _Handler(callback, options)
    handler.was_asked = isinstance(callable, Disabled)  # who marked it knows
    region = _C.Region(callable, handler, options.recompile_limit)
    functools.update_wrapper(region, callable, updated=())
    region.__wrapped__ = callable
    region.strict = options.fullgraph
    region.label = label
    cache.remember(region)
    return region


def call_disabled(
    function: Callable[..., Any], *, recursive: bool = True, rescue: Callable[..., Any] | None = None
) -> _C.Disabled:
    """Wrap a callable so that its frame is not captured, and, with `recursive`, no frame called from it either.

    Where it raises an Exception, `rescue(error, *arguments)` answers in its place, if given.
    """
    wrapper = _C.Disabled(function, recursive)
    wrapper.rescue = rescue
    functools.update_wrapper(wrapper, function, updated=())
    wrapper.__wrapped__ = function
    return wrapper


def flatten(code: CodeType) -> CodeType:
    """The same code with every parameter positional, `*args` and `**kwargs` included, so that a frame's values can be handed over."""
    return code.replace(
        co_argcount=len(argument_names(code)),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_VARIADIC,
    )


class _Handler:
    """What the native region asks about a frame that no entry covers.

    Answers in the form `csrc/code_cache.cpp` reads: None (skip), False or True (skip always, True: and what it calls), `...` (not this time),
    or a tuple.
    """

    __slots__ = ("callback", "config", "differences", "others", "was_asked")

    def __init__(self, callback: Callback, config: Config) -> None:
        self.callback = callback
        self.config = config
        self.differences: dict[CodeType, stance.Differences] = {}
        self.others: dict[int, _C.Region] = {}
        self.was_asked = False

    def forget(self) -> None:
        """Forget what earlier compiles have learnt, entries under other backends included."""
        self.differences.clear()
        self.others.clear()
        learnt = getattr(self.callback, "forget", None)
        if learnt is not None:
            learnt()

    def elsewhere(self, region: _C.Region) -> _C.Region:
        """The region that is called in the place of `region` while the stance names a backend: the same with that backend, and entries of its own."""
        backend = stance.current().backend
        compiled_by = getattr(self.callback, "compiled_by", None)
        if backend is None or compiled_by is None:
            return region
        if id(backend) not in self.others:
            # The region holds the backend, which keeps its identity.
            self.others[id(backend)] = make_region(region.callable, compiled_by(backend), self.config)
        return self.others[id(backend)]

    def __call__(self, *asked: Any) -> Any:
        try:
            if not are_as_imported():
                with PutBack() as replaced:
                    return self.ask(*asked, replaced)
            return self.ask(*asked, ())
        except FlambeauError as error:
            # Returned, for the region to raise: a traceback begins where the program called it, without the frame of this method.
            return error if self.config.verbose else without_our_frames(error)

    def ask(self, code: CodeType, *asked: Any) -> Any:
        self.was_asked = True
        trees = asked[5]
        before = log.compile_id.set(log.id_of(code, len(trees)))
        try:
            if _OTHER_COMPILER not in sys.modules:
                return self.answer(code, *asked)
            # The region may be called under torch.compile, which would compile this compiler.
            return torch.compiler.disable(self.answer)(code, *asked)
        finally:
            log.compile_id.reset(before)

    def answer(
        self,
        code: CodeType,
        f_locals: Mapping[str, Any],
        f_globals: dict[str, Any],
        builtins: Mapping[str, Any] | None,
        closure: tuple[CellType, ...] | None,
        function: FunctionType,
        trees: tuple[_C.GuardTree, ...],
        over_limit: bool,
        replaced: tuple[str, ...],
    ) -> Any:
        frame = FrameInfo(
            code,
            f_locals,
            f_globals,
            builtins or {},
            closure,
            function,
            len(trees),
            replaced,
            compile_id=log.id_of(code, len(trees)),
        )
        over_limit = over_limit or self.is_over_all(code)
        try:
            if trees or over_limit:
                self.tell_misses(frame, trees, over_limit)
            return None if over_limit else self.entry_of(frame, trees)
        except Exception as error:
            expected = isinstance(error, FlambeauError) and not isinstance(error, AssertionError)
            if expected or self.config.fullgraph or not self.config.suppress_errors:
                leave_behind(f_locals)
            if expected:
                raise
            if self.config.fullgraph or not self.config.suppress_errors:
                if isinstance(error, InternalError):
                    raise
                raise InternalError(f"compiling {code.co_qualname} failed: {type(error).__name__}: {error}") from error
            at_fault = getattr(self.callback, "at_fault", None)
            if at_fault is None:
                warn_of_fault(code, error)
            else:
                at_fault(frame, error)
            return False

    def is_over_all(self, code: CodeType) -> bool:
        """Whether all regions together hold as many entries of a code object as they may."""
        limit = self.config.accumulated_recompile_limit
        return limit is not None and cache.entries_held(code) >= limit

    def entry_of(self, frame: FrameInfo, trees: tuple[_C.GuardTree, ...]) -> Any:
        """The callback's answer in native form, its guards built and checked."""
        answer = self.callback(frame)
        native = self.native_of(frame, answer.answer if isinstance(answer, Once) else answer)
        if trees and isinstance(native, tuple):
            self.differences.setdefault(frame.code, stance.Differences()).mark(trees, native[1], frame)
        return ("once", native) if isinstance(answer, Once) else native

    def native_of(self, frame: FrameInfo, answer: Any) -> Any:
        """An answer in the form that `csrc/code_cache.cpp` reads."""
        match answer:
            case Skip():
                return None
            case Later():
                return ...
            case SkipAlways(recursive=recursive):
                return recursive
            case RunCode() as answer:
                _check_layout(frame.code, answer.code)
                tree, _ = _checked_tree(frame, answer)
                return "code", tree, flatten(answer.code), answer, frame.compile_id
            case RunGraph() as answer:
                tree, slots = _checked_tree(frame, answer)
                boxed = bool(getattr(answer.compiled, "_boxed_call", False))
                return "graph", tree, answer.compiled, boxed, slots, answer.outputs, answer, frame.compile_id
            case other:
                raise TypeError(
                    f"a frame callback must answer RunGraph, RunCode, Skip, SkipAlways, Later or Once, not {other!r}"
                )

    def tell_misses(self, frame: FrameInfo, trees: tuple[_C.GuardTree, ...], over_limit: bool) -> None:
        """Log why each entry does not fit; raise where the options say so."""
        reasons = [reason for tree in trees[:_TOLD] if (reason := failure(tree, frame)) is not None]
        frame.misses.extend(reasons)
        frame.contexts.extend(compile_hooks.user_contexts())
        event = log.RECOMPILE_LIMIT if over_limit else log.RECOMPILE
        words = log.place_of(frame.code)
        if over_limit:
            log.logger.warning(event, **words, limit=self.limit_of(frame.code), reasons=reasons)
        else:
            told = {"contexts": frame.contexts} if frame.contexts else {}
            log.logger.info(event, artifact="recompiles", **words, entries=len(trees), reasons=reasons, **told)
        log.logger.debug(
            log.RECOMPILE_FAILURES,
            artifact="recompiles_verbose",
            **words,
            failures=log.Text(
                lambda: "\n".join(_all_failures(number, tree, frame) for number, tree in enumerate(trees))
            ),
        )
        listed = "".join(f"\n  - {reason}" for reason in reasons)
        if over_limit and (self.config.fail_on_recompile_limit_hit or self.config.fullgraph):
            limit = self.limit_of(frame.code)
            raise RecompileLimitError(f"{frame.code.co_qualname} reached its limit of {limit} compiled entries{listed}")
        if self.config.error_on_recompile:
            raise RecompileLimitError(f"{frame.code.co_qualname} would be compiled again{listed}")

    def limit_of(self, code: CodeType) -> int | None:
        """The limit that a code object has reached."""
        return self.config.accumulated_recompile_limit if self.is_over_all(code) else self.config.recompile_limit

    def nested_too_deep(self, code: CodeType) -> None:
        """Called once a region, where its frames are nested so deep that they run in plain Python."""
        log.logger.warning(log.NESTED_TOO_DEEP, **log.place_of(code))

    def nothing_ran(self, callable: Callable[..., Any]) -> GraphBreakError:
        """What is raised under `fullgraph` where a call of a region ended without having run anything that was compiled."""
        with PutBack():
            return GraphBreakError(
                f"nothing of {_name_of(callable)} was captured: its code runs in plain Python",
                hint="wrappers of torch and of the standard library, generators, coroutines and functions marked as disabled are not "
                "captured; compile the function that they call, or drop fullgraph=True",
            )

    def tell_nothing_ran(self, callable: Callable[..., Any]) -> None:
        """Called once a region, where that happens without `fullgraph`: logged where no frame was asked about, which would have told why."""
        if self.was_asked:
            return
        with PutBack():
            told = {"target": _name_of(callable), "reason": log.NO_FRAME}
            log.logger.info(log.NOTHING_CAPTURED, artifact="fallbacks", **told)


def _name_of(callable: Callable[..., Any]) -> str:
    return getattr(callable, "__qualname__", None) or class_qualname(type(callable))


def warn_of_fault(code: CodeType, error: BaseException) -> None:
    """One warning for a frame that runs in plain Python because capturing it failed for a reason that is ours."""
    warnings.warn(
        f"flambeau could not capture {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) and runs it in plain Python: "
        f"{type(error).__name__}: {error}\n  FLAMBEAU_SUPPRESS_ERRORS=0 raises instead, with the place; please report it",
        RuntimeWarning,
        stacklevel=4,
    )


def _check_layout(original: CodeType, code: CodeType) -> None:
    """Rewritten code must take the frame's values where they lie: running it otherwise would read the wrong memory."""
    flat, wanted = flatten(code), flatten(original)
    count = wanted.co_argcount
    same = flat.co_argcount == count and flat.co_varnames[:count] == wanted.co_varnames[:count]
    if not same or flat.co_freevars != wanted.co_freevars or not flat.co_flags & 0x01:
        raise InternalError(
            f"rewritten code of {original.co_qualname} takes {flat.co_varnames[: flat.co_argcount]} and closes over {flat.co_freevars}, "
            f"the frame has {wanted.co_varnames[:count]} and {wanted.co_freevars}"
        )


def failure(tree: _C.GuardTree, frame: FrameInfo) -> str | None:
    """In words, the first guard of a tree that does not hold on a frame; None when all hold."""
    index = tree.check(frame.locals, frame.globals, frame.builtins)
    if index == -1:
        return None
    if index >= len(tree.specs):
        return "an input of the graph cannot be reached"
    return explain(tree.specs[index], frame.locals, frame.globals, frame.builtins)


def _all_failures(number: int, tree: _C.GuardTree, frame: FrameInfo) -> str:
    """An entry's number and, one a line, every guard of it that does not hold."""
    at = frame.locals, frame.globals, frame.builtins
    failed = [explain(spec, *at) for spec in tree.specs if not holds(spec, *at)]
    if not failed:
        failed = [failure(tree, frame) or "every guard holds when looked at again"]
    return f"entry {number}:" + "".join(f"\n  - {reason}" for reason in failed)


def _checked_tree(frame: FrameInfo, answer: RunCode | RunGraph) -> tuple[_C.GuardTree, tuple[int, ...]]:
    """Build the guards and see that they hold on the frame they were made from."""
    inputs = answer.inputs if isinstance(answer, RunGraph) else ()
    tree, slots = build(answer.guards, frame.code, inputs)
    reason = failure(tree, frame)
    if reason is not None:
        raise GuardSelfCheckError(f"fresh guards of {frame.code.co_qualname} do not hold: {reason}")
    where = frame.code.co_qualname
    log.logger.debug(log.GUARDS, artifact="guards", function=where, guards=GuardText(answer.guards))
    verbose = log.Text(lambda: verbose_text(answer.guards))
    log.logger.debug(log.GUARDS, artifact="verbose_guards", function=where, guards=verbose)
    return tree, slots
