"""Calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...signals import GraphBreak
from ...values.base import NULL, Value
from ...values.subclasses import NO_KEYWORDS
from ..registry import handles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...bytecode.model import Instruction
    from ..frame import Frame


def _pop_callable(f: Frame, args: list[Value]) -> Value:
    upper = f.stack.pop()
    lower = f.stack.pop()
    if lower is NULL:
        return upper
    if upper is not NULL:
        args.insert(0, upper)
    return lower


@handles("CALL")
def call(f: Frame, i: Instruction) -> None:
    args = f.pop_many(i.arg)
    function = _pop_callable(f, args)
    f.push(f.tracer.caller.call(function, args, {}))


@handles("CALL_KW")
def call_kw(f: Frame, i: Instruction) -> None:
    names = i.value
    values = f.pop_many(i.arg)
    split = len(values) - len(names)
    args = values[:split]
    function = _pop_callable(f, args)
    f.push(f.tracer.caller.call(function, args, dict(zip(names, values[split:], strict=True))))


@handles("CALL_FUNCTION_EX")
def call_function_ex(f: Frame, i: Instruction) -> None:
    t = f.tracer
    kwargs: Mapping[str, Value] = {}
    if i.arg & 1:
        mapping = f.pop_mapping()
        given = list(t.operators.mapping_items(mapping))
        if not all(issubclass(key.python_type(), str) for key, _ in given):  # the error names the function
            raise GraphBreak("unsupported-call", "a keyword argument whose name is no text")
        kwargs = {t.wrapper.to_python(key): value for key, value in given} if given else NO_KEYWORDS
    args = t.operators.collect(f.pop_iterable())
    function = _pop_callable(f, args)
    f.push(t.caller.call(function, args, kwargs))
