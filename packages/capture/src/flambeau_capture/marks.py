"""What users say about functions: `disable`, `allow_in_graph`, `disallow_in_graph`, `forbid_in_graph`, `substitute_in_graph`,
`assume_constant_result`, `nested_compile_region`, and the question `is_capturing`.

In: functions. Out: the same functions, marked; capture reads the marks when it meets a call. `wrap_numpy` makes of a function of arrays one of tensors.
What asks for a break where it is called: `breaks.py`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch.utils._pytree import tree_map_only

from . import hook, replacements
from .class_names import class_name
from .library import copy, functools, inspect
from .native import _C
from .numpy_classes import ARRAY
from .replacements import CONSTANT_MARK, replaces
from .signals import GraphBreak
from .torch_policy import Decision
from .values.base import Value
from .values.constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def allow_in_graph(function: Any) -> Any:
    """Record calls of `function` as one node; it must accept and return tensors. A list is marked item by item."""
    if isinstance(function, (list, tuple)):
        return [allow_in_graph(item) for item in function]
    return replacements.allow_in_graph(function)


def disallow_in_graph(function: Any) -> Any:
    """Break the graph at calls of `function`, which would be nodes of it. A list is marked item by item.

    Raises:
        TypeError: for what cannot be called.
        RuntimeError: for a function of the program's own, which is traced into: `disable` is for those.
    """
    if isinstance(function, (list, tuple)):
        return [disallow_in_graph(item) for item in function]
    _need_callable("disallow_in_graph", function)
    if replacements.torch_decision(function) is Decision.INLINE and not replacements.is_torchs(function):
        raise RuntimeError(
            f"disallow_in_graph is for what becomes a node of a graph, and {function!r} does not: use disable"
        )
    return replacements.disallow_in_graph(function)


def forbid_in_graph(function: Any) -> Any:
    """Make it an error to call `function` in compiled code. A list is marked item by item.

    Raises:
        TypeError: for what cannot be called.
    """
    if isinstance(function, (list, tuple)):
        return [forbid_in_graph(item) for item in function]
    _need_callable("forbid_in_graph", function)
    setattr(function, replacements.FORBID_MARK, True)
    return function


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Any], Callable[..., Any]]:
    """Decorate a Python function that is traced where `original_fn`, usually one written in C, is called in compiled code.

    Args:
        original_fn: what the program calls. In plain Python that is what runs, also where the decorated function is called.
        can_constant_fold_through: the function is pure: where its arguments are known, `original_fn` is called while tracing.
        skip_signature_check: do not compare the signatures.

    Raises:
        TypeError: where one of the two is no function, or their signatures differ.
        ValueError: where `original_fn` has a substitute already.
    """
    if not isinstance(original_fn, replacements.FUNCTIONS):
        raise TypeError(f"substitute_in_graph takes a function, not {class_name(type(original_fn))}")

    def register(function: Any) -> Callable[..., Any]:
        if not isinstance(function, types.FunctionType):
            raise TypeError(f"a substitute is a Python function, not {class_name(type(function))}")
        if not skip_signature_check:
            _refuse_other_signature(original_fn, function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        found = replacements.Substitute(original_fn, function, can_constant_fold_through)
        replacements.substitute(original_fn, found, call)
        return call

    return register


def _refuse_other_signature(original: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Raise TypeError where two functions do not take the same; one that takes anything, or does not tell, takes the same."""
    try:
        known = inspect.signature(original)
    except ValueError:
        return
    given = inspect.signature(function)
    if _takes(known) != _takes(given) and _ANYTHING not in (_takes(known), _takes(given)):
        raise TypeError(f"{function!r} takes {given}, and {original!r} takes {known}")


def _takes(signature: inspect.Signature) -> tuple[Any, ...]:
    parameters = signature.parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        tuple(parameter.name for parameter in parameters if parameter.kind in positional),
        {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY},
        {parameter.name: parameter.default for parameter in parameters if parameter.kind not in _MANY},
    )


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_ANYTHING: tuple[Any, ...] = ((), set(), {})


def _need_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"{name} takes what can be called, not {class_name(type(function))}")


class Disabling:
    """What `disable()` gives without a function: a decorator, and a context manager in whose block nothing is captured."""

    def __init__(self, recursive: bool, reason: str | None) -> None:
        self.recursive = recursive
        self.reason = reason
        self._before: list[bool] = []

    def __call__(self, function: Any) -> Any:
        return disable(function, self.recursive, reason=self.reason)

    def __enter__(self) -> None:
        self._before.append(_C.set_suspended(True))

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        _C.set_suspended(self._before.pop())


def disable(function: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run `function` as it is whenever it is called, and with `recursive` everything that it calls.

    Args:
        function: a function or another object that can be called; a module, of which a copy that shares its state comes back; a class,
            whose instances are made and called as they are from then on; None for a decorator that is a context manager as well.
        recursive: whether what it calls runs as it is, too.
        reason: what a graph break says.

    Raises:
        TypeError: for what cannot be called.
    """
    if function is None:
        return Disabling(recursive, reason)
    _need_callable("disable", function)
    if isinstance(function, type):
        names = (
            ("__init__", "__call__", "_call_impl")
            if issubclass(function, torch.nn.Module)
            else ("__init__", "__call__")
        )
        for name in names:
            if isinstance(found := getattr(function, name, None), types.FunctionType):
                setattr(function, name, disable(found, recursive, reason=reason))
        return function
    if isinstance(function, torch.nn.Module):
        made = copy.copy(function)
        made.forward = disable(function.forward, recursive, reason=reason)
        return made
    if isinstance(function, hook.Region):
        return disable(function.callable, recursive, reason=reason)
    wrapper = hook.call_disabled(function, recursive=recursive)
    replacements.disable(wrapper, reason or "")
    return wrapper


def assume_constant_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ask `function` once, while capturing; its result is the program's word for what it gives to such arguments from then on, and is not guarded."""
    setattr(function, CONSTANT_MARK, True)
    return function


def allow_c_slot(tp: type, *, tp_hash: bool = True, tp_richcompare: bool = True) -> type:
    """Let `hash()` and comparisons of objects of a class run while tracing, which are written in C: they depend on the objects alone, which do not change.

    What they answered holds for these very objects: with others the frame is compiled again.

    Raises:
        TypeError: for what is no class.
    """
    if not isinstance(tp, type):
        raise TypeError(f"allow_c_slot takes a class, not {class_name(type(tp))}")
    replacements.allow_slots(tp, (*(_HASHES if tp_hash else ()), *(_COMPARISONS if tp_richcompare else ())))
    return tp


_HASHES = ("__hash__",)
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def nonstrict_trace(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of `traceable_fn` are one node: capture does not look inside, and what differentiates the graph does, with fakes.

    It may do what cannot be captured, as long as it computes the same for the same arguments. Those, and what it returns, are of what torch's pytrees know; modules may
    be arguments too. Tensors that it closes over are constants, and whatever else it reads is not guarded.

    Raises:
        TypeError: for what cannot be called.
    """
    _need_callable("nonstrict_trace", traceable_fn)

    @functools.wraps(traceable_fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacements.call_nonstrict(traceable_fn, *args, **kwargs)

    return call


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


@replaces(Disabling.__enter__)
def _stop_here(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    told = args[0].realise(t)
    reason = getattr(told.real(), "reason", None) or "a block in which nothing is captured"
    raise GraphBreak("disabled-function", reason, whole=True)


@replaces(is_capturing)
def _is_capturing(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    return ConstantValue(True)


@replaces(_call_region, invoke_subgraph_placeholder)
def _region(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Part of the graph. Its nodes tell in `meta["calls"]` that they are a region, so that what compiles the graph can do it once for all alike."""
    with t.graph.call_of("nested_compile_region", marked=True):
        result: Value = t.caller.call(args[0], args[1:], kwargs)
        return result
