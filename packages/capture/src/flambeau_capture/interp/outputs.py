"""Which computed values the rest of the frame needs: they become outputs of the graph.

In: the values that must exist after the graph ran. Out: tensors and symbols without a source, in order of first need. Found by a dry
run of `rebuild`, so that this never disagrees with the code that is written later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..signals import GraphBreak
from ..values.lazy import LazyValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..values.base import Value


class NeededOutputs:
    """An emitter that writes nothing and remembers what was asked for."""

    def __init__(self) -> None:
        self.outputs: dict[int, Value] = {}
        self._seen: dict[int, Value] = {}

    def value(self, value: Value) -> None:
        """As `Emitter.value`."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, LazyValue) and value.realised is not None:
            self.value(value.realised)
        elif _is_computed(value):
            self.outputs[id(value)] = value
            for attribute in getattr(value, "attrs", {}).values():
                if attribute is not None:
                    self.value(attribute)
        else:
            try:
                value.rebuild(self)
                value.fill(self)
            except NotImplementedError:
                raise GraphBreak("cannot-rebuild", f"{value.describe()} cannot be rebuilt after the graph") from None

    def temp(self) -> str:
        """As `Emitter.temp`."""
        return ""

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _is_computed(value: Value) -> bool:
    if isinstance(value, SymbolicValue):
        return value.source is None and value.operation is None
    return isinstance(value, TensorValue) and value.source is None


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def needed_outputs(values: Iterable[Value]) -> list[Value]:
    """The tensors and symbols that have to come out of the graph."""
    emitter = NeededOutputs()
    for value in values:
        emitter.value(value)
    return list(emitter.outputs.values())
