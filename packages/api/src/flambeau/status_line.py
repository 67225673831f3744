"""One line under the cursor of a terminal, which goes away without a trace.

In: a stream on a terminal, words. Out: the words, drawn on the line below the one that the program writes on; that line, and where the cursor is on it, stay as
they are, so that what the program prints meanwhile goes where it would have gone. rich renders the words; it is loaded by who makes the first `StatusLine`, whole: a thread
beside the program that loaded something could wait for the program's imports, and take from its random numbers.
"""

from __future__ import annotations

import io
import os
import random
import unicodedata
from collections.abc import Sequence
from time import perf_counter
from typing import Any, TextIO

_ROOM = "\x1bD\x1b[A"  # a line below, also at the bottom of the screen; the column stays
_SAVE, _RESTORE, _DOWN, _CLEAR = "\x1b7", "\x1b8", "\x1bD\r", "\x1b[J"


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal that understands the codes above."""
    try:
        return bool(stream.isatty()) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    except (AttributeError, ValueError):  # none, or closed
        return False


class StatusLine:
    """Drawn again and again with other words, then cleared. What cannot be written is not drawn, from then on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_drawn = False
        self._is_over = False
        self._rendered = io.StringIO()
        self._console, self._spinner, self._text = _rich(stream, self._rendered)
        self._render([])

    def draw(self, parts: Sequence[tuple[str, str]]) -> None:
        """Show words, each with a style of rich, behind a spinner."""
        # What is behind the cursor is an earlier line of ours: the program writes before it.
        self._write(f"{_ROOM}{_SAVE}{_CLEAR}{_DOWN}{self._render(parts)}{_RESTORE}")
        self._is_drawn = True

    def _render(self, parts: Sequence[tuple[str, str]]) -> str:
        turning = self._spinner.render(perf_counter())
        shown = [(_printable(words), style) for words, style in parts]
        text = self._text.assemble((str(turning), "cyan"), " ", *shown)
        self._console.width = _columns(self._stream) - 1  # a full line would wrap
        self._console.print(text, no_wrap=True, overflow="ellipsis", crop=True, end="")
        drawn = self._rendered.getvalue()
        self._rendered.seek(0)
        self._rendered.truncate()
        return drawn

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self._is_drawn:
            self._is_drawn = False
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        if self._is_over:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # gone, closed, or without these letters
            self._is_over = True


def _printable(words: str) -> str:
    """A code of the terminal in a name would move the cursor."""
    return "".join(letter if letter.isprintable() or unicodedata.combining(letter) else "?" for letter in words)


def _columns(stream: TextIO) -> int:
    try:
        return max(os.get_terminal_size(stream.fileno()).columns or 80, 20)
    except (OSError, ValueError):
        return 80


def _rich(stream: TextIO, rendered: TextIO) -> tuple[Any, Any, Any]:
    """A console that writes to `rendered`, a spinner in letters that `stream` has, and rich's class of texts. Python's generator stays as it is: rich draws from it as it is loaded."""
    numbers = random.getstate()
    try:
        from rich.console import Console
        from rich.spinner import Spinner
        from rich.text import Text
    finally:
        random.setstate(numbers)
    is_unicode = (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")
    console = Console(file=rendered, force_terminal=True, highlight=False)
    return console, Spinner("dots" if is_unicode else "line"), Text
