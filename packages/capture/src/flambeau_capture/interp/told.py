"""What the program has said about something that it calls: that it breaks the graph, is an error, a node, or another function.

In: a callable with no value of its own yet, and its arguments. Out: the call's result where the program's word decides, else None. `replacements.py` has
the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import replacements
from ..class_names import name_of
from ..leaf_functions import leaf_of_peer
from ..signals import GraphBreak
from ..sources.source import Pinned
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.sequences import TupleValue
from .moved_calls import moved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType

    from ..values.base import Tracer, Value


def substituted(t: Tracer, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of what the program has traced in the place of `function`, or that it lets move; a call of the function itself in its substitute is one."""
    if (later := moved(t, function, args, kwargs)) is not None:
        return later
    found = replacements.substitute_of(function)
    if found is None or _is_in(t, found.function.__code__):
        return None
    if found.folds and all(t.wrapper.is_foldable(value) for value in (*args, *kwargs.values())):
        return t.folder.fold(found.original, args, kwargs)
    traced: Any = found.function
    return t.caller.inline_function(FunctionValue(traced, Pinned(traced)), traced, args, kwargs)


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
        leaf = leaf_of_peer(function)
        call = t.wrapper.wrap_pinned(replacements.call_leaf)
        parts = [t.wrapper.wrap_pinned(part) for part in (leaf, leaf.fake, leaf.hook)]
        return t.caller.call(call, [*parts, TupleValue(list(args), tuple), t.wrapper.new_dict(dict(kwargs))], {})
    return t.folder.assumed(function, args, kwargs)


def allowed_object(t: Tracer, made: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of an object or class whose calls are nodes, because the program says so."""
    if not replacements.is_allowed(made):
        return None
    with_source = [value for value in (*args, *kwargs.values()) if not t.recorder.has_tensor([value], {})]
    if any(not t.wrapper.is_foldable(value) for value in with_source):
        raise GraphBreak("unsupported-argument", f"an object is an argument of {name_of(made)}")
    return t.recorder.record("call_function", made, args, kwargs)
