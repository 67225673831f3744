"""Python's ints and floats that a program changes from call to call, as inputs of the graph.

In: a number, or a tuple of numbers, and its source. Out: a symbolic number where it has changed so far, where it is one of those that change
as a rule (what a loop gives, the options of an optimizer), or where all are to be symbolic; None where it is to be a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..errors import DynamicShapeError
from ..graph import shapes
from ..graph.dimension_marks import STATIC_MARK, named
from ..guards.paths import module_above
from ..signals import GraphBreak
from ..sources.arguments import is_item
from ..sources.source import Item, Step
from ..values.constants import ConstantValue
from ..values.symbolic import SymbolicValue, formula_of_input
from .part import Part

if TYPE_CHECKING:
    from ..graph.declared_shapes import Declared
    from ..graph.dynamics import Dynamics
    from ..sources.source import Source
    from ..values.base import Tracer, Value

_SMALL_INT = (0, 1)


class ChangingNumbers(Part):
    """The numbers of one trace.

    Args:
        dynamics: what earlier compiles of the code taught.
        declared: what the program says itself of the frame's numbers.
    """

    def __init__(self, t: Tracer, dynamics: Dynamics, declared: Declared | None) -> None:
        super().__init__(t)
        self.dynamics = dynamics
        self.declared = declared
        #: Symbolic numbers by the identity of their source.
        self.known: dict[int, SymbolicValue] = {}
        # Dicts of options, by identity; the optimizers that have them are kept while the trace lasts.
        self._groups: set[int] = set()
        # By identity: what such dicts are reached by.
        self._options: dict[int, Source] = {}
        # Tuples whose items are looked at one by one, by the identity of their source.
        self._tuples: dict[int, tuple[Source, tuple[float, ...]]] = {}

    def meet_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the dicts that an optimizer reads its options from: schedulers write to them."""
        groups = vars(optimizer).get("param_groups")
        self._groups.update(map(id, groups) if type(groups) is list else ())

    def meet_dict(self, obj: Any, source: Source) -> None:
        """Note what a dict of options is reached by."""
        if id(obj) in self._groups:
            self._options[id(source)] = source

    def _is_option(self, obj: Any, source: Source) -> bool:
        """Whether this is a float among an optimizer's options, or in a tuple that is one of them."""
        base = source.base if isinstance(source, Step) else None
        return type(obj) is float and base is not None and (
            id(base) in self._options or (isinstance(base, Item) and id(base.base) in self._options)
        )  # fmt: skip

    def wrap(self, obj: Any, source: Source) -> Value | None:
        """The number as an input of the graph, or None."""
        kind = type(obj)
        known = self.known.get(id(source))
        if self.t.wrapper.rehearsing:
            # What is traced will be run for real when the graph is: only with the numbers that it found can it be the same then.
            return None if known is None else ConstantValue(self.t.graph.specialise(known.symbol))
        if known is not None:
            return known
        if (declared := self.declared) is not None:
            if not declared.is_symbolic(obj, source):
                return None
            made = self._input(obj, source)
            if made is None:
                raise DynamicShapeError(f"{source.name} is declared to change, and {obj} is too large for a graph")
            declared.number(obj, made.symbol, source)
            return made
        changed = self._see(obj, source)
        if (
            self.t.config.symbolic is False
            or (kind is int and self.t.config.specialize_int)
            or (kind is float and self.t.config.specialize_float)
        ):
            return None
        item = is_item(source)
        if (
            not (
                changed or item or self._is_named(obj, source) or self.t.config.symbolic or self._is_option(obj, source)
            )
            or (kind is int and obj in _SMALL_INT and not item)
            or (kind is int and self._is_constant_of_module(source))
        ):
            return None
        return self._input(obj, source)

    def _input(self, obj: float, source: Source) -> SymbolicValue | None:
        """The number as an input of the graph; None where a graph cannot take it."""
        limit = shapes.limit_of(obj)
        if limit is None:
            return None
        self.t.guards.number_is(source, type(obj), limit)
        found = shapes.number_input(self.t.graph, obj, source)
        if found is None:
            return None
        made = SymbolicValue(*found, source)
        made.formula = formula_of_input(source, obj)
        self.known[id(source)] = made
        return made

    def _is_named(self, obj: Any, source: Source) -> bool:
        """Whether the settings name a number."""
        config = self.t.config
        said = named(config.dynamic_sources, "", config.dynamic_values)
        return said is not None and said.is_symbolic(source.name, obj)

    def _is_constant_of_module(self, source: Source) -> bool:
        """Whether this is an attribute of a module whose ints are constants, as the settings or a mark on its class say."""
        info = self.t.info
        module = module_above(source, info.locals, info.globals, info.builtins)
        marked = module is not None and getattr(type(module), STATIC_MARK, False)
        return bool(marked) or (module is not None and not self.t.config.allow_unspec_int_on_nn_module)

    def _see(self, obj: Any, source: Source) -> bool:
        return self.dynamics.see_number(source.name, obj, learn=self.t.frames.break_at is None)

    def one_tuple(self, left: Value, right: Value) -> bool | None:
        """`left is right` where the items of one or both are looked at one by one; None where neither is such a tuple."""
        one, another = (self._tuples.get(id(value.source)) for value in (left, right))
        if (one is None and another is None) or left.python_type() is not right.python_type():
            return None
        if one is None or another is None:
            raise GraphBreak("unsupported-operation", "whether a tuple of numbers that change is another one")
        same = one[1] is another[1]
        (self.t.guards.alias if same else self.t.guards.distinct)(one[0], another[0])
        return same

    def in_tuple(self, obj: Any, source: Source) -> bool:
        """Whether a tuple of floats is looked at item by item: one that has changed so far, and options of an optimizer (`betas`)."""
        if type(obj) is not tuple or not obj or any(type(item) is not float for item in obj):
            return False
        config = self.t.config
        if config.symbolic is False or config.specialize_float or self.declared or self.t.wrapper.rehearsing:
            return False
        items = [Item(source, place) for place in range(len(obj))]
        # All of them are noted, also where the first has changed.
        seen = [self._see(number, item) for number, item in zip(obj, items, strict=True)]
        if not any(seen) and not any(map(self._is_option, obj, items)):
            return False
        self._tuples[id(source)] = (source, obj)
        return True
