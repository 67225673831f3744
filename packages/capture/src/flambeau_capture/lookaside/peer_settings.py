"""Settings of torch's own compiler that a captured frame enters and leaves: `patch_dynamo_config` and the like, which modules of `torch.export` hold.

In: the traced program enters or leaves one. Out: nothing while tracing, for they say nothing of what is traced here; what is still entered where a
frame is cut, or ends, is entered for real after the graph.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..captured import CallFunction
from ..replacements import replaces, replaces_later
from ..signals import GraphBreak
from ..values.constants import ConstantValue
from ..values.objects import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..values.base import Tracer, Value

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_MODULE = "torch._dynamo.decorators"
_CLASSES = ("DynamoConfigPatchProxy", "ErrorOnGraphBreakDecoratorContextManager")
"""Of context managers; not every torch has all."""


@replaces_later(_MODULE)
def _register() -> None:
    for name in _CLASSES:
        cls = getattr(sys.modules[_MODULE], name, None)
        if cls is not None:
            replaces(cls.__enter__)(enter_setting)
            replaces(cls.__exit__)(leave_setting)


def enter_setting(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`setting.__enter__()`."""
    t.scopes.enter_foreign(_setting(t, args))
    return ConstantValue(None)


def leave_setting(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`setting.__exit__(...)`."""
    t.scopes.leave_foreign(_setting(t, args))
    return ConstantValue(None)


def _setting(t: Tracer, args: Args) -> Value:
    setting = args[0].realise(t) if args else ConstantValue(None)
    if not isinstance(setting, ObjectValue):
        raise GraphBreak("unsupported-call", f"entering or leaving {setting.describe()}")
    return setting


def peer_setting_effects(t: Tracer) -> Iterator[CallFunction]:
    """What leaves and enters for real, after the graph, what the program did not leave as it was."""
    left, entered = t.scopes.foreign()
    for setting in left:
        none = ConstantValue(None)
        yield CallFunction(t.wrapper.wrap_pinned(setting.python_type().__exit__), (setting, none, none, none))
    for setting in entered:
        yield CallFunction(t.wrapper.wrap_pinned(setting.python_type().__enter__), (setting,))
