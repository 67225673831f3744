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
        "FLAMBEAU_LOGS_OUT": "a file to which logs are written, beside standard error",
        "FLAMBEAU_LOGS_FORMAT": "how a line of the logs looks: `short`, `json`, or a format of the module `logging`",
        "FLAMBEAU_LOGS_TRACE_ID_FILTER": "ids of compiles, with commas between: only their events are shown",
        "FLAMBEAU_VERIFY": "how many calls of what is compiled are compared with eager, as the option `verify` says it",
        "FLAMBEAU_OVERRIDE_BACKENDS": "another backend for some graphs, by number: see the guide on debugging",
        "FLAMBEAU_REPRO_AFTER": "dynamo: captured graphs that fail are kept, each with a script that runs it",
        "FLAMBEAU_REPRO_LEVEL": "1: the script; 2: the graph for `flambeau minify` too; 3: every graph, failing or not; 4: results are compared as well; 2 where it is not set",
        "FLAMBEAU_REPRO_DIR": "where graphs are kept; `flambeau_repro` where it is not set",
        "FLAMBEAU_REPRO_TOLERANCE": "the largest difference from eager that level 4 accepts",
        "FLAMBEAU_REPRO_FORWARD_ONLY": "1: level 4 does not compare gradients",
        "FLAMBEAU_REPRO_IGNORE_NON_FP": "1: level 4 does not compare tensors of integers and booleans",
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
