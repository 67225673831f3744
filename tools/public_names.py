"""The public names of the packages and their signatures, as text.

In: `__all__` of the packages' public modules. Out: what `generate_docs.py` keeps as `packages/<package>/public-names.txt` and compares, so that no public name
changes without a line in the changelog beside it.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

#: Package -> its public modules.
MODULES = {
    "api": ("flambeau", "flambeau.compiler", "flambeau.errors", "flambeau.inductor", "flambeau.testing"),
    "autograd": ("flambeau_autograd",),
    "capture": ("flambeau_capture",),
    "inductor": ("flambeau_inductor",),
    "runtime": ("flambeau_runtime",),
}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
#: What a set prints has no order of its own.
_SET = re.compile(r"\{([^{}:]*)\}")


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    in_order = _SET.sub(lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", text)
    return _ADDRESS.sub("", in_order)


def _members(kind: type) -> Iterator[str]:
    """Public attributes that the class itself defines."""
    if issubclass(kind, enum.Enum):
        yield from (f"{item.name} = {item.value!r}" for item in kind)
        return
    fields = [item.name for item in getattr(kind, "__attrs_attrs__", ())]
    fields += [item.name for item in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    yield from (name for name in fields if not name.startswith("_"))
    for name, value in sorted(vars(kind).items()):
        if name.startswith("_") or name in fields:
            continue
        if isinstance(value, property):
            yield f"{name} (property)"
        elif isinstance(value, classmethod | staticmethod):
            yield f"{name}{_signature(getattr(kind, name))}"
        elif inspect.isfunction(value):
            yield f"{name}{_signature(value)}"


def _lines(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        called = "" if issubclass(value, BaseException) else _signature(value)
        yield f"class {name}{f'({bases})' if bases else ''}{f': {called}' if called else ''}"
        yield from (f"    {member}" for member in _members(value))
    elif callable(value):
        yield f"{name}{_signature(value)}"
    elif inspect.ismodule(value):
        yield f"{name} (module)"
    elif name != "__version__":
        yield f"{name}: {type(value).__name__}"


def text_of(package: str) -> str:
    """All public names of a package."""
    lines = [
        "# Written by tools/generate_docs.py. A change here is a change of what users rely on: say it in the folder changes."
    ]
    for module_name in MODULES[package]:
        module = importlib.import_module(module_name)
        lines += ["", f"[{module_name}]"]
        for name in sorted(module.__all__):
            lines += _lines(name, getattr(module, name))
    return "\n".join(lines) + "\n"
