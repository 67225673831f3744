"""Modes and options: what `flambeau.compile(mode=..., options=...)` accepts, as one frozen record.

In: a mode name or a dict with the option names of `torch.compile`. Out: `Options`, validated, printable, with a stable cache key.
An option stands once, in the `config.py` of the package that acts on it; `OPTIONS` joins what users write of these records, and feeds validation,
`list_options()`, variables of the environment and the docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
from attrs import Attribute, evolve, field, frozen

import flambeau_autograd
import flambeau_capture
import flambeau_inductor
import flambeau_runtime
from flambeau_runtime.option_fields import expected, name_of, variables_of

from .config import Config
from .errors import InvalidOption, NotHereYet, UnknownName
from .torch_names import OPTIONS as NOT_YET
from .without_effect import OPTIONS as WITHOUT_EFFECT
from .without_effect import is_accepted

#: Package -> its record of options.
RECORDS: Mapping[str, Any] = MappingProxyType(
    {
        "api": Config,
        "capture": flambeau_capture.Config,
        "autograd": flambeau_autograd.Config,
        "inductor": flambeau_inductor.Config,
        "runtime": flambeau_runtime.Config,
    }
)
_DEFAULTS_HERE = {"suppress_errors": True}
"""Of fields whose default is another where the package is used alone."""


@frozen
class OptionSpec:
    """One option.

    Attributes:
        name: the key in `options={...}`.
        package: who acts on it.
        field: the field of the package's record.
        default: value when it is not given.
    """

    name: str
    package: str
    field: Attribute[Any]
    default: Any

    @property
    def help(self) -> str:
        """One sentence."""
        return str(self.field.metadata["help"])

    @property
    def cached(self) -> bool:
        """Whether the value is part of the compilation cache's key."""
        return bool(self.field.metadata["key"])

    @property
    def choices(self) -> tuple[Any, ...]:
        """The accepted values, if they are few."""
        return tuple(self.field.metadata["choices"])

    @property
    def variables(self) -> list[str]:
        """The environment variables that set it, the one that goes first first."""
        return variables_of(RECORDS[self.package], self.field)


def _specs() -> dict[str, OptionSpec]:
    found = {}
    for package, record in RECORDS.items():
        for option in attrs.fields(record):
            if name := name_of(option):
                default: Any = option.default
                if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # attrs declares this class as a function
                    default = default.factory()
                found[name] = OptionSpec(name, package, option, _DEFAULTS_HERE.get(name, default))
    return found


#: Option name -> its record.
OPTIONS: Mapping[str, OptionSpec] = MappingProxyType(_specs())

_MODES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "reduce-overhead": {"triton.cudagraphs": True, "spend_memory": True},
        "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True, "spend_memory": True},
        "max-autotune": {
            "max_autotune": True,
            "coordinate_descent_tuning": True,
            "triton.cudagraphs": True,
            "spend_memory": True,
        },
        "lite": {
            "fallback_by_default": True,
            "allow_buffer_reuse": False,
            "pattern_matcher": False,
            "joint_graph_constant_folding": False,
        },
    }
)


def _plain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))


@frozen
class Options:
    """The options of one compile region, resolved once.

    Attributes:
        values: option name -> value, only those that were given in the call.
        defaults: option name -> value, those that the environment or an assignment to `flambeau.inductor.config` sets.
    """

    values: Mapping[str, Any] = field(factory=dict, converter=_plain)
    defaults: Mapping[str, Any] = field(factory=dict, converter=_plain)

    def __getitem__(self, name: str) -> Any:
        if name not in OPTIONS:
            raise UnknownName("option", name, OPTIONS)
        return self.values.get(name, self.defaults.get(name, OPTIONS[name].default))

    def set_values(self) -> dict[str, Any]:
        """What was given, over what the surroundings set."""
        return {**self.defaults, **self.values}

    def of_package(self, package: str) -> dict[str, Any]:
        """Field -> value of a package's options that are set."""
        set_ones = self.set_values().items()
        return {OPTIONS[name].field.name: value for name, value in set_ones if OPTIONS[name].package == package}

    def under(self, defaults: Mapping[str, Any]) -> Options:
        """A copy with defaults laid over its own."""
        return evolve(self, defaults={**self.defaults, **defaults})

    def cache_key(self) -> str:
        """The part of a cache key that the options contribute."""
        set_ones = self.set_values().items()
        return repr(sorted((k, v) for k, v in set_ones if OPTIONS[k].cached and v != OPTIONS[k].default))

    def with_(self, **changes: Any) -> Options:
        """A copy with some options changed; dots in names are written as double underscores."""
        renamed = {name.replace("__", "."): value for name, value in changes.items()}
        return evolve(self, values={**self.values, **_validated(renamed)})


def _validated(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if checked(name, value)}


def checked(name: str, value: Any) -> bool:
    """Whether the option is set by the value: not where it has no effect here, and the value is the one that says so.

    Raises:
        UnknownName: for an option or choice that does not exist.
        InvalidOption: for a value of a wrong type or out of range, or one without effect here.
    """
    spec = OPTIONS.get(name)
    if spec is None:
        if name not in WITHOUT_EFFECT:
            raise NotHereYet("option", name) if name in NOT_YET else UnknownName("option", name, OPTIONS)
        accepted, reason = WITHOUT_EFFECT[name]
        if not is_accepted(value, accepted):
            raise InvalidOption(f"option {name!r} is {accepted[0]!r} here, not {value!r}", hint=reason)
        return False
    wanted = expected(spec.field, value)
    if wanted and spec.choices and isinstance(value, type(spec.default)):
        raise UnknownName(f"value of option {name!r}", value, map(str, spec.choices))
    if wanted:
        raise InvalidOption(f"option {name!r} takes {wanted}, not {value!r}", hint=spec.help)
    return True


def resolve(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """The `Options` of a compile call.

    Args:
        mode: one of `list_mode_options()`, or None.
        options: option name -> value, or None.

    Raises:
        InvalidOption: when both are given, or a value has the wrong type or is out of range.
        UnknownName: for an unknown mode, option or choice.
    """
    if mode is not None and options is not None:
        raise InvalidOption(
            "mode and options exclude each other",
            hint=f"write what the mode sets into the options: {dict(_MODES.get(mode, {}))}",
        )
    if mode is not None:
        if mode not in _MODES:
            raise UnknownName("mode", mode, _MODES)
        return Options(_validated(_MODES[mode]))
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOption(f"options takes a dict, not {type(options).__name__}")
    return Options(_validated(options or {}))


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Mode name -> the options it sets; with `mode`, that mode's options alone."""
    if mode is None:
        return {name: dict(values) for name, values in _MODES.items()}
    if mode not in _MODES:
        raise UnknownName("mode", mode, _MODES)
    return dict(_MODES[mode])


def list_options() -> list[str]:
    """Names of all options, sorted."""
    return sorted(OPTIONS)
