"""How far measuring has come: a line on a terminal, written over itself. Nothing where standard error is none.

In: how many questions there are, and each that is answered. Out: text on standard error.
"""

from __future__ import annotations

import sys
from types import TracebackType

_WIDTH = 24
#: To the beginning of the line, and away with what is there.
_ANEW = "\r\x1b[2K"


class Progress:
    """``with Progress("kernels", 12) as progress: progress.step(0)``."""

    def __init__(self, subject: str, total: int) -> None:
        self._subject, self._total, self._behind = subject, total, 0
        self._is_shown = total > 0 and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self._show()
        return self

    def step(self, number: int) -> None:
        """One more is answered; further rounds over the same ones do not count."""
        self._behind = min(self._behind + 1, self._total)
        self._show()

    def _show(self) -> None:
        if self._is_shown:
            bar = "#" * (_WIDTH * self._behind // self._total)
            line = f"flambeau measures {self._subject} [{bar:<{_WIDTH}}] {self._behind}/{self._total}"
            sys.stderr.write(_ANEW + line)
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write(_ANEW)
            sys.stderr.flush()
