"""Every environment variable that flambeau reads, with what it sets.

In: the packages' records of options, and a table of the variables that are no option. Out: `variables()`, from which `docs/guide/environment.md` is
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs
from attrs import frozen

from flambeau_runtime.option_fields import name_of, variables_of

from .options import OPTIONS, RECORDS

OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "FLAMBEAU_LOGS": "what is logged: names of artifacts with commas between, `+name` for details, see the guide on logs",
        "FLAMBEAU_VERBOSE": "1: tracebacks show our own frames too, and commands show theirs",
    }
)
"""Of variables that no option follows from."""


@frozen
class Variable:
    """One variable.

    Attributes:
        name: as it stands in the environment.
        sets: the option, setting or field that it sets; empty where it is none.
        package: who reads it.
        default: what holds without it, as text.
        help: one sentence.
    """

    name: str
    sets: str
    package: str
    default: str
    help: str


def variables() -> list[Variable]:
    """All of them, by name. An option of a package has two spellings, of which the one with the package in it goes last."""
    found = [Variable(name, "", "api", "", text) for name, text in OTHERS.items()]
    for package, record in RECORDS.items():
        for option in attrs.fields(record):
            name = name_of(option) or option.name
            default = OPTIONS[name].default if name in OPTIONS else option.default
            for variable in variables_of(record, option):
                found.append(Variable(variable, name, package, repr(default), option.metadata["help"]))
    return sorted(found, key=lambda variable: variable.name)
