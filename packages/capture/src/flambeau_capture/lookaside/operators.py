"""The functions of the `operator` module.

In: calls of them met while tracing. Out: the interpreter's own operators on values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..class_names import class_name
from ..interp.operations import BINARY, COMPARE, INPLACE, UNARY
from ..library import operator
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.symbolic import SymbolicValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def _operator(name: str, symbol: str, table: str) -> None:
    function = getattr(operator, name)

    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if table == "unary":
            return t.operators.unary(symbol, args[0])
        if table == "compare":
            return t.operators.compare(symbol, args[0], args[1])
        return t.operators.binary(symbol, args[0], args[1])

    replaces(function)(replacement)


for _symbol, _function in BINARY.items():
    _operator(
        _function.__name__.rstrip("_") if not hasattr(operator, _function.__name__) else _function.__name__,
        _symbol,
        "binary",
    )
for _symbol, _function in INPLACE.items():
    _operator(_function.__name__, _symbol + "=", "binary")
for _symbol, _function in COMPARE.items():
    _operator(_function.__name__, _symbol, "compare")
for _symbol, _unary in UNARY.items():
    _operator("neg" if _symbol == "-" else "pos" if _symbol == "+" else "invert", _symbol, "unary")


@replaces(operator.getitem)
def operator_getitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[0].get_item(t, args[1])


@replaces(operator.setitem)
def operator_setitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].set_item(t, args[1], args[2])
    return ConstantValue(None)


@replaces(operator.delitem)
def operator_delitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delete_item(t, args[1])
    return ConstantValue(None)


def _concatenation(function: Any, symbol: str) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        left, right = args
        if left.python_type() is not right.python_type() or left.python_type() not in (list, tuple, str, bytes):
            raise GraphBreak(
                "unsupported-call", f"operator.{function.__name__}() of other than two sequences of one kind"
            )
        return t.operators.binary(symbol, left, right)

    replaces(function)(replacement)


_concatenation(operator.concat, "+")
_concatenation(operator.iconcat, "+=")


@replaces(operator.is_)
def operator_is(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(t.operators.identical(args[0], args[1]))


@replaces(operator.call)
def operator_call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.caller.call(args[0], args[1:], kwargs)


@replaces(operator.is_not)
def operator_is_not(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(not t.operators.identical(args[0], args[1]))


class GetterValue(Value):
    """An `itemgetter`, `attrgetter` or `methodcaller` made while tracing."""

    __slots__ = ("args", "cls", "kwargs")

    def __init__(self, cls: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> None:
        super().__init__()
        self.cls = cls
        self.args = list(args)
        self.kwargs = dict(kwargs)

    def python_type(self) -> type:
        return self.cls

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise GraphBreak("unsupported-call", f"{class_name(self.cls)} of something else than one object")
        (subject,) = args
        if self.cls is operator.methodcaller:
            return t.caller.call(
                t.attributes.get_attribute(subject, t.folder.concrete(self.args[0])), self.args[1:], self.kwargs
            )
        found = [self._get(t, subject, arg) for arg in self.args]
        return found[0] if len(found) == 1 else t.wrapper.sequence(found, tuple)

    def _get(self, t: Tracer, subject: Value, key: Value) -> Value:
        if self.cls is operator.itemgetter:
            return subject.get_item(t, key)
        for name in t.folder.concrete(key).split("."):
            subject = t.attributes.get_attribute(subject, name)
        return subject

    def rebuild(self, e: Any) -> None:
        e.pinned(self.cls)
        for value in (*self.args, *self.kwargs.values()):
            e.value(value)
        e.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))


def _getter(cls: Any) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        names = args if cls is operator.attrgetter else args[:1] if cls is operator.methodcaller else ()
        if not all(isinstance(t.folder.concrete(name), str) for name in names):
            raise GraphBreak("unsupported-call", "the name of an attribute is no string")
        return GetterValue(cls, args, kwargs)

    replaces(cls)(replacement)


for _cls in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    _getter(_cls)


@replaces(operator.not_)
def operator_not(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.operators.negate(args[0])


@replaces(operator.truth)
def operator_truth(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(args[0].truth(t))


@replaces(operator.contains)
def operator_contains(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(args[0].contains(t, args[1]))


@replaces(operator.index)
def operator_index(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and isinstance(args[0], SymbolicValue) and args[0].python_type() is not float:
        return args[0] if args[0].python_type() is int else ConstantValue(int(args[0].truth(t)))
    return t.folder.fold(operator.index, args, {})
