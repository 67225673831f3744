"""`flambeau.compiler`: the names of `torch.compiler` and of the `torch._dynamo` helpers in daily use.

In: functions and tensors. Out: marks on them that capture reads, or answers about the compiler's state.
"""

from __future__ import annotations

from flambeau_capture import (
    allow_c_slot,
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    dont_skip_tracing,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    leaf_function,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nested_compile_region,
    nonstrict_trace,
    on_compile_end,
    on_compile_start,
    override_cudagraphs,
    override_optimization_hint,
    patch_dynamo_config,
    register_hook_for_recompile_user_context,
    skip_all_guards_unsafe,
    skip_frame,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
    step_unsupported,
    substitute_in_graph,
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
    "allow_c_slot",
    "allow_in_graph",
    "assume_constant_result",
    "clear_compilation_metrics",
    "compile",
    "compile_times",
    "config",
    "counters",
    "cudagraph_mark_step_begin",
    "disable",
    "disallow_in_graph",
    "dont_skip_tracing",
    "error_on_graph_break",
    "forbid_in_graph",
    "get_compilation_metrics",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "leaf_function",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load_cache_artifacts",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "on_compile_end",
    "on_compile_start",
    "optimize",
    "optimize_assert",
    "override_cudagraphs",
    "override_optimization_hint",
    "patch_dynamo_config",
    "register_backend",
    "register_hook_for_recompile_user_context",
    "reset",
    "reset_code_caches",
    "run",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_logs",
    "set_recursion_limit",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "step_unsupported",
    "substitute_in_graph",
    "wrap_numpy",
]


def set_recursion_limit(limit: int) -> None:
    """Let programs nest calls this deep while they are traced: Python's recursion limit then, where it is lower. Regions made from now on heed it.

    Raises:
        InvalidOption: for anything but a number that is at least 1.
    """
    config.recursion_limit = limit
