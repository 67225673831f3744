"""What users say about functions: `disable`, `allow_in_graph`, `nested_compile_region`, `assume_constant_result`, `graph_break`, and the question
`is_capturing`.

In: functions. Out: the same functions, marked; capture reads the marks when it meets a call. `wrap_numpy` makes of a function of arrays one of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch.utils._pytree import tree_map_only

from . import hook, replacements
from .class_names import class_name
from .library import functools
from .numpy_classes import ARRAY
from .replacements import CONSTANT_MARK, replaces
from .signals import GraphBreak
from .values.base import Value
from .values.constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def allow_in_graph(function: Any) -> Any:
    """Record calls of `function` as one node; it must accept and return tensors. A list is marked item by item."""
    if isinstance(function, (list, tuple)):
        return [allow_in_graph(item) for item in function]
    return replacements.allow_in_graph(function)


def disable(function: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run `function` as it is whenever it is called, and with `recursive` everything that it calls."""
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    replacements.disable(function)
    made = hook.call_disabled(function, recursive=recursive)
    replacements.disable(made)
    return made


def assume_constant_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ask `function` once, while capturing; its result is the program's word for what it gives to such arguments from then on, and is not guarded."""
    setattr(function, CONSTANT_MARK, True)
    return function


def nested_compile_region(function: Callable[..., Any] | None = None) -> Any:
    """Calls of `function` that are alike, as those of the layers of a model, are compiled once. In eager, and in what they give, they are plain calls.

    Raises:
        TypeError: for what cannot be called.
    """
    if function is None:
        return nested_compile_region
    if not callable(function):
        raise TypeError(f"nested_compile_region takes a function, not {class_name(type(function))}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _call_region(function, *args, **kwargs)

    return call


def _call_region(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def graph_break(message: str = "") -> None:
    """End the graph here; does nothing outside capture."""


def is_capturing() -> bool:
    """Whether the code that asks is being captured."""
    return False


def wrap_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that calls `function` with arrays in their memory, and makes tensors of the arrays that it returns."""
    if ARRAY is None:
        return function

    @functools.wraps(function)
    def wrap(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.numpy(), (args, kwargs))
        return tree_map_only(ARRAY, lambda array: torch.as_tensor(array), function(*args, **kwargs))

    return wrap


@replaces(graph_break)
def _break_here(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    raise GraphBreak("user-requested", "graph_break() was called")


@replaces(is_capturing)
def _is_capturing(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    return ConstantValue(True)


@replaces(_call_region, invoke_subgraph_placeholder)
def _region(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Part of the graph. Its nodes tell in `meta["calls"]` that they are a region, so that what compiles the graph can do it once for all alike."""
    with t.graph.call_of("nested_compile_region", marked=True):
        result: Value = t.caller.call(args[0], args[1:], kwargs)
        return result
