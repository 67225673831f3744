"""Programs about rules of Python: `make() -> (function, calls)`; a call is the arguments, or a function that gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Programs(list[Callable[[], Any]]):
    """A list that is also the decorator which puts a program into it."""

    def __call__(self, make: Callable[[], Any]) -> Callable[[], Any]:
        self.append(make)
        return make
