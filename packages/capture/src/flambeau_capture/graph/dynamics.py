"""`Dynamics`: which sizes and numbers of a function's inputs have changed from call to call.

In: the sizes of tensors and the numbers that each trace of the code meets, by the name of their source. Out: what becomes symbolic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .declared_shapes import DeclaredShapes


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
