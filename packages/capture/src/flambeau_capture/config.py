"""Options of capture: one frozen record, passed in, never written to.

In: keyword arguments or environment variables (`option_fields.py`). Out: `Config`. None belongs to a key of compiled graphs: what capture decides
is in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from attrs import frozen

from .errors import OptionError
from .library import functools
from .option_fields import Condition, OptionRecord
from .option_fields import option as _any_option

option = functools.partial(_any_option, key=False)
_POSITIVE: Condition = (lambda value: value >= 1, "at least 1")
_FUNCTION: Condition = (callable, "a callable or None")
_FUNCTIONS: Condition = (
    lambda given: isinstance(given, (set, frozenset, list, tuple)) and all(map(callable, given)),
    "a set of functions",
)


@frozen(kw_only=True)
class Config(OptionRecord):
    """What the compiler of frames may do."""

    prefix: ClassVar[str] = "FLAMBEAU_CAPTURE_"
    error: ClassVar[type[Any]] = OptionError

    fullgraph: bool = option(
        False, "a graph break is an error; numbers out of tensors and sizes that depend on data are captured"
    )
    error_on_graph_break: bool = option(False, "a graph break is an error, a frame may have several graphs")
    dynamic: bool | None = option(
        None,
        "True: symbolic sizes from the start; False: never; None: after a size changed",
        kind=bool,
    )
    assume_static_by_default: bool = option(
        True, "sizes are constants until they change; False: symbolic from the start"
    )
    automatic_dynamic_shapes: bool = option(
        True, "sizes and numbers that changed become symbolic; False: never by themselves"
    )
    recompile_limit: int = option(
        8,
        "compiled entries of one function or module in one region; further calls run in eager",
        user=True,
        accepts=_POSITIVE,
    )
    accumulated_recompile_limit: int | None = option(
        None,
        "entries per code object in all regions together; further calls run in eager; None: no limit",
        kind=int,
        accepts=_POSITIVE,
    )
    error_on_recompile: bool = option(False, "raise instead of compiling a second time")
    fail_on_recompile_limit_hit: bool = option(False, "raise instead of running in eager past the limit")
    suppress_errors: bool = option(
        False, "our own failure runs the frame or graph in eager after one warning", user=True
    )
    verbose: bool = option(False, "tracebacks show flambeau's own frames too", key=False, variable="FLAMBEAU_VERBOSE")
    inline_depth: int = option(200, "calls inlined into each other before a graph break", accepts=_POSITIVE)
    unroll_limit: int = option(100_000, "instructions traced in one frame before a graph break", accepts=_POSITIVE)
    recursion_limit: int = option(20_000, "Python's recursion limit while tracing, if it is lower", accepts=_POSITIVE)
    specialize_int: bool = option(False, "never make Python ints symbolic")
    specialize_float: bool = option(False, "never make Python floats symbolic")
    capture_scalar_outputs: bool = option(
        True, "keep Tensor.item() in the graph as an unbacked symbol", variable="FLAMBEAU_CAPTURE_SCALAR_OUTPUTS"
    )
    capture_dynamic_output_shape_ops: bool = option(True, "keep ops such as nonzero in the graph")
    allow_unspec_int_on_nn_module: bool = option(
        True, "ints of modules become symbolic once they changed; False: never"
    )
    force_parameter_static_shapes: bool = option(True, "never make sizes of parameters and buffers symbolic")
    dynamic_sources: str = option(
        "",
        "comma list of names or patterns, each with an optional :dim: always symbolic",
        variable="FLAMBEAU_DYNAMIC_SOURCES",
    )
    unbacked_sources: str = option(
        "", "the same: symbolic without an example value", variable="FLAMBEAU_UNBACKED_SOURCES"
    )
    dynamic_values: str = option(
        "", "comma list of integers: sizes and numbers of this value are symbolic", variable="FLAMBEAU_DYNAMIC_VALUES"
    )
    dont_skip_tracing: bool = option(False, "trace into functions of torch that are otherwise left to plain Python")
    cudagraphs_forward: bool | None = option(
        None,
        "record forwards as CUDA graphs, or not, whatever the options say; None: as those say",
        kind=bool,
        variable=False,
    )
    cudagraphs_backward: bool | None = option(None, "the same for backwards", kind=bool, variable=False)
    trace_numpy: bool = option(True, "NumPy's functions are traced; False: they break the graph")
    side_effect_replay_policy: str = option(
        "info",
        "of changes to objects outside: say nothing, a line in the log, warn, or raise",
        choices=("silent", "info", "warn", "error"),
    )
    run_gc_after_compile: bool = option(False, "run Python's collector after each compile")
    guard_nn_modules: bool = option(True, "guard what modules hold; False: they do not change after the first call")
    skip_nnmodule_hook_guards: bool = option(
        False, "do not guard the hook tables of modules: hooks added later are not seen"
    )
    reorderable_logging_functions: Collection[Callable[..., Any]] = option(
        frozenset(),
        "functions and methods that log or print: calls of them in the middle of a graph run after it, in their order, with tensors as they were",
        kind=object,
        variable=False,
        accepts=_FUNCTIONS,
    )
    guard_filter_fn: Callable[[Any], Any] | None = option(  # noqa: RUF009  # the types say that it does no harm
        None,
        "gets a list of entries, returns a bool for each guard: False drops it (unsafe)",
        user=True,
        variable=False,
        accepts=_FUNCTION,
    )

    @property
    def symbolic(self) -> bool | None:
        """`dynamic`, and what the settings say where it is None: True: symbolic from the start; False: never; None: after a change."""
        if self.dynamic is not None:
            return self.dynamic
        if not self.assume_static_by_default:
            return True
        return None if self.automatic_dynamic_shapes else False

    @property
    def refuses_breaks(self) -> bool:
        """Whether a graph break is an error."""
        return self.fullgraph or self.error_on_graph_break
