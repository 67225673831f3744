"""Options of the runtime: one frozen record, resolved once by whoever starts a compilation, and passed down.

In: keyword arguments, or the environment variable that each field names. Out: `Config`. A field's metadata has its help text, its variable,
whether it belongs to a cache key (it changes what is generated), and which values it takes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import Attribute, field, fields, frozen

from .errors import OptionError

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS: dict[type, str] = {bool: "on or off", int: "an integer", float: "a number", str: "a text"}
_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda value: True, "")


def _option(
    default: Any,
    help: str,
    variable: str,
    *,
    key: bool = False,
    choices: tuple[Any, ...] = (),
    accepts: tuple[Callable[[Any], bool], str] = _ANYTHING,
) -> Any:
    facts = {"help": help, "key": key, "kind": type(default), "choices": choices, "accepts": accepts}
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
    if choices and value not in choices:
        return " or ".join(repr(choice) for choice in choices)
    if not isinstance(value, (kind, int) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        return f"{_KINDS.get(kind, kind.__name__)}"
    return "" if accepts(value) else words


def _is_command(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


_COMMAND = (_is_command, "a command line whose quotes are closed")
_NOT_NEGATIVE = (lambda value: value >= 0, "at least 0")
_POSITIVE = (lambda value: value >= 1, "at least 1")


@frozen
class Config:
    """Where things are kept, what compiles C++, and how programs are run."""

    cache_dir: str = _option("", "the folder of the disk cache; empty: flambeau in the user's", "FLAMBEAU_CACHE_DIR")
    cache_limit_bytes: int = _option(
        4 << 30, "bound of the disk cache's size", "FLAMBEAU_CACHE_LIMIT_BYTES", accepts=_NOT_NEGATIVE
    )
    cache_enabled: bool = _option(True, "whether anything is kept on disk", "FLAMBEAU_CACHE")
    cache_shared: bool = _option(
        False, "load what other users put into the cache folder: whoever may write there can run code as us",
        "FLAMBEAU_CACHE_SHARED",
    )  # fmt: skip
    cxx: str = _option("", "the C++ compiler's command; empty: the first that is found", "CXX", accepts=_COMMAND)
    cxx_flags: str = _option("", "more flags for the C++ compiler", "FLAMBEAU_CXXFLAGS", key=True, accepts=_COMMAND)
    compile_timeout_seconds: int = _option(
        600, "how long the C++ compiler may take for one library", "FLAMBEAU_COMPILE_TIMEOUT", accepts=_POSITIVE
    )
    compile_jobs: int = _option(
        0, "C++ compilers at once; 0: up to 8, one a core", "FLAMBEAU_COMPILE_JOBS", accepts=_NOT_NEGATIVE
    )
    idle_memory_bytes: int = _option(
        256 << 20,
        "memory kept for later calls; read once a process",
        "FLAMBEAU_IDLE_MEMORY_BYTES",
        accepts=_NOT_NEGATIVE,
    )
    executor: str = _option("native", "which executor runs programs", "FLAMBEAU_EXECUTOR", choices=("native", "python"))
    cuda_driver: str = _option("libcuda.so.1", "the CUDA driver's library; read once a process", "FLAMBEAU_CUDA_DRIVER")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Defaults, overridden by each field's variable, overridden by keyword arguments.

        Raises `OptionError` for a value that does not fit and names its variable. A variable that is set to nothing counts as not set.
        """
        table = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(cls):
            text = table.get(option.metadata["variable"], "")
            if text:
                values[option.name] = _parse(option, text)
        return cls(**{**values, **overrides})

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The options that change what is generated."""
        return tuple((o.name, getattr(self, o.name)) for o in fields(type(self)) if o.metadata["key"])

    def folder(self) -> Path:
        """The cache folder: ``cache_dir``, or ``flambeau`` in the user's cache folder."""
        if self.cache_dir:
            return Path(self.cache_dir)
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return Path(base) / "flambeau"

    def jobs(self) -> int:
        """How many compilers run at once."""
        return self.compile_jobs or min(8, len(os.sched_getaffinity(0)))


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    variable: str = getattr(fields(Config), name).metadata["variable"]
    return variable


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
