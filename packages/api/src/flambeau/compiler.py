"""`flambeau.compiler`: the names of `torch.compiler` and of the `torch._dynamo` helpers in daily use.

In: functions and tensors. Out: marks on them that capture reads, or answers about the compiler's state.
"""

from __future__ import annotations

from flambeau_capture import (
    allow_in_graph,
    assume_constant_result,
    disable,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
    nested_compile_region,
    on_compile_end,
    on_compile_start,
    register_hook_for_recompile_user_context,
    wrap_numpy,
)

from .accounting import clear_compilation_metrics, compile_times, counters, get_compilation_metrics
from .backends import (
    get_default_backend,
    list_backends,
    lookup_backend,
    register_backend,
    set_default_backend,
)
from .cache_artifacts import load_cache_artifacts, save_cache_artifacts
from .compile import compile
from .defaults import config
from .log import set_logs
from .options import list_mode_options, list_options
from .stance import set_enable_guard_collectives, set_stance
from .state import (
    cudagraph_mark_step_begin,
    is_compiling,
    is_dynamo_compiling,
    is_exporting,
    optimize,
    optimize_assert,
    reset,
    reset_code_caches,
    run,
)

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "clear_compilation_metrics",
    "compile",
    "compile_times",
    "config",
    "counters",
    "cudagraph_mark_step_begin",
    "disable",
    "get_compilation_metrics",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load_cache_artifacts",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "on_compile_end",
    "on_compile_start",
    "optimize",
    "optimize_assert",
    "register_backend",
    "register_hook_for_recompile_user_context",
    "reset",
    "reset_code_caches",
    "run",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_logs",
    "set_stance",
    "wrap_numpy",
]
