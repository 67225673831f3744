"""Where modules are in the module that holds them all, as `named_modules` has it: `layers.3.attention`.

In: sources of modules. Out: steps from the module whose call is around a call, and paths that they make. Steps, not paths, are kept of calls: those inside of a
layer are the same in every layer, so that what is known of one call holds for others like it.

    >>> module_path(["/", "layers.3", "", "attention"])
    'layers.3.attention'
"""

from __future__ import annotations

from collections.abc import Iterable

from ..sources.source import InstanceDict, Item, Source

#: In front of a step that does not start at the module around, but at a variable that holds a module.
_FROM_ROOT = "/"


def module_step(source: Source | None, around: Source | None) -> str:
    """Where a module is in the one `around`, or in the one that the variable it comes from holds; nothing where no variable is known."""
    if source is None:
        return ""
    names: list[str] = []
    while source is not around and (held := _holder(source)) is not None:
        source, name = held
        names.append(name)
    path = ".".join(reversed(names))
    return path if source is around else _FROM_ROOT + path


def _holder(source: Source) -> tuple[Source, str] | None:
    """The module that holds the one at `source`, and the name that it has there."""
    if isinstance(source, Item) and isinstance(source.base, Item) and source.base.key == "_modules":
        table = source.base.base
        if isinstance(table, InstanceDict) and isinstance(source.key, str):
            return table.base, source.key
    return None


def module_path(steps: Iterable[str]) -> str:
    """The path at the end of some steps, the outermost first."""
    path: list[str] = []
    for step in steps:
        if step.startswith(_FROM_ROOT):
            path.clear()
        path.append(step.removeprefix(_FROM_ROOT))
    return ".".join(filter(None, path))
