"""`super()`.

In: its calls met while tracing. Out: a value of `values/supers.py`.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.builtins import ClassValue
from ..values.supers import SuperValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def _is_owner(value: Value, cls: type) -> bool:
    return (isinstance(value, ClassValue) and issubclass(value.object, cls)) or issubclass(value.python_type(), cls)


@replaces(builtins.super)
def make_super(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args:
        cls = t.folder.concrete(args[0])
        if len(args) == 1 or not isinstance(cls, type) or not _is_owner(args[1], cls):
            raise GraphBreak("unsupported-call", "super() of something else than a class and its instance")
        return SuperValue(cls, args[1])
    frame = t.frames.frame
    if "__class__" not in frame.cells:
        raise t.exceptions.raised(RuntimeError("super(): __class__ cell not found"))
    contents = frame.cells["__class__"].contents
    assert contents is not None
    first = frame.code.co_varnames[0]
    owner = frame.locals.get(first) or (frame.cells[first].contents if first in frame.cells else None)
    if owner is None:
        raise t.exceptions.raised(RuntimeError("super(): no arguments"))
    cls, owner = contents.realise(t).real(), owner.realise(t)
    if not _is_owner(owner, cls):
        raise GraphBreak("unsupported-call", "super() in what is called with something else than an instance")
    return SuperValue(cls, owner)
