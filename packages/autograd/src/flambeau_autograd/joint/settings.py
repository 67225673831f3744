"""Settings of torch that a captured graph changes while it runs.

In: the graph. Out: `settings_kept`, inside of which they may be changed. Which kernels of attention may run is asked where the graph is replayed, which
fixes the choice. Any other setting is asked by kernels and by compilers: a graph that changes one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.fx import Graph

from ..errors import UnsupportedGraph

_NAMES = (
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"), ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"), ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("_get_overrideable_sdp_enabled", "_set_sdp_use_overrideable"), ("_get_sdp_priority_order", "_set_sdp_priority_order"),
)  # fmt: skip
#: Setters of what a replay asks, each with its getter.
_ASKED_BY_REPLAYS: Final[dict[Any, Callable[[], Any]]] = {
    getattr(torch._C, write): getattr(torch._C, read) for read, write in _NAMES if hasattr(torch._C, write)
}
_SETTERS: Final = ("set_", "_set_", "use_deterministic_algorithms")
_MODES: Final = ("_set_grad_enabled", "set_grad_enabled")


@contextmanager
def settings_kept(graph: Graph) -> Iterator[None]:
    """Leave the settings as they are, whatever a replay of the graph does. Raises UnsupportedGraph for a setting that stages behind ask."""
    if any(getattr(node.target, "__name__", "") == "_enter_inference_mode" for node in graph.nodes):
        raise UnsupportedGraph("the graph enters inference mode, and is not all of it in that mode")
    changed = {node.target for node in graph.nodes if node.op == "call_function" and _is_setter(node.target)}
    for target in changed:
        if target not in _ASKED_BY_REPLAYS:
            raise UnsupportedGraph(f"the graph changes a setting of torch: {target.__name__}")
    before = {target: _ASKED_BY_REPLAYS[target]() for target in changed}
    try:
        with levels_kept():
            yield
    finally:
        for target, value in before.items():
            target(value)


@contextmanager
def levels_kept() -> Iterator[None]:
    """Leave the level of forward-mode differentiation that a replay which fails has entered."""
    before = forward_ad._current_level
    try:
        yield
    finally:
        while forward_ad._current_level > before:
            forward_ad.exit_dual_level()


def _is_setter(target: Any) -> bool:
    name, module = getattr(target, "__name__", ""), getattr(target, "__module__", None)
    return module in ("torch", "torch._C") and name.startswith(_SETTERS) and name not in _MODES
