"""Inference mode that a traced program enters inside: how its graph is called, so that results are what they are in eager.

In: a trace that ended, with nodes that enter and leave the mode. Out: a graph without them where that means the same. One all of which is in the
mode is compiled and called in it. One whose results are ordinary tensors switches gradients off instead: the trace has shown that eager
refuses nothing. Any other keeps the nodes, and a backend runs it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch

from .refusal import CannotCapture
from .signals import GraphBreak
from .values.inference import ENTER, LEAVE

if TYPE_CHECKING:
    from torch import fx

    from .graph.builder import GraphBuilder

_SET_GRAD: Any = torch._C._set_grad_enabled
_MODES = (ENTER, LEAVE, _SET_GRAD)


@contextmanager
def inference_left(graph: GraphBuilder) -> Iterator[None]:
    """Leave what the trace has entered, however it ends."""
    try:
        yield
    finally:
        for guard in reversed(graph.open_inference):
            LEAVE(guard.entered)
        graph.open_inference.clear()


def settle_inference(graph: GraphBuilder, outputs: Sequence[fx.Node]) -> None:
    """Make the graph mean the same without entering and leaving, where it can."""
    nodes = [node for node in graph.graph.nodes if node.target in (ENTER, LEAVE)]
    if not nodes:
        return
    if graph.open_inference:
        raise CannotCapture(
            GraphBreak("unsupported-call", "inference mode is left behind a break, or not at all"), always=False
        )
    if torch.is_inference_mode_enabled():
        if not all(node.args[0] for node in nodes if node.target is ENTER):
            return
    elif _is_all_inside(graph.graph) and all(node.op == "placeholder" or _is_inference(node) for node in outputs):
        graph.in_inference = True
    elif not any(_is_view_from_inside(node) for node in _inside(graph.graph)) and not any(map(_is_inference, outputs)):
        for node in [node for node in _inside(graph.graph) if node.target is _SET_GRAD]:
            graph.graph.erase_node(node)  # without effect in inference mode
        for node in nodes:
            with graph.graph.inserting_before(node):
                graph.derive(_SET_GRAD, (node.meta["grad"],), None)
    else:
        return
    for node in reversed(nodes):
        graph.graph.erase_node(node)


def _inside(graph: fx.Graph) -> Iterator[fx.Node]:
    """The operations that are run in inference mode."""
    modes: list[bool] = []
    for node in graph.nodes:
        if node.target is ENTER:
            modes.append(node.args[0])
        elif node.target is LEAVE:
            modes.pop()
        elif modes and modes[-1]:
            yield node


def _is_all_inside(graph: fx.Graph) -> bool:
    if any(node.target is ENTER and not node.args[0] for node in graph.nodes):
        return False
    inside = set(_inside(graph))
    return all(node in inside or node.op == "placeholder" or node.target in _MODES for node in graph.nodes)


def _is_inference(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and node.op != "placeholder" and value.is_inference()


def _is_view_from_inside(node: fx.Node) -> bool:
    """Whether it is an ordinary tensor that inference mode gave: another name for one from outside, of which eager remembers where it was taken."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_inference()


@contextmanager
def called_as(graph: fx.GraphModule, wants_grad: bool) -> Iterator[None]:
    """The modes in which a graph is compiled: those of its calls."""
    with (
        torch.inference_mode()
        if graph.meta.get("in_inference")
        else torch.set_grad_enabled(wants_grad or torch.is_grad_enabled())
    ):
        yield


def in_inference(compiled: Callable[..., Any], graph: fx.GraphModule) -> Callable[..., Any]:
    """The same callable, called in inference mode where all of the graph is in it."""
    if not graph.meta.get("in_inference"):
        return compiled

    def call(*args: Any) -> Any:
        with torch.inference_mode():
            return compiled(*args)

    called: Any = call
    if getattr(compiled, "_boxed_call", False):
        called._boxed_call = True
    return cast("Callable[..., Any]", called)
