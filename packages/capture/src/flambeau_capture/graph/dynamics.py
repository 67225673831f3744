"""`Dynamics`: which sizes and numbers of a function's inputs have changed from call to call.

In: the sizes of tensors and the numbers that each trace of the code meets, by the name of their source; records of other processes (`Profile`). Out:
what becomes symbolic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..library import math

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType

    from .declared_shapes import DeclaredShapes


class Profile(Protocol):
    """Where what is learnt lies between processes, and comes from other ranks."""

    def read(self, code: CodeType) -> list[Any]:
        """The records that are kept of a code object."""

    def write(self, code: CodeType, record: Mapping[str, Any]) -> None:
        """Keep a record."""

    def of_ranks(self, record: Mapping[str, Any]) -> list[Any]:
        """The records of all ranks that compile the same code now; none where ranks are not asked."""

    @property
    def asks_ranks(self) -> bool:
        """Whether ranks are asked."""


class Dynamics:
    """What earlier compiles of the code taught: the last seen values of inputs, by the name of their source."""

    def __init__(self, declared: DeclaredShapes | None = None) -> None:
        #: What the program says itself; nothing is learnt then.
        self.declared = declared
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.numbers: dict[str, Any] = {}
        self.changed_dims: dict[str, set[int]] = {}
        self.changed_numbers: set[str] = set()
        #: Whether a leaf that a trace made was led to by a result, which a graph cannot hand on.
        self.leaves_escape = False
        #: Loops over the numbers that somebody chose (code, index) that could not be shown to be loops over all numbers.
        self.over_hits_only: set[tuple[Any, int]] = set()

    def see_sizes(self, name: str, sizes: tuple[int, ...], *, learn: bool) -> frozenset[int]:
        """Note the sizes of an input; the dimensions that have changed so far."""
        old = self.sizes.get(name)
        changed = self.changed_dims.setdefault(name, set())
        if learn:
            if old is not None and len(old) == len(sizes):
                changed.update(d for d in range(len(sizes)) if old[d] != sizes[d])
            self.sizes[name] = sizes
        return frozenset(changed)

    def see_number(self, name: str, value: Any, *, learn: bool) -> bool:
        """Note a Python number; whether it has changed so far."""
        if learn:
            if name in self.numbers and self.numbers[name] != value:
                self.changed_numbers.add(name)
            self.numbers[name] = value
        return name in self.changed_numbers

    def record(self) -> dict[str, Any]:
        """What was learnt, as a value of JSON. Of what is named by an address nothing outlives the process."""
        return {
            "sizes": {name: list(sizes) for name, sizes in self.sizes.items() if _is_lasting(name)},
            "numbers": {n: number for n, number in self.numbers.items() if _is_lasting(n) and _is_plain(number)},
            "changed_dims": {n: sorted(dims) for n, dims in self.changed_dims.items() if dims and _is_lasting(n)},
            "changed_numbers": sorted(name for name in self.changed_numbers if _is_lasting(name)),
        }

    def learn(self, record: Any) -> None:
        """Learn from another record as if its compiles had come before: what is another size there has changed. What is no record is ignored."""
        if not isinstance(record, dict):
            return
        for name, sizes in _items(record.get("sizes")):
            if isinstance(sizes, list) and all(type(size) is int for size in sizes):
                self.see_sizes(name, tuple(sizes), learn=True)
        for name, number in _items(record.get("numbers")):
            if _is_plain(number):
                self.see_number(name, number, learn=True)
        for name, dims in _items(record.get("changed_dims")):
            if isinstance(dims, list) and all(type(dim) is int for dim in dims):
                self.changed_dims.setdefault(name, set()).update(dims)
        names = record.get("changed_numbers")
        self.changed_numbers.update(name for name in (names if isinstance(names, list) else ()) if type(name) is str)


def _items(table: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in table.items() if type(name) is str] if isinstance(table, dict) else []


def _is_lasting(name: str) -> bool:
    return "0x" not in name


def _is_plain(number: Any) -> bool:
    return type(number) is int or (type(number) is float and math.isfinite(number))
