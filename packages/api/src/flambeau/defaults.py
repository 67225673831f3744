"""Process-wide defaults of compile calls: what `flambeau.compiler.config` and `flambeau.inductor.config` show and take.

In: environment variables, assignments, overrides in a `with` block, each over the one before. Out: `Settings`, frozen, which a compile call keeps,
and `option_defaults`, which are read once more when a graph is compiled, as in torch.compile: options may be patched around either.
Patches live in a context variable, so threads and tasks do not see each other's.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import attrs
from attrs import field, frozen

import flambeau_autograd
import flambeau_capture
import flambeau_inductor
import flambeau_runtime
from flambeau_runtime.option_fields import name_of

from .errors import FlambeauError, InvalidOption, NotHereYet, UnknownName
from .options import OPTIONS, RECORDS, Options, checked
from .torch_names import OPTIONS as NOT_YET
from .torch_names import SETTINGS
from .without_effect import OPTIONS as OPTIONS_WITHOUT_EFFECT
from .without_effect import SETTINGS as SETTINGS_WITHOUT_EFFECT
from .without_effect import is_accepted

_OF_RUNTIME = ("cache_shared", "force_cudagraph_gc")


def _settings() -> dict[str, str]:
    """Every setting and whose it is: all of capture's, what users call options of autograd, and what is no option of a call."""
    found = {option.name: "capture" for option in attrs.fields(flambeau_capture.Config)}
    found |= {option.name: "autograd" for option in attrs.fields(flambeau_autograd.Config) if option.metadata["user"]}
    found |= {option.name: "api" for option in attrs.fields(RECORDS["api"]) if not option.metadata["user"]}
    return {**found, "force_disable_caches": "api", **dict.fromkeys(_OF_RUNTIME, "runtime")}


_PACKAGES = MappingProxyType(_settings())
_NAMES = tuple(_PACKAGES)

_ASSIGNED: dict[str, Any] = {}
_PATCHED: ContextVar[Mapping[str, Any] | None] = ContextVar("flambeau_config", default=None)


@frozen
class Settings:
    """What a compile call works with, apart from its options.

    Attributes:
        capture: capture's options. `suppress_errors` among them counts for all packages: a fault of ours runs the frame or graph in eager after
            one warning; without it, it raises.
        others: settings of other packages that are assigned or patched, by name.
    """

    capture: flambeau_capture.Config
    others: Mapping[str, Any] = field(factory=dict)

    def of_package(self, package: str) -> dict[str, Any]:
        """Field -> value of a package's settings that are set."""
        return {name: value for name, value in self.others.items() if _PACKAGES[name] == package}


def current() -> Settings:
    """The settings in force: the environment's, under what was assigned, under the innermost `patch`."""
    given = _overrides()
    capture = {name: value for name, value in given.items() if _PACKAGES.get(name) == "capture"}
    others = {name: given[name] for name in given if name in _PACKAGES and name not in capture and name not in OPTIONS}
    with user_errors():
        environment = flambeau_capture.Config.read(variables())
        return Settings(flambeau_capture.Config(**{"suppress_errors": True, **environment, **capture}), others)


def option_defaults(*, environment: bool = True) -> dict[str, Any]:
    """The options that environment variables, assignments and patches set, by name; but for those of capture, which are settings."""
    found: dict[str, Any] = {}
    if environment:
        table = variables()
        with user_errors():
            for package, record in RECORDS.items():
                if package != "capture":
                    names = {option.name: name_of(option) for option in attrs.fields(record)}
                    found |= {names[name]: value for name, value in record.read(table).items() if names[name]}
    given = _overrides()
    return {**found, **{name: given[name] for name in given if name in OPTIONS and OPTIONS[name].package != "capture"}}


def _overrides() -> dict[str, Any]:
    return {**_ASSIGNED, **(_PATCHED.get() or {})}


def is_disabled() -> bool:
    """Whether nothing is compiled at all: the setting `disable`."""
    return _is_on("disable")


def is_verbose() -> bool:
    """Whether tracebacks keep our frames: the setting `verbose`. Where a variable has a wrong value they don't, for that is told as an error itself."""
    try:
        return _is_on("verbose")
    except FlambeauError:
        return False


def _is_on(name: str) -> bool:
    given = _overrides()
    return bool(given[name] if name in given else _default(name))


def variables() -> Mapping[str, str]:
    """The environment variables that options of the packages are read from. One walk costs less than fifty lookups of what is not set."""
    return {name: os.environ[name] for name in os.environ if name.startswith("FLAMBEAU_") or name == "CXX"}


def settings_of(arguments: Mapping[str, Any], options: Options) -> Settings:
    """The settings of one compile call: those in force, overridden by the call's options and arguments."""
    given = options.of_package("capture")
    given |= {
        name: arguments[name] for name in ("fullgraph", "dynamic", "recompile_limit") if arguments[name] is not None
    }
    settings = current()
    with user_errors():
        return attrs.evolve(settings, capture=attrs.evolve(settings.capture, **given))


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
        raise InvalidOption(error.message, error.hint) from None


def _default(name: str) -> Any:
    """What a name is where neither an assignment nor a patch says otherwise: the environment's value, or the default."""
    spec = OPTIONS.get(name)
    package, attribute = (spec.package, spec.field.name) if spec is not None else (_PACKAGES[name], name)
    with user_errors():
        set_ones = RECORDS[package].read(variables())
    if attribute in set_ones:
        return set_ones[attribute]
    if name == "suppress_errors":
        return True
    return spec.default if spec is not None else getattr(attrs.fields(RECORDS[package]), name).default


class ConfigView:
    """A module of settings: reads and takes assignments.

    An assignment is the default of all later compile calls, `del config.name` takes it back; `patch` changes settings for a block. Names with a
    dot are reached by attributes too: `config.triton.cudagraphs`.
    """

    _title: str
    _prefix: str

    def __init__(self, title: str, prefix: str = "") -> None:
        object.__setattr__(self, "_title", title)
        object.__setattr__(self, "_prefix", prefix)

    def _known(self, name: str) -> None:
        """Refuse a name that is none of the settings here."""
        if name not in self.names():
            if name in SETTINGS or name in NOT_YET or any(option.startswith(f"{name}.") for option in NOT_YET):
                raise NotHereYet("setting", name)
            raise UnknownName("setting", name, self.names())

    def _checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The changes that set something, each of a setting that exists and with a value that it takes."""
        found = {}
        for name, value in changes.items():
            table = SETTINGS_WITHOUT_EFFECT if name in SETTINGS_WITHOUT_EFFECT else OPTIONS_WITHOUT_EFFECT
            if name in table and name not in self.names():
                accepted, reason = table[name]
                if not is_accepted(value, accepted):
                    raise InvalidOption(f"setting {name!r} is {accepted[0]!r} here, not {value!r}", hint=reason)
                continue
            self._known(name)
            if name in OPTIONS:
                checked(name, value)
            else:
                with user_errors():
                    RECORDS[_PACKAGES[name]](**{name: value})
            found[name] = value
        return found

    def names(self) -> list[str]:
        """Every setting."""
        return list(_NAMES)

    def __getattr__(self, name: str) -> Any:
        path = self._prefix + name
        if not name.startswith("__"):
            given = _overrides()
            if path in self.names():
                return given[path] if path in given else copy.copy(_default(path))
            if any(known.startswith(f"{path}.") for known in (*self.names(), *OPTIONS_WITHOUT_EFFECT)):
                return type(self)(self._title, f"{path}.")
            for table in (SETTINGS_WITHOUT_EFFECT, OPTIONS_WITHOUT_EFFECT):
                if path in table:
                    return copy.copy(table[path][0][0])
        raise AttributeError(f"{self._title} has no setting {path!r}; there are: {', '.join(self.names())}")

    def __setattr__(self, name: str, value: Any) -> None:
        path = self._prefix + name
        if path not in self._checked({path: value}):
            return
        patched = _PATCHED.get()
        if patched is not None and path in patched:
            _PATCHED.set({**patched, path: value})
        else:
            _ASSIGNED[path] = value

    def __delattr__(self, name: str) -> None:
        self._known(self._prefix + name)
        _ASSIGNED.pop(self._prefix + name, None)

    def _taken_back(self, name: str) -> None:
        """Forget what was assigned under a whole name, with its dots."""
        _ASSIGNED.pop(name, None)

    def __dir__(self) -> list[str]:
        own = [
            name.removeprefix(self._prefix).partition(".")[0] for name in self.names() if name.startswith(self._prefix)
        ]
        return sorted({*object.__dir__(self), *own})

    @contextlib.contextmanager
    def patch(
        self, changes: Mapping[str, Any] | str | None = None, value: Any = None, /, **more: Any
    ) -> Iterator[None]:
        """Other defaults for the compile calls made inside the block; also a decorator of a function.

        Args:
            changes: name -> value; or one name, with its value behind it.
            value: the value, where `changes` is a name.
            more: further names with their values.

        Raises:
            UnknownName: for a setting that does not exist; `NotHereYet` for one of torch's that is not here yet.
            InvalidOption: for a value that a setting does not take.
        """
        given = {changes: value} if isinstance(changes, str) else dict(changes or {})
        token = _PATCHED.set({**(_PATCHED.get() or {}), **self._checked({**given, **more})})
        try:
            yield
        finally:
            _PATCHED.reset(token)

    def get_config_copy(self) -> dict[str, Any]:
        """Name -> value of everything, as it is now."""
        given = _overrides()
        return {name: given[name] if name in given else copy.copy(_default(name)) for name in self.names()}

    def save_config(self) -> bytes:
        """What was assigned, as bytes for `load_config`; functions must be importable by name."""
        return pickle.dumps({name: value for name, value in _ASSIGNED.items() if name in self.names()})

    def load_config(self, maybe_pickled_config: bytes | Mapping[str, Any]) -> None:
        """Assign what `save_config` or `get_config_copy` gave. Bytes are unpickled: load none that you do not trust.

        Raises:
            UnknownName: for a setting that does not exist.
            InvalidOption: for a value that a setting does not take.
        """
        given = maybe_pickled_config
        changes = pickle.loads(given) if isinstance(given, bytes) else dict(given)
        _ASSIGNED.update(self._checked(changes))

    def __repr__(self) -> str:
        changed = {name: value for name, value in _overrides().items() if name in self.names()}
        return f"<{self._title}: {changed or 'nothing changed'}>"


class OptionsView(ConfigView):
    """The same for the names of `options={...}`."""

    def names(self) -> list[str]:
        """Every option."""
        return list(OPTIONS)


config = ConfigView("flambeau.compiler.config")
inductor_config = OptionsView("flambeau.inductor.config")
