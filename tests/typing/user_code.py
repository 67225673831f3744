"""Code as users write it, for the type checker: what `flambeau.compile` returns has the type of what it was given.

In: nothing; it is read by mypy in the session `types`, and not run. Out: an error of mypy where a callable would lose its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import flambeau


class Net:
    """Stands for a module."""

    width: int = 4

    def __call__(self, x: float) -> float:
        """One number to another."""
        return x * self.width


def double(x: float, times: int = 1) -> float:
    """A function with a default."""
    return x * 2 * times


@flambeau.compile
def decorated(x: float) -> str:
    """A decorator without arguments."""
    return str(x)


@flambeau.compile(fullgraph=True, options={"max_autotune": True})
def configured(x: float) -> str:
    """A decorator with arguments."""
    return str(x)


assert_type(flambeau.compile(double)(1.0, times=2), float)
assert_type(flambeau.compile(Net()), Net)
assert_type(flambeau.compile(Net()).width, int)
assert_type(decorated(1.0), str)
assert_type(configured(1.0), str)
assert_type(flambeau.compiler.list_backends(), list[str])

backend: Callable[[Any, Any], Any] = flambeau.compiler.lookup_backend("eager")
flambeau.compile(double, backend=backend)
