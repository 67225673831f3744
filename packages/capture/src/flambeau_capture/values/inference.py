"""`InferenceModeValue`: the guard of C++ inside of a `torch.inference_mode`.

In: the traced program makes, enters and leaves it. Out: the mode in force for what is traced meanwhile, so that fakes are inference tensors and
refuse what those refuse; and nodes of the graph that enter and leave it, for `inference.py` to settle once the trace has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..library import threading
from ..signals import GraphBreak
from .base import Value
from .bound import BoundBuiltin
from .constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .base import Tracer

_GUARD: type = torch._C._InferenceMode


class _Entered(threading.local):
    """The guards that graphs of this thread, or a trace, have entered and not left, the innermost last."""

    def __init__(self) -> None:
        self.guards: list[Any] = []


_ENTERED = _Entered()


def _enter_inference_mode(enabled: bool) -> Any:
    guard = torch.autograd.grad_mode._enter_inference_mode(enabled)
    _ENTERED.guards.append(guard)
    return guard


def _leave_inference_mode(guard: Any) -> None:
    _ENTERED.guards.remove(guard)
    torch.autograd.grad_mode._exit_inference_mode(guard)


ENTER: Any = _enter_inference_mode
LEAVE: Any = _leave_inference_mode


def entered() -> int:
    """How many guards are entered."""
    return len(_ENTERED.guards)


def leave_all_but(depth: int) -> None:
    """Leave what a graph has entered that raised: its frame, which an error holds, would keep the mode."""
    while len(_ENTERED.guards) > depth:
        LEAVE(_ENTERED.guards[-1])


class InferenceModeValue(Value):
    """A `torch._C._InferenceMode` that the trace made."""

    __slots__ = ("enabled", "entered", "node")

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.enabled = enabled
        self.node: Any = None
        self.entered: Any = None

    def python_type(self) -> type:
        return _GUARD

    def truth(self, t: Tracer) -> bool:
        return True

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return BoundBuiltin(self, name) if name in ("__enter__", "__exit__") else super().get_attribute(t, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name == "__enter__" and self.entered is None:
            self._enter(t)
        elif name == "__exit__" and t.graph.open_inference[-1:] == [self]:
            self._leave(t)
        else:
            raise GraphBreak("unsupported-call", f"{name} of a guard of inference mode")
        return ConstantValue(None)

    def _enter(self, t: Tracer) -> None:
        self.entered = ENTER(self.enabled)
        self.node = t.graph.derive(ENTER, (self.enabled,), None)
        self.node.meta["grad"] = torch.is_grad_enabled()
        t.graph.open_inference.append(self)

    def _leave(self, t: Tracer) -> None:
        t.graph.open_inference.pop()
        LEAVE(self.entered)
        self.entered = None
        t.graph.derive(LEAVE, (self.node,), None).meta["grad"] = torch.is_grad_enabled()

    def rebuild(self, e: Any) -> None:
        e.pinned(_left)
        e.const(self.enabled)
        e.call(1)


def _left(enabled: bool) -> Any:
    """A guard that was entered and left: it is in force from when it is made."""
    guard = ENTER(enabled)
    LEAVE(guard)
    return guard
