"""Records of options: what a package's `config.py` is made of.

In: fields made by `option`, in a frozen attrs class over `OptionRecord`. Out: records that check their values, are read from environment variables,
and say which part of them belongs to a cache key.

capture, autograd and runtime import no sibling, so each has this file; a test holds the copies to one text. inductor and api use runtime's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from attrs import Attribute, Factory, evolve, field, fields, frozen

#: A condition on values of the right type, and the words for it.
Condition = tuple[Callable[[Any], bool], str]
_Record = TypeVar("_Record", bound="OptionRecord")

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS: dict[type, str] = {bool: "on or off", int: "an integer", float: "a number", str: "a text"}


def option(
    default: Any,
    help: str,
    *,
    user: bool | str = False,
    key: bool = True,
    kind: type | None = None,
    optional: bool = False,
    choices: tuple[Any, ...] = (),
    accepts: Condition | None = None,
    variable: str | bool = True,
) -> Any:
    """A field of a record of options.

    Args:
        default: its value where nothing says otherwise.
        help: one sentence.
        user: whether users write it in `options={...}`: under the field's name, or under the one given (a dot is no part of a field's name).
        key: whether it belongs to a cache key: it changes what is generated.
        kind: the type of its values; that of the default where it is not given. `object`: checked by `accepts` alone.
        optional: whether None is a value as well.
        choices: its values, where they are few.
        accepts: a condition on values of that type, and the words for it.
        variable: the environment variable, where it does not follow from the name; False: none sets it.
    """
    metadata = {
        "help": help,
        "user": user,
        "key": key,
        "kind": kind or (object if default is None else type(default)),
        "optional": optional or default is None,
        "choices": choices,
        "accepts": accepts,
        "variable": variable,
    }
    # A list or a function as a default is no default of attrs' own kind.
    given = Factory(default.copy) if isinstance(default, list | dict) else default
    return field(default=given, converter=_number if kind is float or type(default) is float else None, validator=_check, metadata=metadata)  # fmt: skip


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check(record: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is attribute.default:
        return  # most are, and every compile call makes a record
    wanted = expected(attribute, value)
    if wanted:
        raise type(record).error(f"{attribute.name}={value!r}: expected {wanted}", hint=attribute.metadata["help"])


def expected(attribute: Attribute[Any], value: Any) -> str:
    """What the option takes, where `value` is not that; else nothing."""
    facts = attribute.metadata
    kind, choices, accepts = facts["kind"], facts["choices"], facts["accepts"]
    if value is None and facts["optional"]:
        return ""
    if choices and not any(value == choice and type(value) is type(choice) for choice in choices):
        return " or ".join(map(repr, choices))
    if choices and accepts is None:
        return ""
    if not isinstance(value, (kind, int) if kind is float else kind) or (
        isinstance(value, bool) and kind not in (bool, object)
    ):
        return _KINDS.get(kind, kind.__name__) + (" or none" if facts["optional"] else "")
    return "" if accepts is None or accepts[0](value) else str(accepts[1])


def parse(attribute: Attribute[Any], text: str) -> Any:
    """A variable's text as a value, which may be a wrong one. Booleans are 1 or 0, true or false, yes or no, on or off."""
    kind, word = attribute.metadata["kind"], text.strip().lower()
    if word == "none" and attribute.metadata["optional"]:
        return None
    named = {str(choice).lower(): choice for choice in attribute.metadata["choices"]}
    if word in named:
        return named[word]
    if kind is bool:
        return _WORDS.get(word, text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


@frozen
class OptionRecord:
    """Base of a package's options. `prefix` is what its variables begin with, `error` what a wrong value raises."""

    prefix: ClassVar[str] = "FLAMBEAU_"
    error: ClassVar[type[Any]] = ValueError

    @classmethod
    def variables(cls) -> dict[str, Attribute[Any]]:
        """Each environment variable and the field that it sets; of two of one field the first goes before."""
        found = {}
        for attribute in fields(cls):
            for name in variables_of(cls, attribute):
                found[name] = attribute
        return found

    @classmethod
    def from_environment(cls: type[_Record], environment: Mapping[str, str] | None = None, **overrides: Any) -> _Record:
        """Defaults, overridden by the fields' variables, overridden by keyword arguments.

        Raises the package's `OptionError` for a value that does not fit and names its variable. A variable that is set to nothing counts as not
        set.
        """
        return cls(**{**cls.read(os.environ if environment is None else environment), **overrides})

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> dict[str, Any]:
        """The fields that variables set, with their values."""
        values: dict[str, Any] = {}
        for variable, attribute in _variables(cls).items():
            text = environment.get(variable, "")
            if text and attribute.name not in values:
                values[attribute.name] = value = parse(attribute, text)
                wanted = expected(attribute, value)
                if wanted:
                    raise cls.error(f"{variable}={text!r}: expected {wanted}", hint=attribute.metadata["help"])
        return values

    def with_options(self: _Record, options: Mapping[str, Any] | None) -> _Record:
        """A copy with `options` set; raises the package's `OptionError` for a name or value that does not exist."""
        if not options:
            return self
        known = {attribute.name for attribute in fields(type(self))}
        for name in options:
            if name not in known:
                raise type(self).error(
                    f"there is no option {name!r}", hint=f"the options are {', '.join(sorted(known))}"
                )
        return evolve(self, **options)

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The options that change what is generated."""
        return tuple((o.name, getattr(self, o.name)) for o in fields(type(self)) if o.metadata["key"])


_VARIABLES: dict[type, dict[str, Attribute[Any]]] = {}


def _variables(record: type[OptionRecord]) -> dict[str, Attribute[Any]]:
    found = _VARIABLES.get(record)
    if found is None:
        found = _VARIABLES[record] = record.variables()
    return found


def name_of(attribute: Attribute[Any]) -> str:
    """The name under which users write an option; nothing where they do not."""
    user = attribute.metadata["user"]
    return user if isinstance(user, str) else attribute.name if user else ""


def variables_of(record: type[OptionRecord], attribute: Attribute[Any]) -> list[str]:
    """The environment variables of a field, the one that goes first first.

    Users' options are set by `FLAMBEAU_<OPTION>`, without `triton.`, as torch.compile's variables are named; every other field by the package's
    prefix and its own name. A field that names its variable has that instead of the former.
    """
    variable, name = attribute.metadata["variable"], name_of(attribute)
    if variable is False:
        return []
    own = record.prefix + attribute.name.upper()
    first = own
    if isinstance(variable, str):
        first = variable
    elif name:
        first = "FLAMBEAU_" + name.removeprefix("triton.").replace(".", "_").upper()
    return [first] if first == own or record.prefix == "FLAMBEAU_" else [first, own]
