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
    from .device_backends import (
        Device,
        DeviceInterface,
        Language,
        Writer,
        register_backend_for_device,
        register_interface_for_device,
    )
    from .extensions import (
        Anything,
        Call,
        Constant,
        Editor,
        Either,
        Like,
        Loops,
        Match,
        Operand,
        Registration,
        Through,
        call,
        register_decomposition,
        register_graph_pattern,
        register_lowering,
        register_replacement,
    )
    from .standalone import CompiledArtifact, compile, standalone_compile

__all__ = [
    "Anything",
    "Call",
    "CompiledArtifact",
    "Constant",
    "Device",
    "DeviceInterface",
    "Editor",
    "Either",
    "Language",
    "Like",
    "Loops",
    "Match",
    "Operand",
    "Registration",
    "Through",
    "Writer",
    "call",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "list_mode_options",
    "list_options",
    "register_backend_for_device",
    "register_decomposition",
    "register_graph_pattern",
    "register_interface_for_device",
    "register_lowering",
    "register_replacement",
    "standalone_compile",
]

_OF_STANDALONE = frozenset(("CompiledArtifact", "compile", "standalone_compile"))
_OF_DEVICES = frozenset(
    (
        "Device",
        "DeviceInterface",
        "Language",
        "Writer",
        "register_backend_for_device",
        "register_interface_for_device",
    )
)
_HERE = frozenset(("config", "cudagraph_mark_step_begin", "list_mode_options", "list_options"))
_LOADED_LATER = {
    **{name: ".extensions" for name in __all__ if name not in _HERE},
    **dict.fromkeys(_OF_STANDALONE, ".standalone"),
    **dict.fromkeys(_OF_DEVICES, ".device_backends"),
}
"""What needs the stages behind capture, which importing flambeau does not load, and where it is."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATER[name], __package__), name)
