"""Process-wide defaults of compile calls: what `flambeau.compiler.config` shows, takes by assignment, and `config.patch` changes for a while.

In: environment variables, assignments, keyword overrides in a `with` block, each over the one before. Out: `Settings`, frozen, which
a compile call keeps. Patches live in a context variable, so threads and tasks do not see each other's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import attrs
from attrs import frozen

import flambeau_autograd
import flambeau_capture
import flambeau_inductor
import flambeau_runtime

from .errors import InvalidOption, NotHereYet, UnknownName
from .options import Options
from .torch_names import OPTIONS as NOT_YET
from .torch_names import SETTINGS

SUPPRESS_VARIABLE = "FLAMBEAU_SUPPRESS_ERRORS"
_OF_RUNTIME = ("cache_shared",)
_NAMES = (*(option.name for option in attrs.fields(flambeau_capture.Config)), *_OF_RUNTIME)

_ASSIGNED: dict[str, Any] = {}
_PATCHED: ContextVar[Mapping[str, Any] | None] = ContextVar("flambeau_config", default=None)


@frozen
class Settings:
    """What a compile call works with, apart from its options.

    Attributes:
        capture: capture's options. `suppress_errors` among them counts for all packages: a fault of ours runs the frame or graph in eager after
            one warning; without it, it raises.
        cache_shared: whether the disk cache may be a folder that other users write to.
    """

    capture: flambeau_capture.Config
    cache_shared: bool = False


def current() -> Settings:
    """The settings in force: the environment's, under what was assigned, under the innermost `patch`."""
    environment = variables()
    overrides = {"suppress_errors": True, **_suppression(environment), **_ASSIGNED, **(_PATCHED.get() or {})}
    runtime = {name: overrides.pop(name) for name in _OF_RUNTIME if name in overrides}
    with user_errors():
        capture = flambeau_capture.Config.from_environment(environment, **overrides)
        return Settings(capture, flambeau_runtime.Config.from_environment(environment, **runtime).cache_shared)


def variables() -> Mapping[str, str]:
    """The environment variables that options of the packages are read from. One walk costs less than fifty lookups of what is not set."""
    return {name: os.environ[name] for name in os.environ if name.startswith("FLAMBEAU_") or name == "CXX"}


def settings_of(arguments: Mapping[str, Any], options: Options) -> Settings:
    """The settings of one compile call: those in force, overridden by the call's options and arguments."""
    given = {
        name: options[name]
        for name in ("suppress_errors", "recompile_limit", "guard_filter_fn")
        if name in options.values
    }
    given |= {
        name: arguments[name] for name in ("fullgraph", "dynamic", "recompile_limit") if arguments[name] is not None
    }
    settings = current()
    with user_errors():
        return attrs.evolve(settings, capture=attrs.evolve(settings.capture, **given))


def _suppression(environment: Mapping[str, str]) -> dict[str, Any]:
    """What the variable for all packages says, where it is set: it goes before that of capture alone."""
    text = environment.get(SUPPRESS_VARIABLE, "")
    alone = flambeau_capture.config.variable_of("suppress_errors")
    given = text or environment.get(alone, "")
    if not given:
        return {}
    try:
        return {"suppress_errors": flambeau_capture.Config.from_environment({alone: given}).suppress_errors}
    except flambeau_capture.OptionError as error:
        message = error.message.replace(alone, SUPPRESS_VARIABLE) if text else error.message
        raise InvalidOption(message, error.hint_text) from None


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Wrong values of a package's options, as errors of this package."""
    try:
        yield
    except (
        flambeau_capture.OptionError,
        flambeau_runtime.OptionError,
        flambeau_autograd.OptionError,
        flambeau_inductor.OptionError,
    ) as error:
        raise InvalidOption(error.message, getattr(error, "hint_text", "") or getattr(error, "hint", "")) from None


def _known(name: str) -> str:
    if name in _NAMES:
        return name
    if name in SETTINGS or name in NOT_YET or any(option.startswith(f"{name}.") for option in NOT_YET):
        raise NotHereYet("setting", name)
    raise UnknownName("setting", name, _NAMES)


def _checked(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The changes, each of a setting that exists and with a value that it takes."""
    for name, value in changes.items():
        owner = flambeau_runtime.Config if _known(name) in _OF_RUNTIME else flambeau_capture.Config
        with user_errors():
            owner(**{name: value})
    return changes


class ConfigView:
    """`flambeau.compiler.config`: reads and takes assignments like a module of settings.

    An assignment is the default of all later compile calls, `del config.name` takes it back; `patch` changes settings for a block.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in _NAMES:
            raise AttributeError(f"flambeau has no setting {name!r}; there are: {', '.join(_NAMES)}")
        settings = current()
        return settings.cache_shared if name == "cache_shared" else getattr(settings.capture, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _checked({name: value})
        patched = _PATCHED.get()
        if patched is not None and name in patched:
            _PATCHED.set({**patched, name: value})
        else:
            _ASSIGNED[name] = value

    def __delattr__(self, name: str) -> None:
        _ASSIGNED.pop(_known(name), None)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_NAMES})

    def names(self) -> list[str]:
        """Every setting."""
        return list(_NAMES)

    @contextlib.contextmanager
    def patch(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Iterator[None]:
        """Other defaults for the compile calls made inside the block.

        Raises:
            UnknownName: for a setting that does not exist; `NotHereYet` for one of torch's that is not here yet.
            InvalidOption: for a value that a setting does not take.
        """
        token = _PATCHED.set({**(_PATCHED.get() or {}), **_checked({**(changes or {}), **more})})
        try:
            yield
        finally:
            _PATCHED.reset(token)

    def __repr__(self) -> str:
        return f"<flambeau settings: {current()!r}>"


config = ConfigView()
