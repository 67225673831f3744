"""Fewer runs of Python's garbage collector while a frame is compiled.

A compile makes many objects that stay (imported modules, graphs, code), and each run looks at all of them and at everything torch
has loaded: a sixth of the first call of a small program. In: nothing. Out: a context in which a run waits for more new objects.
What the program itself set is put back afterwards, unless somebody set something else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .library import gc, threading

_OBJECTS = 100_000
"""New objects before a run; the runs that remain keep the memory of a long compile bounded."""

_FULL_RUNS = 1_000
"""Runs over newer objects before one over all of them, which takes a third of a second with torch loaded; what a compile drops is found among the newer ones."""


class _Relaxation:
    """How many compiles are going on in this process, and what the first of them found."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.found = (0, 0, 0)
        self.made = (0, 0, 0)

    def enter(self) -> None:
        with self.lock:
            self.count += 1
            if self.count == 1:
                self.found = self.made = gc.get_threshold()
                if 0 < self.found[0] < _OBJECTS:
                    self.made = (_OBJECTS, self.found[1], max(_FULL_RUNS, self.found[2]))
                    gc.set_threshold(*self.made)

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and gc.get_threshold() == self.made != self.found:
                gc.set_threshold(*self.found)


_RELAXATION = _Relaxation()


@contextmanager
def few_collections() -> Iterator[None]:
    """Within it the collector runs rarely; threads and nesting share one setting. Raises nothing of its own."""
    _RELAXATION.enter()
    try:
        yield
    finally:
        _RELAXATION.leave()
