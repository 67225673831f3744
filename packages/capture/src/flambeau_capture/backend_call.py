"""The call of a backend with a graph that was traced.

In: a backend, the builder of the graph, what the trace gave. Out: the compiled callable, under which no frames are captured; or `BackendError`. A backend
that refuses the numbers which the graph reads out of tensors raises `NumbersRefused`: the frame is then captured without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx._lazy_graph_module import _LazyGraphModule

from . import hook
from .captured import FrameResult
from .error_root import FlambeauError
from .errors import BackendError
from .graph.builder import GraphBuilder
from .graph.names import hold_replaced
from .inference import called_as
from .library import inspect
from .modes import as_called, function_modes_set_aside
from .refusal import NumbersRefused
from .signals import GraphBreak


def call_backend(backend: Callable[..., Any], builder: GraphBuilder, result: FrameResult) -> Callable[..., Any]:
    """The compiled graph."""
    graph = result.graph
    assert graph is not None
    inputs = builder.input_reals if getattr(backend, "wants_real_inputs", True) else builder.input_values
    if getattr(backend, "wants_code", True):
        if hold_replaced(graph.graph):
            graph.recompile()
        _LazyGraphModule.force_recompile(graph)
    try:
        with function_modes_set_aside(), called_as(graph, result.wants_grad):
            compiled = backend(graph, list(inputs))
    except (FlambeauError, NumbersRefused, GraphBreak):
        raise
    except Exception as error:
        name = getattr(backend, "__name__", None) or type(backend).__name__
        raise BackendError(
            f"backend {name!r} raised {type(error).__name__}: {error}",
            hint="backend='eager' shows whether the graph itself is right",
        ) from error
    if not callable(compiled):
        raise BackendError(
            f"the backend returned {type(compiled).__name__}, which cannot be called",
            hint="a backend returns a callable that takes the graph's inputs",
        )
    boxed = is_boxed(compiled)  # what is put around it takes either
    compiled, rescue = as_called(compiled, graph, result.wants_grad)
    disabled = hook.call_disabled(compiled, recursive=True, rescue=rescue)
    if boxed:
        disabled._boxed_call = True
    return disabled


def is_boxed(compiled: Callable[..., Any]) -> bool:
    """Whether what a backend made takes its inputs in one list, which it empties.

    A function that is marked so takes `*args` all the same where it is a wrapper that copies the marks of what it wraps.
    """
    if not getattr(compiled, "_boxed_call", False):
        return False
    try:
        parameters = inspect.signature(compiled, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return True
    return not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
