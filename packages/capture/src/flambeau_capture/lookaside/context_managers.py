"""Context managers of torch: grad mode, inference mode, autocast; and nn.Module's call.

In: the traced program uses them. Out: the state changes at trace time and as graph nodes; most of their Python code is simply traced,
only the native setters are replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.amp.autocast_mode

from ..interp.signals import GraphBreak
from ..sources.source import InstanceDict, Item, Pinned
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.objects import ObjectValue
from .registry import replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
_MODULE_NAMESPACE = vars(torch.nn.modules.module)


@replaces(torch.nn.Module.__call__, torch.nn.Module._call_impl)
def call_module(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`module(...)`: straight to `forward` where there are no hooks, which is guarded."""
    module = args[0]
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__call__ of something that is no module")
    if _has_hooks(t, module):
        inner: Any = torch.nn.Module._call_impl
        return t.inline_function(FunctionValue(inner, Pinned(inner)), inner, args, kwargs)
    return t.call(t.get_attribute(module, "forward"), args[1:], kwargs)


@replaces(torch.nn.Module.__getattr__)
def module_getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Parameters, buffers and submodules."""
    module, name = args
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__getattr__ of something that is no module")
    return t.module_getattr(module, t.concrete(name))


@replaces(torch.nn.Module.__setattr__)
def module_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Stored by `nn.Module`'s rule, after the graph."""
    module, name, value = args
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__setattr__ of something that is no module")
    t.plain_store(module, t.concrete(name), value)
    return ConstantValue(None)


def _has_hooks(t: Tracer, module: ObjectValue) -> bool:
    for name in _GLOBAL_HOOKS:
        table = _MODULE_NAMESPACE.get(name)
        if table:
            return True
        if t.config.guard_module_hooks and table is not None:
            t.guards.length(Item(Pinned(_MODULE_NAMESPACE), name), 0)
    if module.object is MISSING:
        return any(name in module.attrs and t.truth(t.get_attribute(module, name)) for name in _HOOKS)
    for name in _HOOKS:
        if module.object.__dict__.get(name):
            return True
        if t.config.guard_module_hooks and module.source is not None and not t.guards.is_trusted(module.source):
            t.guards.length(Item(InstanceDict(module.source), name), 0)
    return False


class AutocastValue(ObjectValue):
    """A `torch.autocast` made while tracing: entered for real and as graph nodes."""

    __slots__ = ("entered", "node", "settings")

    def __init__(self, settings: tuple[Any, ...]) -> None:
        super().__init__(torch.autocast)
        self.settings = settings
        self.entered: list[Any] = []
        self.node: Any = None

    def rebuild(self, e: Any) -> None:
        e.pinned(_make_autocast, "autocast")
        for setting in self.settings:
            e.const(setting) if not isinstance(setting, torch.dtype) else e.pinned(setting, "dtype")
        e.call(len(self.settings))

    def fill(self, e: Any) -> None:
        """Nothing: `rebuild` makes it whole."""

    def get_attribute(self, t: Tracer, name: str) -> Value:
        from ..values.builtins import BoundBuiltin

        if name in ("__enter__", "__exit__"):
            return BoundBuiltin(self, name)
        return super().get_attribute(t, name)

    def enter(self, t: Tracer) -> None:
        """Enter, now and in the graph."""
        mode = torch.amp.autocast_mode._enter_autocast(*self.settings)
        self.entered.append((mode, t.graph.derive(torch.amp.autocast_mode._enter_autocast, self.settings, None)))
        t.graph.open_modes.append(mode)

    def leave(self, t: Tracer) -> None:
        """Leave, now and in the graph."""
        mode, node = self.entered.pop()
        torch.amp.autocast_mode._exit_autocast(mode)
        t.graph.open_modes.remove(mode)
        t.graph.derive(torch.amp.autocast_mode._exit_autocast, (node,), None)


def _make_autocast(device: str, dtype: Any, enabled: bool, cache_enabled: bool) -> Any:
    return torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


@replaces(torch.autocast)
def make_autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autocast(...)`."""
    names = ("device_type", "dtype", "enabled", "cache_enabled")
    given = {
        **{name: t.concrete(value) for name, value in zip(names, args, strict=False)},
        **{k: t.concrete(v) for k, v in kwargs.items()},
    }
    real = torch.autocast(**given)
    return AutocastValue((real.device, real.fast_dtype, real._enabled, real._cache_enabled))


def enter_or_leave(t: Tracer, owner: AutocastValue, name: str) -> Value:
    """`__enter__` and `__exit__`."""
    if name == "__enter__":
        owner.enter(t)
        return owner
    owner.leave(t)
    return ConstantValue(False)


@replaces(torch._C._InferenceMode)
def inference_mode(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "inference_mode inside the function")
