"""A script as the main program of this process.

In: its path and words. Out: what it does and raises, `SystemExit` too. `sys.argv` and `sys.path` are put back behind it; whatever else it changes stays.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_as_main(path: str, words: Sequence[str], beside: str = "") -> None:
    """Run a script as `python` runs it, as if it lay in the folder `beside` where one is named."""
    arguments, paths = sys.argv, sys.path
    sys.argv = [path, *words]
    sys.path = [beside or str(Path(path).absolute().parent), *paths]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path = arguments, paths
