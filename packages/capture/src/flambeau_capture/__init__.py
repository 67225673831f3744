"""flambeau-capture: Python frames to FX graphs, guards and rewritten code.

In: a callable and a backend. Out: `make_region(function, backend)`, a callable like the function whose frames are captured::

    region = make_region(step, lambda gm, inputs: gm.forward)
    region(x)

Read next: `pipeline.py`.
"""

from __future__ import annotations

from .breaks import graph_break, skip_frame, step_unsupported
from .cache import forget_entries, live_regions, reset
from .compile_hooks import (
    CompileEvent,
    forget_callbacks,
    on_compile_end,
    on_compile_start,
    register_hook_for_recompile_user_context,
)
from .config import Config
from .errors import (
    BackendError,
    CaptureError,
    CompileCallbackError,
    CompileRefusedError,
    FlambeauCaptureError,
    ForbiddenCallError,
    GraphBreakError,
    InternalError,
    OptionError,
    RecompileLimitError,
    SideEffectError,
)
from .frame import FrameInfo, RunCode, RunGraph, Skip, SkipAlways
from .graph.dimension_marks import (
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    override_optimization_hint,
)
from .graph.fake_mode import register_correction
from .graph.names import hold_replaced
from .graph.quiet import no_warnings
from .guard_filter import (
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from .hook import Region, call_disabled
from .leaf_functions import leaf_function
from .marks import (
    allow_c_slot,
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    forbid_in_graph,
    is_capturing,
    nested_compile_region,
    nonstrict_trace,
    substitute_in_graph,
    wrap_numpy,
)
from .modes import left_as_before
from .patches import unpatched
from .pipeline import capture_frame
from .record import BreakRecord, CompileRecord
from .refusal import NumbersRefused
from .regions import Around, make_region
from .saved_tensor_hooks import raised_in_hook, with_marked_hooks
from .scopes import dont_skip_tracing, error_on_graph_break, override_cudagraphs, patch_dynamo_config
from .stance import NAMES as STANCES
from .stance import Stance, agree_by, run_only, set_stance

__all__ = [
    "STANCES",
    "Around",
    "BackendError",
    "BreakRecord",
    "CaptureError",
    "CompileCallbackError",
    "CompileEvent",
    "CompileRecord",
    "CompileRefusedError",
    "Config",
    "FlambeauCaptureError",
    "ForbiddenCallError",
    "FrameInfo",
    "GraphBreakError",
    "InternalError",
    "NumbersRefused",
    "OptionError",
    "RecompileLimitError",
    "Region",
    "RunCode",
    "RunGraph",
    "SideEffectError",
    "Skip",
    "SkipAlways",
    "Stance",
    "agree_by",
    "allow_c_slot",
    "allow_in_graph",
    "assume_constant_result",
    "call_disabled",
    "capture_frame",
    "disable",
    "disallow_in_graph",
    "dont_skip_tracing",
    "error_on_graph_break",
    "forbid_in_graph",
    "forget_callbacks",
    "forget_entries",
    "graph_break",
    "hold_replaced",
    "is_capturing",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "leaf_function",
    "left_as_before",
    "live_regions",
    "make_region",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "no_warnings",
    "nonstrict_trace",
    "on_compile_end",
    "on_compile_start",
    "override_cudagraphs",
    "override_optimization_hint",
    "patch_dynamo_config",
    "raised_in_hook",
    "register_correction",
    "register_hook_for_recompile_user_context",
    "reset",
    "run_only",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "step_unsupported",
    "substitute_in_graph",
    "unpatched",
    "with_marked_hooks",
    "wrap_numpy",
]

__version__ = "0.1.0"
