"""Indented text.

In: lines. Out: one string; braces given by ``block`` indent what is between.
"""

from __future__ import annotations

from collections.abc import Iterable


class Writer:
    """Lines with an indentation level."""

    def __init__(self, level: int = 0) -> None:
        self.level = level
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        """One line at the present level."""
        self.lines.append("  " * self.level + text if text else "")

    def extend(self, lines: Iterable[str]) -> None:
        """Lines at the present level; they may carry indentation of their own."""
        for text in lines:
            self.line(text)

    def open(self, head: str) -> None:
        """``head`` (which ends in an opening brace), then one level more."""
        self.line(head)
        self.level += 1

    def close(self, tail: str = "}") -> None:
        """One level less, then ``tail``."""
        self.level -= 1
        self.line(tail)

    def text(self) -> str:
        """Everything so far."""
        return "\n".join(self.lines) + "\n"
