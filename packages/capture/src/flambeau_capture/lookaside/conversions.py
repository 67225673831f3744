"""Builtins that ask an object to be a number: `abs`, `divmod`, `round`, `int`, `float`, `complex`, `hash`.

In: calls of them met while tracing. Out: of tensors nodes or a break, of symbols arithmetic, of constants what Python says; of the program's
own objects what their special methods give, held to what Python takes of them.
"""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

import torch

from ..class_names import class_name, objects_have, type_name
from ..interp import native_slots
from ..interp.conversions import float_of, int_of
from ..library import operator
from ..numpy_classes import numpy
from ..replacements import replaces
from ..signals import GraphBreak, TracedRaise
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.ndarrays import ArrayValue, call_numpy
from ..values.objects import ObjectValue
from ..values.subclasses import SubclassValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def _asked(t: Tracer, value: Value, name: str, *args: Value) -> Value | None:
    """What an object of the program's gives for a special method; None where its class has none in Python."""
    method = value.special(t, name) if isinstance(value, ObjectValue) else None
    return None if method is None else t.caller.call(method, list(args), {})


def _lacks(value: Value, *names: str) -> bool:
    """Whether it is an object whose class has none of these methods, in Python or in C."""
    return (
        isinstance(value, ObjectValue)
        and value.storage is None
        and not any(objects_have(value.cls, name) for name in names)
    )


def _refuse(t: Tracer, words: str, value: Value) -> TracedRaise:
    return t.exceptions.raised(TypeError(words.format(type_name(value.python_type()))))


@replaces(builtins.abs, operator.abs)
def absolute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], SubclassValue):
        return args[0].do(t, "__abs__")
    if isinstance(args[0], TensorValue):
        return t.recorder.record("call_function", abs, args, {})
    if isinstance(args[0], ArrayValue):
        return call_numpy(t, numpy.absolute, args, {})
    if isinstance(args[0], SymbolicValue):
        return t.arithmetic.symbolic(abs, args)
    found = _asked(t, args[0], "__abs__")
    if found is None and _lacks(args[0], "__abs__"):
        raise _refuse(t, "bad operand type for abs(): '{}'", args[0])
    return t.folder.fold(abs, args, {}) if found is None else found


@replaces(builtins.divmod)
def divide(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if t.wrapper.is_foldable(args[0]) and t.wrapper.is_foldable(args[1]):
        return t.folder.fold(divmod, args, {})
    if any(isinstance(arg, ObjectValue) for arg in args):
        return _divide_objects(t, *args)
    if any(isinstance(arg, (TensorValue, SubclassValue)) for arg in args):
        raise GraphBreak("operator-error", "tensors have no __divmod__")
    try:
        return t.wrapper.sequence(
            [t.operators.binary("//", args[0], args[1]), t.operators.binary("%", args[0], args[1])], tuple
        )
    except TracedRaise:
        return t.arithmetic.computed(divmod, args, {})  # in the words of divmod


def _divide_objects(t: Tracer, left: Value, right: Value) -> Value:
    """The left operand is asked first. Where the right one's class is made of the left one's it may come first, which is left to Python."""
    kinds = (left.python_type(), right.python_type())
    holds = any(isinstance(value, ObjectValue) and value.storage is not None for value in (left, right))
    if holds or (kinds[0] is not kinds[1] and issubclass(kinds[1], kinds[0])):
        raise GraphBreak("unsupported-call", f"divmod() of {left.describe()} and {right.describe()}")
    asks = [(left, "__divmod__", right)]
    if kinds[0] is not kinds[1]:
        asks.append((right, "__rdivmod__", left))
    for owner, name, other in asks:
        found = _asked(t, owner, name, other)
        if found is not None and not (found.is_constant() and found.constant() is NotImplemented):
            return found
    names = " and ".join(f"'{type_name(kind)}'" for kind in kinds)
    raise t.exceptions.raised(TypeError(f"unsupported operand type(s) for divmod(): {names}"))


@replaces(builtins.round)
def rounded(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        raise GraphBreak("operator-error", "tensors have no __round__")
    if any(isinstance(a, SymbolicValue) for a in args):
        return t.arithmetic.computed(round, args, kwargs)
    digits = [arg for arg in args[1:] if arg.python_type() is not type(None)]
    found = _asked(t, args[0], "__round__", *digits)
    if found is not None:
        return found
    if _lacks(args[0], "__round__"):
        raise _refuse(t, "type {} doesn't define __round__ method", args[0])
    return t.folder.fold(round, [t.wrapper.from_python(t.folder.concrete(a)) for a in args], kwargs)


@replaces(builtins.int)
def to_int(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SymbolicValue):
        return args[0] if args[0].python_type() is int else t.arithmetic.symbolic(torch.sym_int, args)
    if len(args) == 1 and isinstance(args[0], TensorValue):
        return int_of(t, args[0])
    if len(args) == 1 and isinstance(args[0], ObjectValue):
        for name in ("__int__", "__index__"):
            found = _asked(t, args[0], name)
            if found is not None:
                return _held_to(t, found, int, f"{name} returned non-int (type {{}})")
        if _lacks(args[0], "__int__", "__index__", "__trunc__"):
            words = "int() argument must be a string, a bytes-like object or a real number, not '{}'"
            raise _refuse(t, words, args[0])
    return t.folder.fold(int, args, kwargs)


@replaces(builtins.float)
def to_float(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SymbolicValue):
        return args[0] if args[0].python_type() is float else t.arithmetic.symbolic(torch.sym_float, args)
    if len(args) == 1 and isinstance(args[0], TensorValue):
        return float_of(t, args[0])
    if args and isinstance(args[0], ObjectValue):
        found = float_of_object(t, args[0], "float() argument must be a string or a real number, not '{}'")
        return t.folder.fold(float, args, kwargs) if found is None else found
    return t.folder.fold(float, args, kwargs)


def float_of_object(t: Tracer, value: ObjectValue, words: str) -> Value | None:
    """What C asks of an object that it takes for a float, or raises in these words; None where the class answers in C."""
    found = _asked(t, value, "__float__")
    if found is not None:
        return _held_to(t, found, float, f"{type_name(value.cls)}.__float__ returned non-float (type {{}})")
    found = _asked(t, value, "__index__")
    if found is not None:
        return to_float(t, [_held_to(t, found, int, "__index__ returned non-int (type {})")], {})
    if _lacks(value, "__float__", "__index__"):
        raise _refuse(t, words, value)
    return None


@replaces(builtins.complex)
def to_complex(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = _asked(t, args[0], "__complex__") if len(args) == 1 and not kwargs else None
    if found is None:
        return t.folder.fold(complex, args, kwargs)
    if found.python_type() is not complex:
        raise GraphBreak("unsupported-call", f"complex() of {args[0].describe()}")
    return found


def _held_to(t: Tracer, found: Value, kind: type, words: str) -> Value:
    """The number that a special method gave, if it is one of just this kind."""
    if found.python_type() is kind:
        return found
    if issubclass(found.python_type(), kind):
        # Python takes it, and warns.
        raise GraphBreak("unsupported-call", f"{class_name(found.python_type())} for a {kind.__name__}")
    raise _refuse(t, words, found)


@replaces(builtins.hash)
def hash_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if t.wrapper.is_foldable(args[0]):
        return t.folder.fold(hash, args, {})
    found = _asked(t, args[0], "__hash__")
    if found is None:
        return native_slots.hashed(t, args[0].realise(t))
    if not issubclass(found.python_type(), int):
        raise t.exceptions.raised(TypeError("__hash__ method should return an integer"))
    number = t.folder.integer(found)
    if not -sys.maxsize - 1 <= number <= sys.maxsize:
        return t.folder.fold(hash, [ConstantValue(number)], {})
    return ConstantValue(
        -2 if number == -1 else number
    )  # what fits is the hash, but for the number that says there is an error
