"""The `flambeau` command: `flambeau --help`, or `python -m flambeau --help` where nothing is installed.

In: a command line. Out: text on standard output; exit status 2, and one line on standard error, when what was given is wrong, 1 for anything else. One module a command,
loaded when that command runs; `group.py` has their table.
"""

from __future__ import annotations

from .group import main

__all__ = ["main"]
