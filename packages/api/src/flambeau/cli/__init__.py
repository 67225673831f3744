"""The `flambeau` command: `flambeau --help`, or `python -m flambeau --help` where nothing is installed.

In: a command line. Out: text on standard output; exit status 1, and one line on standard error, when something is wrong. One module a command,
loaded when that command runs; `group.py` has their table.
"""

from __future__ import annotations

from .group import main

__all__ = ["main"]
