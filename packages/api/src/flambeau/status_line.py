"""One line under the cursor of a terminal, which goes away without a trace.

In: a stream on a terminal, words. Out: the words, drawn on the line below the one that the program writes on; that line, and where the cursor is on it, stay as
they are, so that what the program prints meanwhile goes where it would have gone.

A thread draws it beside the program, which waits for that thread at the end: nothing is imported here. The program may hold a lock of an import, and a library
that draws random numbers as it is loaded (rich does) would take them from the program.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from time import perf_counter
from typing import Any, TextIO

_ROOM = "\x1bD\x1b[A"  # a line below, also at the bottom of the screen; the column stays
_SAVE, _RESTORE, _DOWN, _CLEAR = "\x1b7", "\x1b8", "\x1bD\r", "\x1b[J"
_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "cyan": "\x1b[36m"}
_PLAIN = "\x1b[0m"
_TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 0.08
_TURNING_ASCII = "-\\|/", 0.13
"""Pictures of a spinner, and how many seconds each is shown."""


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
        is_unicode = (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")
        self._turning, self._cut = (_TURNING, "…") if is_unicode else (_TURNING_ASCII, "...")

    def draw(self, parts: Sequence[tuple[str, str]]) -> None:
        """Show words, each "bold", "dim", or as they are (""), behind a spinner."""
        pictures, seconds = self._turning
        turning = pictures[int(perf_counter() / seconds) % len(pictures)]
        room = _columns(self._stream) - 1  # a full line would wrap
        drawn = _fitted([(turning, "" if os.environ.get("NO_COLOR") else "cyan"), (" ", ""), *parts], room, self._cut)
        # What is behind the cursor is an earlier line of ours: the program writes before it.
        self._write(f"{_ROOM}{_SAVE}{_CLEAR}{_DOWN}{drawn}{_RESTORE}")
        self._is_drawn = True

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


def _columns(stream: TextIO) -> int:
    try:
        return max(os.get_terminal_size(stream.fileno()).columns or 80, 20)
    except (OSError, ValueError):
        return 80


def _fitted(parts: Sequence[tuple[str, str]], room: int, cut: str) -> str:
    """The words with the codes of their styles, in so many columns; `cut` stands for what has no room."""
    if sum(_width(letter) for text, _ in parts for letter in text) <= room:
        cut = ""
    room -= len(cut)
    drawn = ""
    for text, style in parts:
        shown = ""
        for letter in text:
            room -= _width(letter)
            if room < 0:
                break
            shown += letter if letter.isprintable() else "?"  # a code of the terminal would move the cursor
        drawn += f"{_STYLES[style]}{shown}{_PLAIN}" if style and shown else shown
        if room < 0:
            break
    return drawn + cut


def _width(letter: str) -> int:
    """Columns that a terminal gives a letter."""
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
