"""What the program has said about something that it calls: that it breaks the graph, is an error, a node, or another function.

In: a callable with no value of its own yet, and its arguments. Out: the call's result where the program's word decides, else None. `replacements.py` has
the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from .. import replacements
from ..class_names import name_of
from ..graph.foreign import formula_reads_values, overloads_of_others
from ..leaf_functions import LeafFunction, leaf_of_peer
from ..signals import GraphBreak
from ..sources.source import Pinned
from ..values.base import MISSING
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.sequences import ListValue, TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .moved_calls import moved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType

    from ..values.base import Tracer, Value


def substituted(t: Tracer, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of what the program has traced in the place of `function`, or that it lets move; a call of the function itself in its substitute is one."""
    if (later := moved(t, function, args, kwargs)) is not None:
        return later
    if (whole := _called_whole(t, function, args, kwargs)) is not None:
        return whole
    found = replacements.substitute_of(function)
    if found is None or _is_in(t, found.function.__code__):
        return None
    if found.folds and all(t.wrapper.is_foldable(value) for value in (*args, *kwargs.values())):
        return t.folder.fold(found.original, args, kwargs)
    traced: Any = found.function
    return t.caller.inline_function(FunctionValue(traced, Pinned(traced)), traced, args, kwargs)


def _called_whole(t: Tracer, operator: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of an operator of others whose formula for its gradients asks for values: as of a `leaf_function`, the operator and its formula run as they are."""
    if not overloads_of_others(operator) or not torch.is_grad_enabled():
        return None
    given = [_on_fakes(t, value) for value in args], {name: _on_fakes(t, value) for name, value in kwargs.items()}
    if any(leaf is MISSING for leaf in tree_leaves(given)) or not formula_reads_values(operator, *given):
        return None
    return _leaf_call(t, LeafFunction(operator, (), operator), args, kwargs)


def _on_fakes(t: Tracer, value: Value) -> Any:
    """An argument of an operator; MISSING where it is none that one takes."""
    value = value.realise(t)
    if isinstance(value, TensorValue):
        return value.fake
    if isinstance(value, SymbolicValue):
        return value.symbol
    if isinstance(value, (TupleValue, ListValue)):
        return [_on_fakes(t, item) for item in value.items]
    return value.constant() if value.is_constant() else MISSING


def _leaf_call(t: Tracer, leaf: LeafFunction, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    call = t.wrapper.wrap_pinned(replacements.call_leaf)
    parts = [t.wrapper.wrap_pinned(part) for part in (leaf, leaf.fake, leaf.hook)]
    return t.caller.call(call, [*parts, TupleValue(list(args), tuple), t.wrapper.new_dict(dict(kwargs))], {})


def _is_in(t: Tracer, code: CodeType) -> bool:
    """Whether a frame of this code is being traced."""
    frame = t.frames.frame
    while frame is not None and frame.code is not code:
        frame = frame.caller
    return frame is not None


def marked(t: Tracer, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of a Python function that bears a mark."""
    if replacements.is_the_peers_bookkeeping(function):
        return ConstantValue(None)
    original = replacements.behind_the_peers_mark(function)
    if original is not None:
        return t.caller.call(t.wrapper.wrap_pinned(original), args, kwargs)
    replacements.refuse_marked(function)
    nonstrict = replacements.nonstrict_of_peer(function)
    if nonstrict is not None:
        call = t.wrapper.wrap_pinned(replacements.call_nonstrict)
        return t.caller.call(call, [t.wrapper.wrap_pinned(nonstrict), *args], kwargs)
    if replacements.is_leaf_of_peer(function):
        return _leaf_call(t, leaf_of_peer(function), args, kwargs)
    return t.folder.assumed(function, args, kwargs)


def allowed_object(t: Tracer, made: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of an object or class whose calls are nodes, because the program says so."""
    if not replacements.is_allowed(made):
        return None
    with_source = [value for value in (*args, *kwargs.values()) if not t.recorder.has_tensor([value], {})]
    if any(not t.wrapper.is_foldable(value) for value in with_source):
        raise GraphBreak("unsupported-argument", f"an object is an argument of {name_of(made)}")
    return t.recorder.record("call_function", made, args, kwargs)
