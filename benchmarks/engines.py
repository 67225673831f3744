"""The three engines that every figure sets side by side: eager, torch.compile and flambeau.

In: an engine's name and a callable. Out: the callable as that engine runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

ENGINES = ("eager", "torch.compile", "flambeau")


def compiled(engine: str, function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """`function` under an engine; `arguments` go to its compile call."""
    if engine == "eager":
        return function
    if engine == "torch.compile":
        return torch.compile(function, **arguments)
    if engine == "flambeau":
        import flambeau

        return flambeau.compile(function, **arguments)
    raise ValueError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}")
