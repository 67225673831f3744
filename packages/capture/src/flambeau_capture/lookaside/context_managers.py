"""Context managers of torch: grad mode, inference mode, autocast; and nn.Module's call and attributes.

In: the traced program uses them. Out: the state changes at trace time and as graph nodes; most of their Python code is simply traced,
only the native setters are replaced.
"""

from __future__ import annotations

from dis import Instruction, get_instructions
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.amp.autocast_mode

from ..captured import CallFunction
from ..class_names import class_name
from ..replacements import replaces
from ..signals import GraphBreak, TracedRaise
from ..sources.source import InstanceDict, Item, Pinned
from ..values.autocast import AutocastValue
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.inference import InferenceModeValue
from ..values.objects import ObjectValue
from ..values.subclasses import SubclassValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.frame import Place
    from ..values.base import Tracer

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
    compiled = t.attributes.get_attribute(args[0], "_compiled_call_impl")
    if compiled.python_type() is not type(None):
        return t.caller.call_through((_CALLS_COMPILED,), compiled, args[1:], kwargs)
    return _call_itself(t, args[0], args, kwargs, (_CALLS_ITSELF,))


@replaces(torch.nn.Module._call_impl)
def call_module_itself(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module._call_impl of something that is no module")
    return _call_itself(t, args[0], args, kwargs, ())


def _call_itself(t: Tracer, module: ObjectValue, args: Args, kwargs: Kwargs, above: tuple[Place, ...]) -> Value:
    """Straight to `forward` where there are no hooks, which is guarded; `above`: the calls of `nn.Module` that come before."""
    if _has_hooks(t, module):
        inner: Any = torch.nn.Module._call_impl
        always = _has_always_called_hooks(module)
        # Torch leaves out what calls those when the module raises where it is told that it is compiled: plain Python runs the frame then.
        t.frames.caught |= always
        t.frames.left_out = above
        try:
            return t.caller.inline_function(FunctionValue(inner, Pinned(inner)), inner, args, kwargs)
        except TracedRaise as error:
            if not always:
                raise
            told = f"{class_name(error.value.python_type())} is raised in a module with a hook that is called even then"
            raise GraphBreak("unsupported-call", told) from error
    forward = t.attributes.get_attribute(module, "forward")
    trace = partial(t.caller.call_through, (_CALLS_FORWARD, *above), forward, args[1:], kwargs)
    with t.graph.call_of(class_name(module.python_type()), module.source):
        return t.repeated_calls.call(module, args[1:], kwargs, trace)


@replaces(torch.nn.Module.__getattr__)
def module_getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Parameters, buffers and submodules."""
    module, name = args
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__getattr__ of something that is no module")
    return t.attributes.module_getattr(module, t.folder.concrete(name))


@replaces(torch.nn.Module.__setattr__)
def module_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Stored by `nn.Module`'s rule, after the graph; the rule itself is traced where it changes one of the module's tables."""
    module, name, value = args
    if not isinstance(module, ObjectValue):
        raise GraphBreak("unsupported-call", "nn.Module.__setattr__ of something that is no module")
    registers = issubclass(value.python_type(), (torch.nn.Module, torch.nn.Parameter)) or _is_buffer(value)
    registers = registers or (isinstance(value, SubclassValue) and value.is_parameter(t))
    if registers or t.attributes.is_registered(module, t.folder.concrete(name)):
        rule: Any = torch.nn.Module.__setattr__
        return t.caller.inline_function(FunctionValue(rule, Pinned(rule)), rule, args, kwargs)
    t.attributes.plain_store(module, t.folder.concrete(name), value)
    return ConstantValue(None)


def _is_buffer(value: Value) -> bool:
    """Whether it is an `nn.Buffer`, which is a tensor with a mark."""
    return isinstance(getattr(value, "tensor", None), torch.nn.Buffer)


def _has_hooks(t: Tracer, module: ObjectValue) -> bool:
    for name in _GLOBAL_HOOKS:
        table = _MODULE_NAMESPACE.get(name)
        if table:
            return True
        if not t.config.skip_nnmodule_hook_guards and table is not None:
            t.guards.length(Item(Pinned(_MODULE_NAMESPACE), name), 0)
    if module.object is MISSING:
        return any(name in module.attrs and t.attributes.get_attribute(module, name).truth(t) for name in _HOOKS)
    for name in _HOOKS:
        if module.object.__dict__.get(name):
            return True
        guarded = not t.config.skip_nnmodule_hook_guards
        if guarded and module.source is not None and not t.guards.is_trusted(module.source):
            t.guards.length(Item(InstanceDict(module.source), name), 0)
    return False


def _has_always_called_hooks(module: ObjectValue) -> bool:
    """Whether some are registered with `always_call`; each is among the forward hooks too, whose guards are theirs."""
    own = None if module.object is MISSING else module.object.__dict__.get("_forward_hooks_always_called")
    return bool(own or _MODULE_NAMESPACE.get("_global_forward_hooks_always_called"))


def autocast_effects(t: Tracer) -> tuple[CallFunction, ...]:
    """Close in the graph what is still in force at its end, and have it done for real after the graph."""
    for mode in reversed(t.graph.open_modes):
        t.graph.derive(torch.amp.autocast_mode._exit_autocast, (mode.node,), None)
    return tuple(
        CallFunction(t.wrapper.wrap_pinned(_enter_autocast if mode.how == "enter" else _leave_autocast), (mode.value,))
        for mode in t.graph.open_modes
    )


def _enter_autocast(context: Any) -> None:
    torch.autocast.__enter__(context)  # what a class derived from it does besides, the trace has seen


def _leave_autocast(context: Any) -> None:
    torch.autocast.__exit__(context, None, None, None)


@replaces(torch.autocast.__enter__)
def enter_autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autocast.__enter__(context)`."""
    return _known(args[0]).call_method(t, "__enter__", (), {})


@replaces(torch.autocast.__exit__)
def exit_autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autocast.__exit__(context, ...)`."""
    return _known(args[0]).call_method(t, "__exit__", (), {})


def _known(value: Value) -> AutocastValue:
    if not isinstance(value, AutocastValue):
        raise GraphBreak("unsupported-call", f"entering or leaving {value.describe()}")
    return value


@replaces(torch.autocast)
def make_autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autocast(...)`."""
    names = ("device_type", "dtype", "enabled", "cache_enabled")
    given = {
        **{name: t.folder.concrete(value) for name, value in zip(names, args, strict=False)},
        **{k: t.folder.concrete(v) for k, v in kwargs.items()},
    }
    real = torch.autocast(**given)
    return AutocastValue((real.device, real.fast_dtype, real._enabled, real._cache_enabled))


@replaces(torch._C._InferenceMode)
def inference_mode(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """What a `torch.inference_mode` makes when it is entered."""
    enabled = t.folder.concrete(args[0]) if len(args) == 1 and not kwargs else None
    if type(enabled) is not bool:
        raise GraphBreak("unsupported-call", "a guard of inference mode with other arguments than one truth value")
    return InferenceModeValue(enabled)
