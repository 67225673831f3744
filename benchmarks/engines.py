"""The engines that every figure sets side by side: eager, torch.compile and flambeau, each compiler in any of its modes.

In: an engine's name, `NAME` or `NAME/MODE` (`"flambeau/reduce-overhead"`; `"flambeau/freezing"` for the option of that name), and a callable. Out: the callable as that engine runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

ENGINES = ("eager", "torch.compile", "flambeau")
#: torch.compile's two modes beside ours; without CUDA graphs, so that kernels alone make the difference.
TUNED = (*ENGINES, "torch.compile/max-autotune-no-cudagraphs", "flambeau/max-autotune-no-cudagraphs")
REDUCE_OVERHEAD = ("eager", "torch.compile/reduce-overhead", "flambeau/reduce-overhead")


def compiled(engine: str, function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """`function` under an engine; `arguments` go to its compile call."""
    name, _, mode = engine.partition("/")
    if mode == "freezing":
        arguments["options"] = {"freezing": True}
    elif mode:
        arguments["mode"] = mode
    if name == "eager":
        return function
    if name == "torch.compile":
        return torch.compile(function, **arguments)
    if name == "flambeau":
        import flambeau

        return flambeau.compile(function, **arguments)
    raise ValueError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}, each compiler also with /MODE")


def reset(engine: str) -> None:
    """Forget what the engine compiled in this process."""
    if engine.startswith("torch.compile"):
        torch._dynamo.reset()
    elif engine.startswith("flambeau"):
        import flambeau

        flambeau.compiler.reset()
