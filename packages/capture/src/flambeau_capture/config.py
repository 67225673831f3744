"""Options of capture: one frozen record, passed in, never written to.

In: keyword arguments or `FLAMBEAU_CAPTURE_<FIELD>` variables. Out: `Config`. A field's metadata has its help text, its kind, whether a
variable may set it, and which values it takes. None belongs to a key of compiled graphs: what capture decides is in the graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import Attribute, field, fields, frozen

from .errors import OptionError
from .library import contextlib

_PREFIX = "FLAMBEAU_CAPTURE_"
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS: dict[type, str] = {bool: "on or off", int: "an integer", float: "a number", str: "a text"}
_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda value: True, "")
_POSITIVE: tuple[Callable[[Any], bool], str] = (lambda value: value >= 1, "at least 1")
_FUNCTION: tuple[Callable[[Any], bool], str] = (lambda value: value is None or callable(value), "a callable or None")


def _option(
    default: Any,
    help: str,
    *,
    variable: bool = True,
    choices: tuple[Any, ...] = (),
    accepts: tuple[Callable[[Any], bool], str] = _ANYTHING,
) -> Any:
    kind = bool if choices == (None, True, False) else object if default is None else type(default)
    facts = {"help": help, "key": False, "kind": kind, "choices": choices, "accepts": accepts}
    return field(default=default, validator=_check, metadata={**facts, "variable": variable})


def _check(config: Any, option: Attribute[Any], value: Any) -> None:
    if value is option.default:
        return  # most are, and every compile call makes a record
    expected = _expected(option, value)
    if expected:
        raise OptionError(f"{option.name}={value!r}: expected {expected}", hint=option.metadata["help"])


def _expected(option: Attribute[Any], value: Any) -> str:
    """What the option takes, where `value` is not that; else nothing."""
    kind, choices, (accepts, words) = (option.metadata[name] for name in ("kind", "choices", "accepts"))
    if choices:
        return "" if value in choices and type(value) in map(type, choices) else "on, off or none"
    if not isinstance(value, (kind, int) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        return f"{_KINDS.get(kind, kind.__name__)}"
    return "" if accepts(value) else words


@frozen(kw_only=True)
class Config:
    """What the compiler of frames may do."""

    fullgraph: bool = _option(False, "a graph break is an error")
    dynamic: bool | None = _option(
        None,
        "True: symbolic sizes from the start; False: never; None: after a size changed",
        choices=(None, True, False),
    )
    recompile_limit: int = _option(
        8, "entries per code object and region before further calls run in eager", accepts=_POSITIVE
    )
    error_on_recompile: bool = _option(False, "raise instead of compiling a second time")
    fail_on_recompile_limit: bool = _option(False, "raise instead of running in eager past the limit")
    suppress_errors: bool = _option(False, "internal faults run the frame in eager after one warning")
    inline_depth: int = _option(200, "calls inlined into each other before a graph break", accepts=_POSITIVE)
    unroll_limit: int = _option(100_000, "instructions traced in one frame before a graph break", accepts=_POSITIVE)
    specialize_int: bool = _option(False, "never make Python ints symbolic")
    specialize_float: bool = _option(False, "never make Python floats symbolic")
    capture_scalar_outputs: bool = _option(True, "keep Tensor.item() in the graph as an unbacked symbol")
    capture_dynamic_output_shape_ops: bool = _option(True, "keep ops such as nonzero in the graph")
    guard_module_hooks: bool = _option(True, "guard the hook tables of modules")
    # ruff takes the call for a default; it is a field, as above, where the types tell ruff that it does no harm.
    guard_filter_fn: Callable[[Any], Any] | None = _option(  # noqa: RUF009
        None, "chooses which guards an entry keeps, see guard_filter.py", variable=False, accepts=_FUNCTION
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Defaults, overridden by `FLAMBEAU_CAPTURE_<FIELD>`, overridden by keyword arguments.

        Raises `OptionError` for a value that does not fit and names its variable. A variable that is set to nothing counts as not set.
        """
        table = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(cls):
            text = table.get(variable_of(option.name), "")
            if text and option.metadata["variable"]:
                values[option.name] = _parse(option, text)
        return cls(**{**values, **overrides})

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The options that change what is generated from a graph."""
        return tuple((o.name, getattr(self, o.name)) for o in fields(type(self)) if o.metadata["key"])


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    return _PREFIX + name.upper()


def _parse(option: Attribute[Any], text: str) -> Any:
    """A variable's text as a value of its field. Booleans are 1 or 0, true or false, yes or no, on or off."""
    kind = option.metadata["kind"]
    value: Any = text
    with contextlib.suppress(ValueError):
        if kind is bool:
            words = {**_WORDS, "none": None} if option.metadata["choices"] else _WORDS
            value = words.get(text.strip().lower(), text)
        elif kind is not str:
            value = kind(text)
    expected = _expected(option, value)
    if expected:
        variable = variable_of(option.name)
        raise OptionError(f"{variable}={text!r}: expected {expected}", hint=option.metadata["help"])
    return value
