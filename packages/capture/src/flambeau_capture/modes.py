"""Torch's modes that a traced program changes: the grad mode, autocast, the default device, settings; and what a graph is called in.

In: a trace that begins, or that ended. Out: the modes as they were before it; effects that set for real, after the graph, what the program
left changed; and the grad mode, and whether silently, that its graph has to be called in.

One graph may hold operations of both grad modes: it says itself which, by nodes that set the mode. What it is called in decides only
whether its results can require grad at all. So where a frame that began without gradients enables them inside, its first node
switches them off and it is called with gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.autograd.forward_ad import enter_dual_level
from torch.utils._device import DeviceContext

from .captured import CallFunction, Effect
from .graph.quiet import no_warnings
from .inference import in_inference, inference_left
from .lookaside.context_managers import autocast_effects
from .lookaside.devices import device_effects, outer_device
from .lookaside.forward_mode import in_a_level, level_left
from .lookaside.overrides import mode_stack_effects
from .lookaside.peer_settings import peer_setting_effects
from .lookaside.scopes import scope_effects
from .lookaside.settings import changed_settings, setting_effects, settings_kept
from .native import _C
from .refusal import CannotCapture
from .saved_tensor_hooks import hooks_set_aside
from .signals import GraphBreak
from .values.constants import ConstantValue
from .values.inference import ENTER as _ENTER_INFERENCE
from .values.inference import entered, leave_all_but

if TYPE_CHECKING:
    from .interp.tracer import Tracer

_SET_GRAD: Any = torch._C._set_grad_enabled
_ENTER: Any = torch.amp.autocast_mode._enter_autocast


@contextmanager
def restored_modes(tracer: Tracer) -> Iterator[None]:
    """Leave torch's global state as it was, whatever the traced program did to it."""
    tracer.initial_grad = torch.is_grad_enabled()
    tracer.devices.outer = outer_device()
    with function_modes_set_aside() as modes:
        tracer.overrides.begin(modes)
        try:
            with hooks_set_aside(), settings_kept(tracer.graph), inference_left(tracer.graph), level_left():
                yield
        finally:
            for mode in reversed(tracer.graph.open_modes):
                torch.amp.autocast_mode._exit_autocast(mode.real)
            tracer.graph.open_modes.clear()
            _SET_GRAD(tracer.initial_grad)


@contextmanager
def function_modes_set_aside() -> Iterator[list[Any]]:
    """The program's modes of `__torch_function__` are asked about nothing that the compiler does. A device in force is left so."""
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    if any(isinstance(mode, DeviceContext) for mode in modes):
        modes = []
    for _ in modes:
        torch._C._pop_torch_function_stack()
    try:
        yield modes
    finally:
        for mode in modes:
            torch._C._push_on_torch_function_stack(mode)


@contextmanager
def node_hooks_set_aside() -> Iterator[None]:
    """The program's hooks on new nodes of autograd are not shown those of fakes, nor of a joint trace."""
    taken = _C.take_node_hooks()
    try:
        yield
    finally:
        _C.put_back_node_hooks(taken)


def mode_effects(tracer: Tracer) -> tuple[Effect, ...]:
    """What has to be done for real after the graph, for the modes to be as the program left them."""
    if in_a_level():  # which ends the tangents of what comes out of a graph
        raise CannotCapture(GraphBreak("autograd-call", "a graph ends within a level of forward-mode differentiation"))
    entered = (
        *autocast_effects(tracer),
        *device_effects(tracer),
        *setting_effects(tracer),
        *mode_stack_effects(tracer),
        *scope_effects(tracer),
        *peer_setting_effects(tracer),
    )
    enabled = torch.is_grad_enabled()
    if enabled == tracer.initial_grad:
        return entered
    if tracer.overrides.outer:  # which would be asked about the setting once more
        raise CannotCapture(
            GraphBreak("unsupported-call", "gradients are switched within a mode of __torch_function__")
        )
    return (*entered, CallFunction(tracer.wrapper.wrap_pinned(_SET_GRAD), (ConstantValue(enabled),)))


def needs_gradients(tracer: Tracer) -> bool:
    """Whether a graph that began without gradients enables them; then it is made to begin without them in a call that has them."""
    if tracer.initial_grad:
        return False
    graph = tracer.graph.graph
    if not any(node.target is _SET_GRAD and node.args[0] for node in graph.nodes):
        return False
    first = next((node for node in graph.nodes if node.op != "placeholder"), graph._root)
    with graph.inserting_before(first):
        tracer.graph.derive(_SET_GRAD, (False,), None)
    return True


def _with_bodies(graph: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """The graph and the bodies that it calls."""
    return (part for part in graph.modules() if isinstance(part, fx.GraphModule))


def left_as_before(compiled: Callable[..., Any], graph: fx.GraphModule) -> Callable[..., Any]:
    """The same callable of a graph; where it raises in between, the modes that it sets are as they were, and in place of a branch of the program, what it drew."""
    nodes = [node for part in _with_bodies(graph) for node in part.graph.nodes]
    settings = changed_settings(nodes)
    modes = any(node.target in (_SET_GRAD, _ENTER, _ENTER_INFERENCE) for node in nodes)
    assumes = graph.meta.get("assumes", False)
    if any(node.target is enter_dual_level for node in nodes):
        compiled = _called_as(compiled, level_left()(compiled))
    if not (settings or modes or assumes):
        return compiled
    generator = torch.default_generator

    def call(*args: Any) -> Any:
        enabled, depth, state = torch.is_grad_enabled(), _depth(), _autocast_state()
        before, guards = [setting.read() for setting in settings], entered()
        numbers = generator.get_state() if assumes else None
        try:
            return compiled(*args)
        except BaseException:
            leave_all_but(guards)
            _SET_GRAD(enabled)
            while _depth() > depth:
                if torch.autocast_decrement_nesting() == 0:
                    torch.clear_autocast_cache()
            for device, (switch, dtype) in state.items():
                torch.set_autocast_enabled(device, switch)
                torch.set_autocast_dtype(device, dtype)
            # Where the frame does not start anew the error passes, and the settings are as the program had them then.
            if graph.meta.get("starts_anew"):
                for setting, value in zip(settings, before, strict=True):
                    setting.write(value)
                if numbers is not None:
                    generator.set_state(numbers)
            raise

    return _called_as(compiled, call)


def refuse_unchecked(graph: fx.GraphModule | None) -> None:
    """Leave the frame to plain Python where the graph raises in place of a branch of the program, and has written to inputs by then."""
    if graph is not None and graph.meta.get("assumes") and not graph.meta.get("starts_anew"):
        raise CannotCapture(
            GraphBreak("data-dependent-branch", "a branch that raises, in a graph that writes to its inputs")
        )


def _depth() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _autocast_state() -> dict[str, tuple[bool, torch.dtype]]:
    devices = ("cpu", "cuda")
    return {device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices}


def as_called(
    compiled: Callable[..., Any], graph: fx.GraphModule, wants_grad: bool
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """A compiled graph, and what is asked where it raises, in the modes in which it is called."""
    rescue = graph.meta.get("rescue")
    wrappers: list[Callable[..., Any]] = [silent] if graph.meta.get("warns") else []
    if rescue is None:
        wrappers.append(partial(left_as_before, graph=graph))
    wrappers.append(partial(in_inference, graph=graph))
    if wants_grad:
        wrappers.append(with_gradients)
    if graph.meta.get("within_modes"):
        wrappers.append(without_function_modes)
    for wrap in wrappers:
        compiled, rescue = wrap(compiled), rescue and wrap(rescue)
    return compiled, rescue


def without_function_modes(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable of a graph that holds what the program's modes made of it: they are not asked again."""

    def call(*args: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return compiled(*args)

    return _called_as(compiled, call)


def with_gradients(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable, called with gradients enabled."""

    def call(*args: Any) -> Any:
        before = torch.is_grad_enabled()
        _SET_GRAD(True)
        try:
            return compiled(*args)
        finally:
            _SET_GRAD(before)

    return _called_as(compiled, call)


def silent(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable, of a graph whose warnings are given beside it."""

    def call(*args: Any) -> Any:
        with no_warnings():
            return compiled(*args)

    return _called_as(compiled, call)


def _called_as(compiled: Callable[..., Any], call: Any) -> Callable[..., Any]:
    """`call`, marked as one that takes a list where `compiled` does."""
    if getattr(compiled, "_boxed_call", False):
        call._boxed_call = True
    return call
