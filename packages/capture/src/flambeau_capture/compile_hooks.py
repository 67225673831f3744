"""What programs have called around each compile of a frame, and what they tell of a recompile.

In: callables. Out: they are called with a `CompileEvent` as the compile starts and ends; what a context hook returns stands beside the reasons of a
recompile in logs and records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from attrs import frozen

from .errors import CompileCallbackError
from .frame import FrameInfo


@frozen
class CompileEvent:
    """One compile of one frame.

    Attributes:
        compile_id: the number of the code object and of the entry, "0/1" for the first code's second.
        function, file, line: whose frame it is.
    """

    compile_id: str
    function: str
    file: str
    line: int


CallbackT = TypeVar("CallbackT", bound=Callable[[CompileEvent], object])
_CONTEXT_LENGTH = 256
_starting: list[Callable[[CompileEvent], object]] = []
_ending: list[Callable[[CompileEvent], object]] = []
_contexts: list[Callable[[], str]] = []


def on_compile_start(callback: CallbackT) -> CallbackT:
    """Call `callback(event)` before each compile of a frame, until `reset`; also a decorator."""
    _starting.append(callback)
    return callback


def on_compile_end(callback: CallbackT) -> CallbackT:
    """Call `callback(event)` after each compile of a frame, whether it succeeded or not, until `reset`; also a decorator."""
    _ending.append(callback)
    return callback


def register_hook_for_recompile_user_context(hook: Callable[[], str]) -> None:
    """Ask `hook()` at each recompile for a text (the epoch, the phase) that stands beside the reasons; 256 characters of it are kept."""
    _contexts.append(hook)


def forget_callbacks() -> None:
    """Call none of `on_compile_start` and `on_compile_end` any more."""
    _starting.clear()
    _ending.clear()


def user_contexts() -> list[str]:
    """What the program tells of the recompile that happens now."""
    return [str(_call(hook))[:_CONTEXT_LENGTH] for hook in _contexts]


@contextmanager
def told(info: FrameInfo) -> Iterator[None]:
    """Around a compile of a frame."""
    if not _starting and not _ending:
        yield
        return
    code = info.code
    event = CompileEvent(info.compile_id, code.co_qualname, code.co_filename, code.co_firstlineno)
    for callback in list(_starting):
        _call(callback, event)
    try:
        yield
    finally:
        for callback in list(_ending):
            _call(callback, event)


def _call(callback: Callable[..., object], *args: object) -> object:
    try:
        return callback(*args)
    except Exception as error:
        name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
        raise CompileCallbackError(
            f"{name}, which is called at a compile, raised {type(error).__name__}: {error}"
        ) from error
