"""`flambeau.inductor`: what programs reach under `torch._inductor`.

In: names and values of options; graphs. Out: `config`, whose assignments and patches are the defaults of `options={...}`, the listings, and graphs that are
compiled without capture.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .defaults import inductor_config as config
from .options import list_mode_options, list_options
from .state import cudagraph_mark_step_begin

if TYPE_CHECKING:
    from .standalone import CompiledArtifact, compile, standalone_compile

__all__ = [
    "CompiledArtifact",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "list_mode_options",
    "list_options",
    "standalone_compile",
]

_LOADED_LATER = frozenset(("CompiledArtifact", "compile", "standalone_compile"))
"""What needs the stages behind capture, which importing flambeau does not load."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".standalone", __package__), name)
