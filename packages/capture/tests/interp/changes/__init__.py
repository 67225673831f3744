"""Programs whose surroundings change between two calls.

Each function registered with `@change` makes a program and what changes something that the program depends on (and the program may have an
`undo`, for what would outlive the test). `code.py` has classes and functions, `data.py` containers and plain values, `torch_state.py`
tensors, modules and torch's own state.
"""

from __future__ import annotations

CHANGES = {}


class Record:
    """An object with the attributes that it is made with."""

    def __init__(self, **values):
        self.__dict__.update(values)


def change(make):
    """Register a pair of a program and its change."""
    CHANGES[make.__name__] = make
    return make
