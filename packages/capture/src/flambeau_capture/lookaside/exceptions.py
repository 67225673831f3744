"""What the program asks `sys` about the exception that is being handled.

In: calls of `sys.exc_info` and `sys.exception` met while tracing. Out: the exception of the innermost handler that is traced; where there is none,
a guard that no caller of the frame handles one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..replacements import replaces
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.objects import TracebackValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


@replaces(sys.exception)
def current_exception(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    current = t.exceptions.current_exception()
    if current is None:
        t.exceptions.none_handled_outside("asking for the exception")
    return current or ConstantValue(None)


@replaces(sys.exc_info)
def exception_in_parts(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    error = current_exception(t, args, kwargs)
    if error.is_constant():
        return ConstantValue((None, None, None))
    return t.wrapper.sequence([t.wrapper.wrap_pinned(error.python_type()), error, TracebackValue()], tuple)
