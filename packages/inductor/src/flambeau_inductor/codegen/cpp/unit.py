"""What the kernels of one translation unit are written with.

In: generated kernels. Out: the support headers as text, so that a library needs no include path. Headers
that the kernels call nothing of are left out: reading all of them takes g++ a fifth of the time that a small kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ..kernel import GeneratedKernel, sources_of

#: Wrap-around integers, no contraction (eager rounds every operation), no errno and no traps.
FLAGS = ("-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")

#: What every kernel is written with: loops over lanes, loads and stores, arithmetic.
_ALWAYS = ("loops", "memory", "arithmetic")
#: What some kernels call: a header here goes into a unit that says a name which it defines.
OPTIONAL = ("transposes", "integers", "exponentials", "trigonometry", "special", "reductions")

_INCLUDE = re.compile(r'^#include "(\w+)\.hpp"$', re.MULTILINE)
#: A function, an instance of a macro that defines one, or a type.
_DEFINED = re.compile(r"\bFB [^(\n]*?(\w+)\(|\bFB_[A-Z0-9_]+\((\w+)|\bstruct (\w+)")
_MACRO_ARGUMENT = "NAME"
_CALLED = re.compile(r"\bfb::(\w+)")


@cache
def header(name: str) -> str:
    """The text of one support header."""
    return (files("flambeau_inductor.codegen.cpp") / "include" / f"{name}.hpp").read_text()


@cache
def defined(name: str) -> frozenset[str]:
    """The functions and types that a header defines."""
    words = {word for found in _DEFINED.findall(header(name)) for word in found if word}
    return frozenset(words - {_MACRO_ARGUMENT})


@cache
def preamble(headers: tuple[str, ...]) -> str:
    """These headers and those that they include, each once, in one piece."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for needed in _INCLUDE.findall(header(name)):
            add(needed)
        ordered[name] = None

    for name in headers:
        add(name)
    lines = (line for name in ordered for line in header(name).splitlines())
    return "\n".join(line for line in lines if not line.startswith(("#pragma once", "#include"))) + "\n"


def support(kernels: Sequence[GeneratedKernel]) -> str:
    """What comes before the sources of ``kernels``."""
    called = {name for source in sources_of(kernels) for name in _CALLED.findall(source)}
    return preamble((*_ALWAYS, *(name for name in OPTIONAL if called & defined(name)))) + "\n"
