"""Read torch's global state into a `GlobalState` spec; the Python half of what the native guard compares."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from ..class_names import module_name
from ..scopes import said_of_recording
from .spec import GlobalState, Position

AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "hpu", "mps", "mtia", "maia")
"""Device types whose autocast switches are guarded; a fixed order, shared with the native check."""


def current_state(position: Position | None = None) -> GlobalState:
    """The state of this thread, as a guard that holds now."""
    return GlobalState(
        grad_enabled=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        autocast=tuple(
            (device, torch.get_autocast_dtype(device)) for device in AUTOCAST_DEVICES if _autocast_enabled(device)
        ),
        autocast_cache=torch.is_autocast_cache_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        deterministic_warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        default_dtype=torch.get_default_dtype(),
        function_modes=tuple(
            _known_by(torch._C._get_function_stack_at(i)) for i in range(torch._C._len_torch_function_stack())
        ),
        dispatch_modes=torch._C._len_torch_dispatch_stack(),
        function_transform=torch._C._functorch.peek_interpreter_stack() is not None,
        torch_function_enabled=torch._C._is_torch_function_enabled(),
        attention=(
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(),
            torch._C._get_math_sdp_enabled(),
            torch._C._get_cudnn_sdp_enabled(),
        ),
        dual_level=forward_ad._current_level,
        tf32_products=takes_tf32() if torch.cuda.is_initialized() else None,
        recorded=said_of_recording(),
        position=position,
    )


def takes_tf32() -> bool:
    """Whether products of float32 on a GPU may round to TF32."""
    # Not `allow_tf32`: reading that raises where a program has set precisions one operator at a time.
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def beyond_graphs(state: GlobalState) -> str:
    """What is active that sees or changes operations in a way no graph knows of; empty if nothing is."""
    modes = [mode for mode in state.function_modes if not isinstance(mode, torch.device)]
    if modes and not (
        len(modes) == len(state.function_modes)
        and state.torch_function_enabled
        and all(isinstance(mode, type) for mode in modes)
    ):
        return "a mode of __torch_function__"
    # Where Python's part of the dispatcher is switched off nothing could be traced.
    python_is_off = torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python)
    if state.function_transform or state.dispatch_modes or python_is_off:
        return "a function transform or a dispatch mode"
    return "" if state.dual_level < 0 else "a level of forward-mode differentiation"


def _is_traced(mode: Any) -> bool:
    """Whether what a mode answers is a function of the program's, which can be traced."""
    answer = getattr(type(mode), "__torch_function__", None)
    return isinstance(answer, FunctionType) and not str(module_name(answer)).startswith("torch.")


def _known_by(mode: Any) -> Any:
    """What tells a function mode from others: of `with torch.device(...)`, which is a new one each time, the device; of the program's the class."""
    if type(mode) is DeviceContext:
        return mode.device
    return type(mode) if _is_traced(mode) else mode


def _autocast_enabled(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:
        return False
