"""What a region calls for what was given to `flambeau.compile`, and why nothing of it can be captured, where that is certain.

In: a function, method, module or any other callable. Out: `Target`. What has no Python frame of its own (a function written in C, a partial of
one) gets a frame that calls it, so that it is captured like a call of it. What runs later than its call, or holds no Python, is left as it is and told.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import fx, nn

from flambeau_capture import FrameInfo
from flambeau_capture.hook import Disabled, Region
from flambeau_capture.policy import Decision, decide

Function = Callable[..., Any]

_IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)
_WITH_FRAMES = (Region, functools._lru_cache_wrapper)
"""Called in C, and they call a function of Python."""
_SUSPENDING = (
    (inspect.iscoroutinefunction, "a coroutine function, whose body runs when it is awaited"),
    (inspect.isasyncgenfunction, "an asynchronous generator function, whose body runs when it is iterated"),
    (inspect.isgeneratorfunction, "a generator function, whose body runs when it is iterated"),
)


@frozen
class Target:
    """What is called, and why nothing of it is captured ("" where something may be)."""

    function: Function
    reason: str = ""


def target_of(model: Any) -> Target:
    """The target for an argument of `flambeau.compile`."""
    if isinstance(model, nn.Module):
        reason = "a ScriptModule, which TorchScript runs without Python" if _is_scripted(model) else ""
        return Target(_call_of(model), reason)
    if _is_scripted(model):
        return Target(model, "a ScriptFunction, which TorchScript runs without Python")
    inner = model
    while isinstance(inner, functools.partial):
        inner = inner.func
    if isinstance(inner, _IN_C):
        return Target(_framed(model))
    called = inner if inspect.isroutine(inner) else getattr(type(inner), "__call__", None)  # noqa: B004
    for suspends, reason in _SUSPENDING:
        if suspends(called):
            return Target(model, reason)
    if isinstance(inner, Disabled) or getattr(inner, "_torchdynamo_disable", False):
        return Target(model, "marked as disabled")
    code = getattr(inner, "__code__", None)
    if code is not None and decide(code) is Decision.OPAQUE:
        # A wrapper of torch's, as `torch.vmap` and `checkpoint` give: what it is for, a call of it, is captured.
        return Target(_framed(model))
    if isinstance(called, types.WrapperDescriptorType) and not isinstance(inner, _WITH_FRAMES):
        return Target(_framed(model))
    return Target(model)


def _call_of(model: nn.Module) -> Function:
    """The call of a module as the frame hook knows it: a class of its own `__call__` is called through that."""
    own = vars(type(model)).get("__call__")
    if isinstance(model, fx.GraphModule) and getattr(own, "__module__", "") == fx.graph_module.__name__:
        # It only adds to the text of errors.
        return types.MethodType(nn.Module.__call__, model)
    call: Function = model.__call__ if own is None else functools.partial(own, model)
    return call


def _is_scripted(model: Any) -> bool:
    return isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction)


_FRAME = """
def call(*args, **kwargs):
    return function(*args, **kwargs)
"""


def _framed(function: Function) -> Function:
    """A Python function that does nothing but call `function`."""
    namespace: dict[str, Any] = {"function": function}
    # Code of this package is never captured; generated code is.
    exec(compile(_FRAME, "<flambeau.compile>", "exec"), namespace)
    call: Function = namespace["call"]
    return functools.update_wrapper(call, function)


def owner_name(frame: FrameInfo) -> str:
    """The class of the module whose method a frame is; "" for any other frame."""
    owner = frame.locals.get("self")
    return type(owner).__name__ if isinstance(owner, nn.Module) else ""


def name_of(model: Any) -> str:
    """What a function or a module is called in messages."""
    return getattr(model, "__qualname__", None) or type(model).__qualname__
