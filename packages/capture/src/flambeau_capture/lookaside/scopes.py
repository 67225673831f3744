"""`error_on_graph_break`, `patch_dynamo_config`, `override_cudagraphs` and `dont_skip_tracing` in a captured frame.

In: the traced program makes, enters and leaves scopes. Out: the tracer's settings follow; what is still entered where a frame is cut, or ends, is
entered for real after the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..captured import CallFunction
from ..replacements import replaces
from ..scopes import (
    Scope,
    dont_skip_tracing,
    enter,
    error_on_graph_break,
    leave,
    override_cudagraphs,
    patch_dynamo_config,
)
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.objects import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def _made_while_tracing(function: Any) -> None:
    """Register what makes a scope: it depends on its arguments alone, and nothing changes it."""

    def make(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        given = [t.folder.concrete(value) for value in args]
        named = {name: t.folder.concrete(value) for name, value in kwargs.items()}
        return t.wrapper.wrap_pinned(function(*given, **named))

    replaces(function, as_given=True)(make)


_made_while_tracing(error_on_graph_break)
_made_while_tracing(patch_dynamo_config)
_made_while_tracing(override_cudagraphs)


@replaces(dont_skip_tracing)
def make_dont_skip(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    scope = t.wrapper.wrap_pinned(dont_skip_tracing())
    function = args[0].realise(t) if args else ConstantValue(None)
    if function.is_constant() and function.constant() is None:
        return scope
    return t.caller.call(scope, [function], {})


@replaces(Scope.__enter__)
def enter_scope(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    scope = args[0].realise(t)
    if not isinstance(scope, ObjectValue) or scope.object is MISSING:
        raise GraphBreak("unsupported-call", f"entering {scope.describe()}")
    t.guards.identity(scope.source, scope.object)
    t.scopes.note(t.graph.operations)
    t.scopes.enter(scope.object.changes)
    return _follow(t)


@replaces(Scope.__exit__)
def leave_scope(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    t.scopes.note(t.graph.operations)
    t.scopes.leave()
    return _follow(t)


def _follow(t: Tracer) -> Value:
    t.config = t.scopes.config
    t.graph.follow(t.config)
    return ConstantValue(None)


def scope_effects(t: Tracer) -> Iterator[CallFunction]:
    """What leaves and enters for real, after the graph, what the program did not leave as it was."""
    left, entered = t.scopes.left_and_entered()
    for _ in range(left):
        yield CallFunction(t.wrapper.wrap_pinned(leave), ())
    for changes in entered:
        yield CallFunction(t.wrapper.wrap_pinned(enter), (ConstantValue(changes),))
