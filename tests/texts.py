"""What the logs print.

In: names of `FLAMBEAU_LOGS`, a function and its calls. Out: the text (`shown`), and lines of it (`lines_with`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import log

#: A graph that comes from the disk is not compiled, so that the compiler has nothing to tell. Kernels may come from there.
COMPILED_ANEW = {"fx_graph_cache": False}


def shown(names: str, function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> str:
    """What is printed while a function is compiled and called with each tuple of arguments."""
    stream = io.StringIO()
    log.configure(log.parse(names), stream)
    compiled = flambeau.compile(function, options=COMPILED_ANEW, **options)
    for args in calls:
        compiled(*args)
    return stream.getvalue()


def lines_with(text: str, *words: str) -> list[str]:
    """The lines that hold every word."""
    return [line.strip() for line in text.splitlines() if all(word in line for word in words)]
