"""What the code generators hand to ``program``: the text of one kernel and how to launch it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from attrs import evolve, field, frozen

from ..expr import Expr
from ..kernel_ir import Kernel


@frozen
class GeneratedKernel:
    """One kernel of a translation unit.

    ``buffers`` names one buffer per argument (buffers that share storage share the argument); ``scalars`` are integer
    expressions or parameter names, passed in that order, with ``scalar_kinds`` "i" or "f" each. ``extent`` is the parallel
    size and ``grain`` the fewest iterations worth a thread; ``in_grid``: a launch names that many programs. ``checks`` are the messages of
    status codes. ``code`` is equal for kernels that say the same under other names. ``kernels`` are the functions in the kernel IR, where the
    generator has it, ``functions`` the support functions that they call, where which of those are shipped depends on it.
    """

    name: str
    source: str = field(repr=False)
    buffers: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    scalars: tuple[Expr | str, ...]
    scalar_kinds: str
    extent: Expr
    grain: int
    checks: tuple[str, ...] = ()
    meta: dict[str, Any] = field(factory=dict)
    code: Hashable = field(default=None, eq=False, repr=False)
    in_grid: bool = False
    kernels: tuple[Kernel, ...] = field(default=(), eq=False, repr=False)
    functions: frozenset[str] = field(default=frozenset(), eq=False, repr=False)


def with_shared_sources(kernels: Iterable[GeneratedKernel]) -> list[GeneratedKernel]:
    """The kernels, in order; one whose ``code`` an earlier one has takes that one's name and source."""
    known: dict[Hashable, GeneratedKernel] = {}
    found = []
    for kernel in kernels:
        same = known.setdefault(kernel.code, kernel)
        found.append(evolve(kernel, name=same.name, source=same.source))
    return found


def sources_of(kernels: Iterable[GeneratedKernel]) -> list[str]:
    """The sources that differ, in order."""
    return list(dict.fromkeys(kernel.source for kernel in kernels))
