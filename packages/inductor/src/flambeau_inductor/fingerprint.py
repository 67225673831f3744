"""Whether two bodies are one: what makes layers that are written once and traced several times one program.

In: a ``GraphModule``. Out: a hashable value. Nothing is computed, no guard is added.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import fx

#: What nodes carry besides their fakes that compilation goes by.
_NOTES = ("backward", "checks", "raises", "refused", "static")


def fingerprint(module: fx.GraphModule) -> tuple[Any, ...]:
    """Equal for modules that compute the same on values of the same layouts, whatever their nodes are called."""
    numbers = {node: number for number, node in enumerate(module.graph.nodes)}

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return ("node", numbers[value])
        if isinstance(value, tuple | list):
            return tuple(map(argument, value))
        if isinstance(value, slice):
            return argument((value.start, value.stop, value.step))
        if isinstance(value, dict):
            return tuple((key, argument(part)) for key, part in value.items())
        # Neither equality nor a hash of its own can be trusted: 1, 1.0 and True are equal.
        return (type(value).__name__, repr(value))

    def target(node: fx.Node) -> Any:
        if node.op != "get_attr":
            return node.target if node.op == "call_function" else None
        found = attrgetter(str(node.target))(module)
        return fingerprint(found) if isinstance(found, fx.GraphModule) else found

    return tuple(
        (
            node.op,
            _Same(target(node)),
            argument(node.args),
            argument(node.kwargs),
            _described(node.meta.get("val")),
            tuple(note for note in _NOTES if node.meta.get(note)),
        )
        for node in module.graph.nodes
    )


class _Same:
    """Fingerprints compare by what they hold, everything else by identity; the object is kept, so that no other gets its place."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value) if isinstance(self.value, tuple) else id(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        whole = isinstance(self.value, tuple) and isinstance(other.value, tuple)
        return self.value == other.value if whole else self.value is other.value


def _described(val: Any) -> Any:
    if isinstance(val, torch.Tensor):
        strided = val.layout is torch.strided
        offset = (str(val.storage_offset()), *map(str, val.stride())) if strided else ()
        return (tuple(map(str, val.shape)), offset, val.dtype, val.device, val.layout)
    if isinstance(val, tuple | list):
        return tuple(map(_described, val))
    return (type(val).__name__, str(val))
