"""How long what a program makes lives, where it can tell.

In: weak references that are made and asked. Out: a reference; a break where a frame that is cut would hold an object for another time than plain Python's does.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..bytecode.liveness import live_locals, written_locals
from ..library import weakref
from ..signals import GraphBreak
from ..values.base import MISSING
from ..values.builtins import ClassValue
from ..values.functions import FunctionValue
from ..values.objects import ObjectValue
from ..values.references import ReferenceValue
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..values.base import Value

_HELD_OUTSIDE = (ObjectValue, FunctionValue, ClassValue)


class Lifetimes(Part):
    """Lifetimes of objects that the program can tell."""

    def reference(self, cls: type, args: Sequence[Value]) -> Value:
        """`weakref.ref(obj, callback)`, of an object that somebody else than a variable of the frame holds."""
        held = args[0].realise(self.t) if args else None
        real = held.real() if held is not None else MISSING
        if (
            held is None
            or cls is not weakref.ref
            or len(args) > 2
            or not isinstance(held, _HELD_OUTSIDE)
            or real is MISSING
        ):
            raise self.weakly_held(args)
        if not type(real).__weakrefoffset__ or self._names_of(held):
            raise self.weakly_held(args)
        self.t.guards.identity(held.source, real)
        callback = args[1].realise(self.t) if len(args) > 1 else None
        return ReferenceValue(held, None if callback is None or callback.python_type() is types.NoneType else callback)

    def _names_of(self, held: Value | None) -> set[str]:
        """The variables of the frame that hold it."""
        return {name for name, value in self.t.frames.root.locals.items() if getattr(value, "realised", value) is held}

    def weakly_held(self, args: Sequence[Value]) -> GraphBreak:
        """The break where a weak reference is made. Plain Python's variable holds the object on, where a cut frame keeps only what it still reads; and what
        is called when the object ends runs where the last variable lets go of it."""
        held = args[0].realise(self.t) if args else None
        names = self._names_of(held)
        tells = len(args) > 1 and args[1].realise(self.t).python_type() is not types.NoneType
        is_read = not names.isdisjoint(live_locals(self.t.frames.root.instructions)[self.t.frames.root.index + 1])
        return GraphBreak("unsupported-call", "making a weak reference", whole=bool(names) and (tells or not is_read))

    def lets_go_of(self, found: Any) -> bool:
        """Whether the frame deletes or overwrites a variable that holds this object, which may then be gone."""
        names = {name for name, value in self.t.info.locals.items() if value is found}
        return bool(names) and not names.isdisjoint(written_locals(self.t.frames.root.instructions))
