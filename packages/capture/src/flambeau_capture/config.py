"""Options of capture: one frozen record, passed in, never written to.

In: keyword arguments or `FLAMBEAU_CAPTURE_*` variables. Out: `Config`. A field's metadata has its help text, whether an environment
variable may set it, and whether it belongs to a cache key (it changes what is generated).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import Attribute, field, fields, frozen

from .errors import CaptureError


def _option(default: Any, help: str, *, key: bool = True, variable: bool = True) -> Any:
    return field(default=default, metadata={"help": help, "key": key, "variable": variable})


@frozen(kw_only=True)
class Config:
    """What the compiler of frames may do."""

    fullgraph: bool = _option(False, "a graph break is an error")
    dynamic: bool | None = _option(
        None, "True: symbolic sizes from the start; False: never; None: after a size changed"
    )
    recompile_limit: int = _option(8, "entries per code object and region before further calls run in eager", key=False)
    error_on_recompile: bool = _option(False, "raise instead of compiling a second time", key=False)
    fail_on_recompile_limit: bool = _option(False, "raise instead of running in eager past the limit", key=False)
    suppress_errors: bool = _option(False, "internal faults run the frame in eager after one warning", key=False)
    inline_depth: int = _option(200, "calls inlined into each other before a graph break")
    unroll_limit: int = _option(100_000, "instructions traced in one frame before a graph break")
    specialize_int: bool = _option(False, "never make Python ints symbolic")
    specialize_float: bool = _option(False, "never make Python floats symbolic")
    capture_scalar_outputs: bool = _option(False, "keep Tensor.item() in the graph as an unbacked symbol")
    capture_dynamic_output_shape_ops: bool = _option(False, "keep ops such as nonzero in the graph")
    guard_module_hooks: bool = _option(True, "guard the hook tables of modules")
    # ruff takes the call for a default; it is a field, as above, where the types tell ruff that it does no harm.
    guard_filter_fn: Callable[[Any], Any] | None = _option(  # noqa: RUF009
        None, "chooses which guards an entry keeps, see guards/filter.py", key=False, variable=False
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Defaults, overridden by `FLAMBEAU_CAPTURE_<FIELD>`, overridden by keyword arguments."""
        table = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(cls):
            text = table.get(variable_of(option.name))
            if text is not None and option.metadata["variable"]:
                values[option.name] = _parse(option, text)
        return cls(**{**values, **overrides})

    def cache_key(self) -> tuple[tuple[str, Any], ...]:
        """The options that change what is generated."""
        return tuple((a.name, getattr(self, a.name)) for a in fields(type(self)) if a.metadata["key"])


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    return f"FLAMBEAU_CAPTURE_{name.upper()}"


def _parse(option: Attribute[Any], text: str) -> Any:
    lowered = text.strip().lower()
    if isinstance(option.default, bool) or option.default is None:
        known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if option.default is None:
            known["none"] = None  # type: ignore[assignment]
        if lowered in known:
            return known[lowered]
    elif isinstance(option.default, int) and lowered.lstrip("-").isdigit():
        return int(lowered)
    raise CaptureError(
        f"{variable_of(option.name)}={text!r} is not a value for {option.name}", hint=option.metadata["help"]
    )
