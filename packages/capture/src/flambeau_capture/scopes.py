"""Settings of capture for a part of a program: `error_on_graph_break`, `patch_dynamo_config` and what is made of these.

In: settings and their values. Out: a `Scope`, a context manager and a decorator. It acts while tracing, on what the program does inside of it: in plain
Python it notes what is in force, for frames that are captured from there; in a captured frame the tracer follows it (`lookaside/scopes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextvars import ContextVar
from typing import Any, Final

from attrs import evolve, frozen

from .config import Config
from .errors import OptionError
from .library import functools
from .native import _C
from .sources.arguments import is_stack_argument

Changes = tuple[tuple[str, Any], ...]
Recorded = tuple[bool | None, bool | None]

TRACING: Final = (
    "error_on_graph_break", "capture_scalar_outputs", "capture_dynamic_output_shape_ops", "dont_skip_tracing", "specialize_int", "specialize_float",
    "allow_unspec_int_on_nn_module", "allow_rnn", "trace_numpy", "inline_depth", "unroll_limit", "cudagraphs_forward",
    "cudagraphs_backward",
)  # fmt: skip
"""Settings that are read at each step of a trace: others are a region's, and changing them inside of one would do nothing."""

_RECORDING: Final = ("cudagraphs_forward", "cudagraphs_backward")
"""What is guarded of the scopes around a frame: it says what the compiled code does. The others act on the trace alone."""

_IN_FORCE: ContextVar[tuple[Changes, ...]] = ContextVar("flambeau_capture_scopes", default=())
#: What the scopes in force say of recording, in the order of `_RECORDING`; native guards read it.
_RECORDED: ContextVar[Recorded] = ContextVar("flambeau_capture_recorded", default=(None, None))


@frozen(eq=False)
class Scope:
    """Other settings inside of a `with` block, or of calls of the functions that it decorates."""

    changes: Changes

    def __enter__(self) -> None:
        enter(self.changes)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        leave()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return scoped


def enter(changes: Changes) -> None:
    """Note settings for the frames that are captured from now on, in this thread or task."""
    _C.watch_scopes(_RECORDED)  # guards ask from now on: a program without scopes does not pay for it
    _put_in_force((*_IN_FORCE.get(), changes))


def leave() -> None:
    """Take back what was entered last."""
    _put_in_force(_IN_FORCE.get()[:-1])


def _put_in_force(scopes: tuple[Changes, ...]) -> None:
    said = {name: value for changes in scopes for name, value in changes}
    _IN_FORCE.set(scopes)
    forward, backward = (said.get(name) for name in _RECORDING)
    _RECORDED.set((forward, backward))


def said_of_recording() -> Recorded:
    """Whether the scopes that the program is in say that forwards and backwards are recorded as CUDA graphs; None: they do not."""
    return _RECORDED.get()


def leave_behind(frame_locals: Mapping[str, Any]) -> None:
    """Take back the scopes that a resume function would have left, which does not run because compiling it is an error."""
    for name, held in frame_locals.items():
        if is_stack_argument(name) and getattr(held, "__func__", None) is Scope.__exit__:
            leave()


def error_on_graph_break(error_on_graph_break: bool) -> Scope:
    """Whether a graph break of what is traced inside is an error. With `fullgraph=True` it is one everywhere.

    Raises:
        OptionError: for anything but True and False.
    """
    return _scope({"error_on_graph_break": error_on_graph_break})


def patch_dynamo_config(arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Scope:
    """Other values of settings that act while tracing (`scopes.TRACING`), also from inside of compiled code.

    Args:
        arg1: a setting's name, with its value as `arg2`; or a mapping of names to values.
        arg2: see `arg1`.
        kwargs: names and values.

    Raises:
        OptionError: for a setting that does not exist or does not act while tracing, or a value that it does not take.
    """
    given: Mapping[str, Any] = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or ())
    return _scope({**given, **kwargs})


def override_cudagraphs(fwd: bool | None = None, bwd: bool | None = None) -> Scope:
    """Whether graphs with something of what is traced inside are recorded as CUDA graphs, whatever the options say: a context manager and a decorator.

    Args:
        fwd: of their forwards; None: as the options say. Where parts of one graph differ, it is not recorded.
        bwd: of their backwards.

    Raises:
        OptionError: for anything but None, True and False.
    """
    return _scope({"cudagraphs_forward": fwd, "cudagraphs_backward": bwd})


def dont_skip_tracing(fn: Callable[..., Any] | None = None) -> Any:
    """Trace into functions of torch that are otherwise left to plain Python. A decorator, or without a function a context manager."""
    scope = _scope({"dont_skip_tracing": True})
    return scope if fn is None else scope(fn)


def _scope(changes: Mapping[str, Any]) -> Scope:
    for name in changes:
        if name not in TRACING:
            raise OptionError(
                f"{name!r} is no setting that acts while tracing: there are {', '.join(TRACING)}",
                hint="patch other settings around the call of flambeau.compile, with flambeau.compiler.config.patch",
            )
    Config(**changes)
    return Scope(tuple(changes.items()))


class Followed:
    """The scopes of one trace.

    Args:
        config: the region's settings.
        kept: names of settings that no scope changes, because the backend refused what they are for.
    """

    def __init__(self, config: Config, kept: Container[str]) -> None:
        self._base = config
        self._kept = kept
        self._outer = _IN_FORCE.get()
        self._inner: list[Changes] = []
        #: Settings of torch's own compiler: those of before the frame that it has left, and those that it has entered since and not left.
        self._foreign: tuple[list[Any], list[Any]] = [], []
        self._operations = 0
        #: Whether the graph's forward and backward are recorded as CUDA graphs, as far as scopes around its operations say so.
        self.recorded: Recorded = (None, None)

    @property
    def config(self) -> Config:
        """The region's settings under those of the scopes that the program is in."""
        found = {
            name: value for scope in (*self._outer, *self._inner) for name, value in scope if name not in self._kept
        }
        return evolve(self._base, **found) if found else self._base

    def note(self, operations: int) -> None:
        """The graph has this many operations by now: what came since the last time was traced under the settings in force."""
        if operations > self._operations:
            config = self.config
            said = (config.cudagraphs_forward, config.cudagraphs_backward)
            forward, backward = (_least(*pair) for pair in zip(self.recorded, said, strict=True))
            self.recorded = forward, backward
        self._operations = operations

    def enter(self, changes: Changes) -> None:
        """The traced program enters a scope."""
        self._inner.append(changes)

    def leave(self) -> None:
        """It leaves the innermost one, which may have been entered before the frame."""
        if self._inner:
            self._inner.pop()
        else:
            self._outer = self._outer[:-1]

    def enter_foreign(self, setting: Any) -> None:
        """The traced program enters a setting of torch's own compiler, given as its value."""
        self._foreign[1].append(setting)

    def leave_foreign(self, setting: Any) -> None:
        """It leaves one: the innermost, which may have been entered before the frame."""
        left, entered = self._foreign
        if entered:
            entered.pop()
        else:
            left.append(setting)

    def foreign(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The settings of torch's own compiler from before the frame that it has left, and those that it has entered since and not left."""
        left, entered = self._foreign
        return tuple(left), tuple(entered)

    def left_and_entered(self) -> tuple[int, tuple[Changes, ...]]:
        """How many scopes from before the frame it has left, and which it has entered since and not left."""
        return len(_IN_FORCE.get()) - len(self._outer), tuple(self._inner)


def _least(one: bool | None, other: bool | None) -> bool | None:
    """What two of three answers come to: no before yes, either before none."""
    return other if one is None else one if other is None else one and other
