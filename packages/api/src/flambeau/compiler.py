"""`flambeau.compiler`: the names of `torch.compiler` and of the `torch._dynamo` helpers in daily use.

In: functions and tensors. Out: marks on them that capture reads, or answers about the compiler's state.
"""

from __future__ import annotations

import sys

from flambeau_capture import (
    allow_in_graph,
    assume_constant_result,
    disable,
    graph_break,
    is_capturing,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
    nested_compile_region,
    wrap_numpy,
)
from flambeau_capture import reset as _reset_capture

from .backends import list_backends, lookup_backend, register_backend
from .compile import compile
from .defaults import config
from .log import set_logs
from .options import list_mode_options, list_options
from .stance import set_enable_guard_collectives, set_stance

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "disable",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "list_backends",
    "list_mode_options",
    "list_options",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "register_backend",
    "reset",
    "set_enable_guard_collectives",
    "set_logs",
    "set_stance",
    "wrap_numpy",
]


def reset() -> None:
    """Forget every compiled entry and every CUDA graph of this process; the disk cache stays."""
    _reset_capture()
    recordings = sys.modules.get("flambeau_runtime.graphs")
    if recordings is not None:  # nothing was recorded where it was never loaded
        recordings.reset()


def cudagraph_mark_step_begin() -> None:
    """Accepted for programs written for torch.compile; nothing needs it: results stay valid while they are referenced."""


def is_compiling() -> bool:
    """True while the code that asks is being captured; in plain Python it is False."""
    return is_capturing()


def is_dynamo_compiling() -> bool:
    """The same question under the name that existing code asks."""
    return is_capturing()
