"""`ClassMembers`: what classes have under a name, guarded; and what of torch's the program replaced.

In: classes and names. Out: the raw member and where it is, with a guard that it stays; a break where one of torch's own is the program's now.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from ..class_names import HEAP_TYPE, class_qualname
from ..patches import is_as_imported
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.members import mro_lookup
from ..values.tensor import TensorValue
from ..values.trust import is_torch_member, is_trusted_namespace
from .callees import callees
from .part import Part


class ClassMembers(Part):
    """Look-ups on classes."""

    def class_lookup(self, cls: type, name: str) -> Any:
        """The raw class attribute, `MISSING` when there is none."""
        return self.class_member(cls, name)[0]

    def class_member(self, cls: type, name: str, after: type | None = None) -> tuple[Any, Any]:
        """`mro_lookup`, with a guard that the answer stays the same."""
        if self.t.heap.members and any((base, name) in self.t.heap.members for base in cls.__mro__):
            raise GraphBreak(
                "unsupported-attribute", f"{name!r} of {class_qualname(cls)}, which was stored before in the same frame"
            )
        found, owner = mro_lookup(cls, name, after)
        self.t.guards.member(cls, name, after, found, owner)
        kind = type(found)
        if kind.__flags__ & HEAP_TYPE and found is not MISSING and not is_trusted_namespace(kind):
            # Whether it is a descriptor, and what it then does: a program may say so later.
            for method in ("__get__", "__set__", "__delete__"):
                self.t.guards.member(kind, method, None, *mro_lookup(kind, method))
        return found, owner

    def patched_member(self, cls: type, name: str) -> Any:
        """What a program put under this name of one of torch's classes in place of torch's own, else None; guarded either way."""
        found, owner = self.class_member(cls, name)
        is_own = found is MISSING or (is_torch_member(found) and is_as_imported(owner, name, found))
        return None if is_own else found

    def patched_callee(self, function: types.FunctionType) -> str | None:
        """A name by which a function of torch calls what is the program's own: plain Python calls that, a node does not."""
        called = callees(function).names if self.t.graph.patches else ()
        return next((patch.name for patch in self.t.graph.patches if (patch.owner, patch.name) in called), None)

    def note_callees(self, function: types.FunctionType) -> None:
        """Guard what a function of torch calls by name."""
        patched = self.patched_callee(function)
        if patched is not None:
            raise GraphBreak("unsupported-call", f"{function.__qualname__} calls {patched}, which is the program's own")
        called = callees(function)
        self.t.guards.callees(called.members, called.bindings)

    def refuse_patched(self, value: Value, name: str) -> None:
        """Break where the tensor's class has a member of the program's, or torch's own calls one; guarded either way."""
        if not isinstance(value, TensorValue):
            return
        if self.patched_member(value.tensor_type, name) is not None:
            raise GraphBreak("unsupported-call", f"Tensor.{name} is the program's own")
        own = getattr(torch.Tensor, name, None)
        if type(own) is types.FunctionType:
            self.note_callees(own)
