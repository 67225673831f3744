"""What commands run for the user: scripts, and functions named on the command line.

In: `script.py` with its words, `model.py:make` or `package.module:make`. Out: the script, run as `python` runs it; the function. Whatever is wrong with them is a `BadInput`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..scripts import run_as_main
from .failures import BadInput, raised

_MODULE = "__flambeau_program__"


def run_script(path: str, words: Sequence[str]) -> None:
    """Run a script as the main program, in this process. That it ends with `sys.exit()` is fine, with another status than 0 it is not."""
    if not Path(path).is_file():
        raise BadInput(f"there is no file {path!r}")
    try:
        run_as_main(path, words)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise BadInput(f"{path} ended with {end.code!r}") from None
    except Exception as error:
        raise raised(path, error) from error


def arguments_of(text: str) -> dict[str, Any]:
    """What `--arguments` names: those of `flambeau.compile`, as a JSON object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadInput(f"--arguments is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f"--arguments is no JSON object: {text}")
    return found


def function_named(target: str) -> Callable[..., Any]:
    """The function that `FILE.py:NAME` or `MODULE:NAME` stands for; names with dots are looked up step by step."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise BadInput(f"{target!r} names no function: write model.py:make or package.module:make")
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in vars(found) if callable(getattr(found, each)) and not each.startswith("_")]
            nearest = difflib.get_close_matches(part, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; it has {', '.join(known)}" if known else ""
            raise BadInput(f"there is no {part!r} in {place}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise BadInput(f"{target} is no function but of type {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
                raise BadInput(f"there is no module {place!r} here; a file ends with .py") from None
            raise raised(f"importing {place}", error) from error
        except Exception as error:
            raise raised(f"importing {place}", error) from error
    if not Path(place).is_file():
        raise BadInput(f"there is no file {place!r}")
    sys.path.insert(0, str(Path(place).absolute().parent))
    spec = importlib.util.spec_from_file_location(_MODULE, Path(place).absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # what pickles and dataclasses look up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise raised(f"importing {place}", error) from error
    return module


def made_by(make: Callable[..., Any], target: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """What a function without arguments returns: a callable and its arguments, `(model, args)` or `(model, args, kwargs)`."""
    try:
        found = make()
    except Exception as error:
        raise raised(f"{target}()", error) from error
    if not isinstance(found, tuple) or len(found) not in (2, 3) or not callable(found[0]):
        raise BadInput(f"{target}() has to return (model, args) or (model, args, kwargs), not {_kind(found)}")
    args, kwargs = found[1], found[2] if len(found) == 3 else {}
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, dict):
        raise BadInput(f"{target}() has to return a tuple of arguments and a dict of named ones, not {_kind(found)}")
    return found[0], tuple(args), kwargs


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return type(value).__name__
