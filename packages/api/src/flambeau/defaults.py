"""Process-wide defaults of compile calls: what `flambeau.compiler.config` shows and `config.patch` changes for a while.

In: keyword overrides in a `with` block. Out: the `flambeau_capture.Config` of a compile call. The current record is frozen and
lives in a context variable, so threads and tasks do not see each other's changes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import attrs

from flambeau_capture import Config

from .errors import UnknownName
from .options import Options

_CURRENT: ContextVar[Config | None] = ContextVar("flambeau_config", default=None)


def current() -> Config:
    """The record in force: the environment's, or that of the innermost `patch`."""
    return _CURRENT.get() or Config.from_environment()


def errors_suppressed(options: Options) -> bool:
    """Whether a fault of ours runs the frame or graph in eager after one warning; `FLAMBEAU_SUPPRESS_ERRORS=0` raises instead."""
    return bool(options["suppress_errors"]) and os.environ.get("FLAMBEAU_SUPPRESS_ERRORS", "1") != "0"


def capture_config(arguments: Mapping[str, Any], options: Options) -> Config:
    """The capture options of one compile call: the defaults in force, overridden by the call's arguments."""
    changes: dict[str, Any] = {
        "fullgraph": arguments["fullgraph"],
        "dynamic": arguments["dynamic"],
        "suppress_errors": errors_suppressed(options),
        "guard_filter_fn": options["guard_filter_fn"],
    }
    if arguments["recompile_limit"] is not None:
        changes["recompile_limit"] = arguments["recompile_limit"]
    elif "recompile_limit" in options.values:
        changes["recompile_limit"] = options["recompile_limit"]
    return attrs.evolve(current(), **{k: v for k, v in changes.items() if v is not None})


class ConfigView:
    """`flambeau.compiler.config`: reads like a module of settings, changes only through `patch`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(current(), name):
            raise AttributeError(f"flambeau has no setting {name!r}; there are: {', '.join(self.names())}")
        return getattr(current(), name)

    def names(self) -> list[str]:
        """Every setting."""
        return [option.name for option in attrs.fields(Config)]

    @contextlib.contextmanager
    def patch(self, **changes: Any) -> Iterator[None]:
        """Other defaults for the compile calls made inside the block.

        Raises:
            UnknownName: for a setting that does not exist.
        """
        for name in changes:
            if name not in self.names():
                raise UnknownName("setting", name, self.names())
        token = _CURRENT.set(attrs.evolve(current(), **changes))
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def __repr__(self) -> str:
        return f"<flambeau settings: {current()!r}>"


config = ConfigView()
