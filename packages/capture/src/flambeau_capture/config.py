"""Options of capture: one frozen record, passed in, never written to.

In: keyword arguments or environment variables (`option_fields.py`). Out: `Config`. None belongs to a key of compiled graphs: what capture decides
is in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from .errors import OptionError
from .library import functools
from .option_fields import Condition, OptionRecord
from .option_fields import option as _any_option

option = functools.partial(_any_option, key=False)
_POSITIVE: Condition = (lambda value: value >= 1, "at least 1")
_FUNCTION: Condition = (callable, "a callable or None")


@frozen(kw_only=True)
class Config(OptionRecord):
    """What the compiler of frames may do."""

    prefix: ClassVar[str] = "FLAMBEAU_CAPTURE_"
    error: ClassVar[type[Any]] = OptionError

    fullgraph: bool = option(False, "a graph break is an error")
    dynamic: bool | None = option(
        None,
        "True: symbolic sizes from the start; False: never; None: after a size changed",
        kind=bool,
    )
    recompile_limit: int = option(
        8, "compiled entries of one frame in one region; further calls run in eager", user=True, accepts=_POSITIVE
    )
    error_on_recompile: bool = option(False, "raise instead of compiling a second time")
    fail_on_recompile_limit: bool = option(False, "raise instead of running in eager past the limit")
    suppress_errors: bool = option(
        False, "our own failure runs the frame or graph in eager after one warning", user=True
    )
    inline_depth: int = option(200, "calls inlined into each other before a graph break", accepts=_POSITIVE)
    unroll_limit: int = option(100_000, "instructions traced in one frame before a graph break", accepts=_POSITIVE)
    specialize_int: bool = option(False, "never make Python ints symbolic")
    specialize_float: bool = option(False, "never make Python floats symbolic")
    capture_scalar_outputs: bool = option(True, "keep Tensor.item() in the graph as an unbacked symbol")
    capture_dynamic_output_shape_ops: bool = option(True, "keep ops such as nonzero in the graph")
    guard_module_hooks: bool = option(True, "guard the hook tables of modules")
    guard_filter_fn: Callable[[Any], Any] | None = option(  # noqa: RUF009  # the types say that it does no harm
        None,
        "gets a list of entries, returns a bool for each guard: False drops it (unsafe)",
        user=True,
        variable=False,
        accepts=_FUNCTION,
    )
