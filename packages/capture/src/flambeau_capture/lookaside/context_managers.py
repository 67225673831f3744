"""Context managers of torch: grad mode, inference mode, autocast; and nn.Module's call and attributes.

In: the traced program uses them. Out: the state changes at trace time and as graph nodes; most of their Python code is simply traced,
only the native setters are replaced.
"""

from __future__ import annotations

from dis import Instruction, get_instructions
from typing import TYPE_CHECKING, Any

import torch
import torch.amp.autocast_mode
from attrs import frozen

from ..graph.captured import CallFunction
from ..interp.signals import GraphBreak
from ..sources.source import InstanceDict, Item, Pinned
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.objects import ObjectValue
from .registry import replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.frame import Place
    from ..interp.tracer import Tracer
    from ..sources.source import Source

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


def _places(function: Any, name: str) -> list[Place]:
    """Where a method of `nn.Module` asks for a name."""
    found = [i for i in get_instructions(function) if i.opname.startswith("LOAD") and name in _names(i)]
    lines = [i.positions.lineno for i in found if i.positions is not None and i.positions.lineno is not None]
    return [(function.__code__.co_filename, line, _MODULE_NAMESPACE) for line in lines]


def _names(instruction: Instruction) -> Any:
    return instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)


_CALLS_COMPILED = _places(torch.nn.Module._wrapped_call_impl, "_compiled_call_impl")[-1]
_CALLS_ITSELF = _places(torch.nn.Module._wrapped_call_impl, "_call_impl")[0]
_CALLS_FORWARD = _places(torch.nn.Module._call_impl, "forward_call")[0]


@replaces(torch.nn.Module.__call__)
def call_module(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`module(...)`: what stands in the place of its call (`nn.Module.compile` puts something there), else the call itself."""
    if not isinstance(args[0], ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__call__ of something that is no module")
    compiled = t.get_attribute(args[0], "_compiled_call_impl")
    if compiled.python_type() is not type(None):
        return t.call_through((_CALLS_COMPILED,), compiled, args[1:], kwargs)
    return _call_itself(t, args[0], args, kwargs, (_CALLS_ITSELF,))


@replaces(torch.nn.Module._call_impl)
def call_module_itself(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module._call_impl of something that is no module")
    return _call_itself(t, args[0], args, kwargs, ())


def _call_itself(t: Tracer, module: ObjectValue, args: Args, kwargs: Kwargs, above: tuple[Place, ...]) -> Value:
    """Straight to `forward` where there are no hooks, which is guarded; `above`: the calls of `nn.Module` that come before."""
    if _has_hooks(t, module):
        if _has_always_called_hooks(module):
            # What calls them when the module raises is left out by torch where it is told that it is compiled.
            raise GraphBreak("unsupported-call", "a module with a hook that is called even when the module raises")
        inner: Any = torch.nn.Module._call_impl
        t.left_out = above
        return t.inline_function(FunctionValue(inner, Pinned(inner)), inner, args, kwargs)
    return t.call_through((_CALLS_FORWARD, *above), t.get_attribute(module, "forward"), args[1:], kwargs)


@replaces(torch.nn.Module.__getattr__)
def module_getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Parameters, buffers and submodules."""
    module, name = args
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__getattr__ of something that is no module")
    return t.module_getattr(module, t.concrete(name))


@replaces(torch.nn.Module.__setattr__)
def module_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Stored by `nn.Module`'s rule, after the graph; the rule itself is traced where it changes one of the module's tables."""
    module, name, value = args
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__setattr__ of something that is no module")
    registers = issubclass(value.python_type(), (torch.nn.Module, torch.nn.Parameter)) or _is_buffer(value)
    if registers or t.is_registered(module, t.concrete(name)):
        rule: Any = torch.nn.Module.__setattr__
        return t.inline_function(FunctionValue(rule, Pinned(rule)), rule, args, kwargs)
    t.plain_store(module, t.concrete(name), value)
    return ConstantValue(None)


def _is_buffer(value: Value) -> bool:
    """Whether it is an `nn.Buffer`, which is a tensor with a mark."""
    return isinstance(getattr(value, "tensor", None), torch.nn.Buffer)


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


def _has_always_called_hooks(module: ObjectValue) -> bool:
    """Whether some are registered with `always_call`; each is among the forward hooks too, whose guards are theirs."""
    own = None if module.object is MISSING else module.object.__dict__.get("_forward_hooks_always_called")
    return bool(own or _MODULE_NAMESPACE.get("_global_forward_hooks_always_called"))


class AutocastValue(ObjectValue):
    """A `torch.autocast`: entered and left for real while tracing, and as graph nodes.

    `entered` holds, for each time it was entered by the traced program, the mode in force and its node. One from outside that was
    entered before the frame is left by going into the state it found: `outer` are the settings of that.
    """

    __slots__ = ("entered", "outer", "settings")

    def __init__(
        self,
        settings: tuple[Any, ...],
        object: Any = MISSING,
        source: Source | None = None,
        outer: tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__(torch.autocast, object, source)
        self.settings = settings
        self.outer = outer
        self.entered: list[Mode] = []

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        e.pinned(_make_autocast)
        for setting in self.settings:
            e.const(setting) if not isinstance(setting, torch.dtype) else e.pinned(setting)
        e.call(len(self.settings))

    def fill(self, e: Any) -> None:
        """Nothing: `rebuild` makes it whole."""

    def get_attribute(self, t: Tracer, name: str) -> Value:
        from ..values.builtins import BoundBuiltin

        if name in ("__enter__", "__exit__"):
            return BoundBuiltin(self, name)
        if name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
            return ConstantValue(self.settings[("device", "fast_dtype", "_enabled", "_cache_enabled").index(name)])
        if name in ("prev", "prev_fastdtype", "prev_cache_enabled"):
            raise GraphBreak("unsupported-attribute", f"{name!r} of an autocast")
        return super().get_attribute(t, name)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        raise GraphBreak("unsupported-store", f"storing {name!r} of an autocast")

    def enter(self, t: Tracer) -> None:
        """Enter, now and in the graph."""
        self.entered.append(_open(t, self, self.settings, "enter"))

    def leave(self, t: Tracer) -> None:
        """Leave, now and in the graph."""
        if self.entered:
            _close(t, self.entered.pop())
        elif self.outer is not None:
            _open(t, self, self.outer, "leave")
            self.outer = None
        else:
            raise GraphBreak("unsupported-call", "an autocast is left that was not entered")


@frozen(eq=False)
class Mode:
    """A state of autocast in force while tracing; `how` says what the program did to get there."""

    value: AutocastValue
    real: Any
    node: Any
    how: str


def _open(t: Tracer, value: AutocastValue, settings: tuple[Any, ...], how: str) -> Mode:
    real = torch.amp.autocast_mode._enter_autocast(*settings)
    mode = Mode(value, real, t.graph.derive(torch.amp.autocast_mode._enter_autocast, settings, None), how)
    t.graph.open_modes.append(mode)
    return mode


def _close(t: Tracer, mode: Mode) -> None:
    if t.graph.open_modes[-1] is not mode:
        raise GraphBreak("unsupported-call", "autocasts are not left in the order in which they were entered")
    t.graph.open_modes.pop()
    torch.amp.autocast_mode._exit_autocast(mode.real)
    t.graph.derive(torch.amp.autocast_mode._exit_autocast, (mode.node,), None)


def autocast_effects(t: Tracer) -> tuple[CallFunction, ...]:
    """Close in the graph what is still in force at its end, and have it done for real after the graph."""
    for mode in reversed(t.graph.open_modes):
        t.graph.derive(torch.amp.autocast_mode._exit_autocast, (mode.node,), None)
    return tuple(
        CallFunction(t.wrap_pinned(_enter_autocast if mode.how == "enter" else _leave_autocast), (mode.value,))
        for mode in t.graph.open_modes
    )


def _enter_autocast(context: Any) -> None:
    context.__enter__()


def _leave_autocast(context: Any) -> None:
    context.__exit__(None, None, None)


def wrap_autocast(t: Tracer, obj: torch.autocast, source: Source) -> AutocastValue:
    """An autocast from outside, its settings guarded; those of the state around it too, where it has been entered."""
    names = ("device", "fast_dtype", "_enabled", "_cache_enabled")
    before = ("prev_fastdtype", "prev", "prev_cache_enabled")
    if not vars(obj).keys() >= {*names, *(before if "prev" in vars(obj) else ())}:
        raise GraphBreak("unsupported-argument", "an autocast that is being made or entered")
    found = _read(t, obj, source, names)
    outer = (obj.device, *_read(t, obj, source, before)) if "prev" in vars(obj) else None
    if outer is None:
        t.guards.absent(InstanceDict(source), "prev")
    return AutocastValue(found, obj, source, outer)


def _read(t: Tracer, obj: Any, source: Source, names: Sequence[str]) -> tuple[Any, ...]:
    for name in names:
        t.guards.constant(Item(InstanceDict(source), name), getattr(obj, name))
    return tuple(getattr(obj, name) for name in names)


@replaces(torch.autocast.__enter__)
def enter_autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autocast.__enter__(context)`."""
    return enter_or_leave(t, _known(args[0]), "__enter__")


@replaces(torch.autocast.__exit__)
def exit_autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autocast.__exit__(context, ...)`."""
    return enter_or_leave(t, _known(args[0]), "__exit__")


def _known(value: Value) -> AutocastValue:
    if not isinstance(value, AutocastValue):
        raise GraphBreak("unsupported-call", f"entering or leaving {value.describe()}")
    return value


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
