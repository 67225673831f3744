"""Ahead-of-time autograd: a captured graph becomes functional forward and backward ATen graphs.

In: a `torch.fx.GraphModule` of torch-level calls with fake-tensor inputs. Out: a callable with the same inputs and
outputs, made of a compiled forward, a compiled backward and a native node that joins them for torch's autograd engine.

A function is loaded when it is first asked for: whoever only wants `Config` or the errors does not wait for sympy, and a graph that was
compiled before does without the stages that trace it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .config import Config
from .errors import AutogradError, OptionError, UnsupportedDoubleBackward, UnsupportedGraph, UnsupportedMutation

if TYPE_CHECKING:
    from .backend import aot_autograd
    from .decompose.registry import core_table, merged
    from .functional.predictions import corrected
    from .partition.min_cut import min_cut
    from .partition.simple import default as default_partition
    from .pipeline import compile_joint, layouts, prepare, retrace
    from .records import Prepared, Signature
    from .wrappers.assemble import assemble
    from .wrappers.border import Flattened, flatten
    from .wrappers.double import Rescue
    from .wrappers.recovery import Trace
    from .wrappers.workspaces import with_workspaces

__version__ = "0.1.0"

__all__ = [
    "AutogradError",
    "Config",
    "Flattened",
    "OptionError",
    "Prepared",
    "Rescue",
    "Signature",
    "Trace",
    "UnsupportedDoubleBackward",
    "UnsupportedGraph",
    "UnsupportedMutation",
    "aot_autograd",
    "assemble",
    "compile_joint",
    "core_table",
    "corrected",
    "default_partition",
    "flatten",
    "layouts",
    "merged",
    "min_cut",
    "prepare",
    "retrace",
    "with_workspaces",
]

#: Name -> module and the name there.
_LOADED_LATER = {
    "Flattened": (".wrappers.border", "Flattened"),
    "Prepared": (".records", "Prepared"),
    "Rescue": (".wrappers.double", "Rescue"),
    "Signature": (".records", "Signature"),
    "Trace": (".wrappers.recovery", "Trace"),
    "aot_autograd": (".backend", "aot_autograd"),
    "assemble": (".wrappers.assemble", "assemble"),
    "compile_joint": (".pipeline", "compile_joint"),
    "core_table": (".decompose.registry", "core_table"),
    "corrected": (".functional.predictions", "corrected"),
    "default_partition": (".partition.simple", "default"),
    "flatten": (".wrappers.border", "flatten"),
    "layouts": (".pipeline", "layouts"),
    "merged": (".decompose.registry", "merged"),
    "min_cut": (".partition.min_cut", "min_cut"),
    "prepare": (".pipeline", "prepare"),
    "retrace": (".pipeline", "retrace"),
    "with_workspaces": (".wrappers.workspaces", "with_workspaces"),
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LOADED_LATER[name]
    found = getattr(import_module(module, __name__), attribute)
    globals()[name] = found
    return found
