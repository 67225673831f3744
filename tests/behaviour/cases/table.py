"""The table of cases.

In: `@case(...)` on a program, or on a factory of one. Out: `CASES`, in the order of definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

Program = Callable[..., Any]


@frozen
class Case:
    """A program with its arguments; `graphs` is how many graphs the first call compiles (None: it depends on the Python), `breaks` the codes of what breaks them."""

    name: str
    make: Callable[[], Program]
    arguments: Callable[[], tuple[Any, ...]]
    graphs: int | None
    breaks: tuple[str, ...]


CASES: list[Case] = []


def matrix() -> tuple[Tensor]:
    """The usual argument."""
    return (torch.linspace(-2, 3, 12).reshape(3, 4),)


def case(
    graphs: int | None = 1,
    *,
    breaks: tuple[str, ...] = (),
    arguments: Callable[[], tuple[Any, ...]] = matrix,
    factory: bool = False,
) -> Callable[[Program], Program]:
    """Add a program; with `factory`, what is decorated makes it (modules, closures with state)."""

    def add(program: Program) -> Program:
        name = f"{program.__module__.rpartition('.')[2]}.{program.__name__}"
        make = program if factory else lambda: program
        CASES.append(Case(name, make, arguments, graphs, breaks))
        return program

    return add
