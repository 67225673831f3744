"""Options of ahead-of-time autograd: one frozen record, resolved once per compilation.

In: keyword arguments or `FLAMBEAU_AUTOGRAD_<FIELD>` variables. Out: `Config`. A field's metadata has its help text, whether it belongs to a
cache key (it changes the graphs), and which values it takes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import Attribute, field, fields, frozen

from .errors import OptionError

_PREFIX = "FLAMBEAU_AUTOGRAD_"
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS: dict[type, str] = {bool: "on or off", int: "an integer", float: "a number", str: "a text"}
_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda value: True, "")
_NOT_NEGATIVE: tuple[Callable[[Any], bool], str] = (lambda value: value >= 0, "at least 0")
_SHARE: tuple[Callable[[Any], bool], str] = (lambda value: 0 <= value <= 1, "from 0 to 1")


def _option(
    default: Any,
    help: str,
    *,
    key: bool = True,
    choices: tuple[Any, ...] = (),
    accepts: tuple[Callable[[Any], bool], str] = _ANYTHING,
) -> Any:
    facts = {"help": help, "key": key, "kind": type(default), "choices": choices, "accepts": accepts}
    return field(default=default, validator=_check, metadata=facts)


def _check(config: Any, option: Attribute[Any], value: Any) -> None:
    if value is option.default:
        return  # most are, and every compile call makes a record
    expected = _expected(option, value)
    if expected:
        raise OptionError(f"{option.name}={value!r}: expected {expected}", hint=option.metadata["help"])


def _expected(option: Attribute[Any], value: Any) -> str:
    """What the option takes, where `value` is not that; else nothing."""
    kind, choices, (accepts, words) = (option.metadata[name] for name in ("kind", "choices", "accepts"))
    if choices and value not in choices:
        return " or ".join(repr(choice) for choice in choices)
    if not isinstance(value, (kind, int) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        return f"{_KINDS.get(kind, kind.__name__)}"
    return "" if accepts(value) else words


@frozen
class Config:
    """What is saved for the backward, and how both halves are joined."""

    memory_budget: float = _option(
        1.0, "share of the activations that the default cut would save which may be saved", accepts=_SHARE
    )
    recompute_fusible: bool = _option(
        True, "recompute chains of pointwise ops and views in the backward when that saves bytes"
    )
    max_recompute_chain: int = _option(
        16, "how many fusible nodes in a row may be recomputed before one is saved", accepts=_NOT_NEGATIVE
    )
    native: bool = _option(True, "use the C++ node; off, the Python twin runs", key=False)
    log_passes: bool = _option(False, "log what each pass did, and the seconds", key=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Defaults, overridden by `FLAMBEAU_AUTOGRAD_<FIELD>`, overridden by keyword arguments.

        Raises `OptionError` for a value that does not fit and names its variable. A variable that is set to nothing counts as not set.
        """
        table = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(cls):
            text = table.get(variable_of(option.name), "")
            if text:
                values[option.name] = _parse(option, text)
        return cls(**{**values, **overrides})

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The options that change the produced graphs."""
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
            value = _WORDS.get(text.strip().lower(), text)
        elif kind is not str:
            value = kind(text)
    expected = _expected(option, value)
    if expected:
        variable = variable_of(option.name)
        raise OptionError(f"{variable}={text!r}: expected {expected}", hint=option.metadata["help"])
    return value
