"""The root of every error of flambeau, and how an error is told. Packages that import no sibling carry this file, word for word.

In: what went wrong, the user's frames, what to do. Out: `FlambeauError`, whose text is::

    [FB101] the frame cannot be captured as one graph: data-dependent branch
      model.py:40 in forward
          y = self.gate(x)
      model.py:12 in gate
          if x.sum() > 0:
             ^^^^^^^^^^^
      hint: compute both sides and choose with torch.where

Where several packages are loaded, the copy that was first takes the place of the others: there is one class, which catches all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from linecache import getline  # as it was first: a program may put one of its own there
from types import TracebackType
from typing import Any, ClassVar

from attrs import frozen

_COPIES = ("flambeau_capture.error_root", "flambeau_autograd.error_root", "flambeau_runtime.error_root")
_OURS = frozenset(("flambeau", "flambeau_capture", "flambeau_autograd", "flambeau_inductor", "flambeau_runtime"))


@frozen
class UserPosition:
    """A place in the user's code; columns are UTF-8 byte offsets as CPython keeps them, or None."""

    file: str
    line: int
    function: str = ""
    column: int | None = None
    end_column: int | None = None

    def render(self, *, caret: bool = True) -> str:
        """The line, its text and, where it is wanted, a caret under the expression, or under the line where that is not known."""
        head = f"  {self.file}:{self.line}" + (f" in {self.function}" if self.function else "")
        text = getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return head
        indent = len(text) - len(text.lstrip())
        shown = f"{head}\n      {text.strip()}"
        if not caret:
            return shown
        encoded = text.encode()
        start = 0 if self.column is None else max(len(encoded[: self.column].decode(errors="ignore")) - indent, 0)
        end = len(text.rstrip()) - indent
        if self.column is not None and self.end_column is not None and self.end_column > self.column:
            end = min(end, len(encoded[: self.end_column].decode(errors="ignore")) - indent)
        return f"{shown}\n      {' ' * start}{'^' * max(end - start, 1)}"


class FlambeauError(Exception):
    """Root of all errors of flambeau.

    Args:
        message: what went wrong, in this case.
        hint: what to do about it; the class's by default.
        positions: the user's frames, outermost first.

    Attributes:
        code: stable, the anchor of a section in docs/errors.
        message, hint, positions: as given.
        context: what was being done, innermost first.
    """

    code: ClassVar[str] = "FB000"
    hint: str = ""

    def __init__(self, message: str = "", hint: str | None = None, *, positions: Iterable[UserPosition] = ()) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint
        self.positions = tuple(positions)
        self.context: list[str] = []

    @property
    def position(self) -> UserPosition | None:
        """The innermost of the user's frames, where one is known."""
        return self.positions[-1] if self.positions else None

    def add_context(self, where: str) -> None:
        """Say what was being done, innermost first."""
        self.context.append(where)

    def add_positions(self, stack: Iterable[Any]) -> None:
        """The user's frames as a graph's node has them in `meta["stack"]`, unless some are known."""
        if not self.positions:
            self.positions = tuple(UserPosition(*frame[:3]) for frame in stack)

    def __str__(self) -> str:
        last = len(self.positions) - 1
        lines = [f"[{self.code}] {self.message}"]
        lines += [position.render(caret=number == last) for number, position in enumerate(self.positions)]
        lines += [f"  while {where}" for where in self.context]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[FlambeauError], args: tuple[Any, ...], state: dict[str, Any]) -> FlambeauError:
    """An error as it was, without what its class's arguments are."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    error.args = args
    return error


def without_our_frames(error: BaseException) -> BaseException:
    """The same error, from whose traceback, and from those of what led to it, the frames of flambeau's own code are dropped.

    Those of the user, of torch and of other libraries stay.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _others(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
    return error


def _others(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        if str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in _OURS:
            frames.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for one in reversed(frames):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


for _name in _COPIES:
    if _name != __name__ and _name in sys.modules:
        sys.modules[__name__] = sys.modules[_name]
        break
