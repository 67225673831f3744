"""The register of user programs: what a program is, and where all of them are found.

In: the modules of `sections`, each of which registers its programs. Out: `PROGRAMS`, by name, in the order of the files:

    @program("control flow operators")
    def cond_over_a_closure() -> Made:
        w = torch.randn(4)

        def f(x):
            return torch.cond(x.sum() > 0, lambda y: y * w, lambda y: y - w, (x,))

        return f, [(torch.ones(4),), (-torch.ones(4),)]

The function makes everything anew: a callable, the arguments of each of its calls, and optionally what else is looked at after each call
(objects outside that the callable reads or writes). `observe.py` runs it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

#: A callable and its calls; or these and what it changes outside.
Made = tuple[Callable[..., Any], Sequence[tuple[Any, ...]]] | tuple[Callable[..., Any], Sequence[tuple[Any, ...]], Any]
Make = Callable[[], Made]


@frozen
class Program:
    """One user program.

    Attributes:
        name: the name of its function.
        section: the row of the table that counts it.
        make: makes the callable, its calls, and what it changes outside.
        raises: eager raises in one of the calls; every compiler must raise the same there.
        needs: a module or device ("triton", "cuda") without which it is not run.
    """

    name: str
    section: str
    make: Make
    raises: bool = False
    needs: str = ""


_PROGRAMS: dict[str, Program] = {}


def program(section: str, *, raises: bool = False, needs: str = "") -> Callable[[Make], Make]:
    """Register a program under the name of its function."""

    def register(make: Make) -> Make:
        if make.__name__ in _PROGRAMS:
            raise ValueError(f"there is already a program named {make.__name__}")
        _PROGRAMS[make.__name__] = Program(make.__name__, section, make, raises, needs)
        return make

    return register


def all_programs() -> dict[str, Program]:
    """Every program by name, the sections' files loaded."""
    from . import sections

    for module in sorted(pkgutil.iter_modules(sections.__path__), key=lambda found: found.name):
        importlib.import_module(f"{sections.__name__}.{module.name}")
    return dict(_PROGRAMS)


def chosen(sections: Sequence[str] = (), names: Sequence[str] = ()) -> list[Program]:
    """The programs of these sections (part of the name is enough) and names; all without either."""
    found = all_programs()
    unknown = [name for name in names if name not in found]
    if unknown:
        raise SystemExit(f"no such program: {', '.join(unknown)}")
    return [
        each
        for each in found.values()
        if (not sections or any(part in each.section for part in sections)) and (not names or each.name in names)
    ]
