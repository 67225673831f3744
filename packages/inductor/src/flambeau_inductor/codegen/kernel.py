"""What the code generators hand to ``program``: the text of one kernel and how to launch it."""

from __future__ import annotations

from typing import Any

import torch
from attrs import field, frozen

from ..expr import Expr


@frozen
class GeneratedKernel:
    """One kernel of a translation unit.

    ``buffers`` names one buffer per argument (buffers that share storage share the argument); ``scalars`` are integer
    expressions or parameter names, passed in that order, with ``scalar_kinds`` "i" or "f" each. ``extent`` is the parallel
    size and ``grain`` the fewest iterations worth a thread. ``checks`` are the messages of status codes.
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
