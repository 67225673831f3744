"""What is computed for real while tracing: calls of pure functions, errors that Python itself has to word, arguments that must be numbers.

In: a function and values that are constants. Out: the result as a value, the exception raised in the traced program, or a break.
"""

from __future__ import annotations

import enum
import re
import struct
import sys
import types
import warnings
from operator import index as as_index
from typing import TYPE_CHECKING, Any, NoReturn

from .. import replacements
from ..class_names import class_name, name_of, type_name
from ..constant_objects import is_constant_object, is_nan
from ..library import collections, functools, inspect, math, operator
from ..numpy_classes import SCALARS, floating_errors_raise
from ..signals import GraphBreak, TracedRaise
from ..values.base import Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.members import mro_lookup
from ..values.objects import ObjectValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .enum_members import hold_methods
from .part import Part
from .wrapping import NotConstant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MUTABLE = frozenset((list, dict, set, collections.deque, collections.OrderedDict))
_SHARED = _MUTABLE | {
    tuple, frozenset, collections.defaultdict, type(functools.cmp_to_key(max)), types.GenericAlias, types.UnionType, types.BuiltinMethodType, types.MethodWrapperType,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, re.Pattern, re.Match, struct.Struct,
}  # fmt: skip
"""Classes of what a call of a pure function may make: the trace makes such containers again for each call, and the others do not change."""
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_HELD_HERE = 2
"""How often an object counts as held that only one variable holds: the call that asks holds it too."""
_TAKE_KEYWORDS: dict[type, tuple[str, ...]] = {
    list: ("sort",),
    dict: ("update",),
    collections.defaultdict: ("update",),
    collections.OrderedDict: ("update", "popitem", "move_to_end", "pop", "setdefault"),
}
"""The methods written in C that take arguments by name."""


def _flags_are_truths() -> bool:
    try:
        return sorted((), reverse=[]) == []  # type: ignore[call-overload]
    except TypeError:
        return False


_FLAGS_ARE_TRUTHS = _flags_are_truths()
"""Whether a sort takes anything that has a truth value for `reverse`."""


class Folder(Part):
    """Calls of pure functions, made for real."""

    def fold(self, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call a pure function for real; its exceptions are raised in the traced program."""
        decides = next((arg for arg in args if isinstance(arg, ClassValue) and arg.has_own_metaclass()), None)
        if decides is not None:
            raise GraphBreak(
                "unsupported-call", f"{name_of(function)} of {decides.describe()}, whose metaclass decides"
            )
        try:
            real = [self.t.wrapper.to_python(arg) for arg in args]
            keyword = {name: self.t.wrapper.to_python(value) for name, value in kwargs.items()}
        except NotConstant as error:
            raise GraphBreak("unsupported-call", f"{name_of(function)} of {error}") from None
        objects = (*real, *keyword.values())
        if _looks_for_nan(objects):
            raise GraphBreak(
                "unsupported-call", f"{name_of(function)} of a container and nan, of which it matters which one it is"
            )
        hold_methods(self.t, function, objects)
        kinds = {*map(type, real), type(getattr(function, "__self__", None))}
        fresh: list[Any] = []
        if keyword or not kinds.isdisjoint(_MUTABLE):
            fresh = [made for made in objects if type(made) in _MUTABLE]
        before = [repr(made) for made in fresh]
        told: list[Any] | None = None
        try:
            if bool in kinds or not kinds.isdisjoint(SCALARS):
                # Python warns at every call of what inverts a truth value (3.12 and later), and NumPy of numbers out of range.
                with warnings.catch_warnings(record=True, action="always") as told, floating_errors_raise():
                    result = function(*real, **keyword)
            else:
                result = function(*real, **keyword)
        except FloatingPointError:
            raise GraphBreak("unsupported-call", f"{name_of(function)} warns or raises, as NumPy is told to") from None
        except GraphBreak:
            raise
        except Exception as error:
            raise self._raised_with_name(error) from None
        if told:
            raise GraphBreak("unsupported-call", f"{name_of(function)} warns")
        if fresh and (before != [repr(made) for made in fresh] or any(_holds(result, made) for made in fresh)):
            # The arguments are copies: what is written to them, or returned, would not be the program's own.
            raise GraphBreak("unsupported-call", f"{name_of(function)} writes to its arguments or returns one")
        if hasattr(type(result), "__next__"):
            # It would be one iterator for all calls.
            raise GraphBreak("unsupported-call", f"{name_of(function)} gives an iterator")
        if sys.getrefcount(result) == _HELD_HERE and not is_constant_object(result) and not _may_be_shared(result):
            # So would this be one object, which the program may write to.
            raise GraphBreak("unsupported-call", f"{name_of(function)} makes a {class_name(type(result))}")
        given = next((arg for arg, obj in zip(args, real, strict=True) if obj is result), None)
        return self.t.wrapper.from_python(result) if given is None else given.realise(self.t)

    def _raised_with_name(self, error: Exception) -> TracedRaise:
        raised = self.t.exceptions.raised(error)
        if isinstance(error, AttributeError | NameError) and error.name is not None:
            raised.value.attrs["name"] = ConstantValue(error.name)
        return raised

    def fold_method(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`owner.name(...)` of a constant; an error names the class that has the method, as it does where Python calls it."""
        real = self.t.wrapper.to_python(owner)
        found, _ = mro_lookup(type(real), name)
        if isinstance(real, enum.Enum) or not isinstance(found, _METHODS):
            return self.fold(getattr(real, name), args, kwargs)
        return self.fold(found, [owner, *args], kwargs)

    def real_error(
        self,
        function: Callable[..., Any],
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
        failed: Exception | None = None,
    ) -> NoReturn:
        """Raise, in the traced program, what Python raises for a call that is known to fail; a break where it is not constant.

        Where Python does not raise, the model that `failed` is at fault.
        """
        name = name_of(function)
        try:
            real = [self.t.wrapper.to_python(arg) for arg in args]
            keyword = {name: self.t.wrapper.to_python(value) for name, value in kwargs.items()}
        except NotConstant as error:
            raise GraphBreak("unsupported-call", f"{name} of {error}") from None
        try:
            function(*real, **keyword)
        except Exception as error:
            raise self.t.exceptions.raised(error) from None
        if failed is not None:
            raise failed
        raise GraphBreak("unsupported-call", f"{name} with these arguments")

    def run_method(
        self,
        owner: Any,
        methods: Mapping[str, Callable[..., Value | None]],
        name: str,
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
    ) -> Value:
        """A method of a container by its model. Where that does not take the arguments, Python itself says what it makes of them."""
        takes_keywords = name in _TAKE_KEYWORDS.get(owner.python_type(), ())
        method = methods.get(name)
        if method is not None and (not kwargs or takes_keywords) and _takes(method, owner, self.t, *args, **kwargs):
            try:
                return method(owner, self.t, *args, **kwargs) or ConstantValue(None)
            except (TypeError, ValueError, LookupError, OverflowError) as error:
                self.real_error(getattr(owner.python_type(), name), [owner, *args], kwargs, error)
        self.real_error(getattr(owner.python_type(), name), [owner, *args], kwargs)

    def integer(self, value: Value) -> int:
        """A real integer for an argument that has to be one (`operator.index`)."""
        value = value.realise(self.t)
        if isinstance(value, ObjectValue) and value.storage is None:
            method = value.special(self.t, "__index__")
            if method is not None:
                value = self.t.caller.call(method, [], {})
                if not issubclass(value.python_type(), int):
                    kind = type_name(value.python_type())
                    raise self.t.exceptions.raised(TypeError(f"__index__ returned non-int (type {kind})"))
        found = self.concrete(value)
        hold_methods(self.t, as_index, (found,))
        try:
            return fits_an_index(as_index(found))
        except TypeError as error:
            raise self.t.exceptions.raised(error) from None

    def flag(self, value: Value) -> bool:
        """`reverse=` of a sort: a truth value, or in older CPythons a C int."""
        if _FLAGS_ARE_TRUTHS:
            return value.realise(self.t).truth(self.t)
        found = self.integer(value)
        if not -(2**31) <= found < 2**31:
            raise GraphBreak("unsupported-call", "a flag that is too large")
        return found != 0

    def assumed(self, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        """What a function gives whose result the program marks as a constant (`torch.compiler.assume_constant_result`), asked once. None of
        any other, and where the arguments or the result are no constants: those are traced."""
        if not getattr(function, replacements.CONSTANT_MARK, False):
            return None
        given = [value.realise(self.t) for value in (*args, *kwargs.values())]
        if not all(value.is_constant() for value in given):
            return None
        named = {name: value.constant() for name, value in zip(kwargs, given[len(args) :], strict=True)}
        try:
            result = function(*(value.constant() for value in given[: len(args)]), **named)
        except Exception as error:
            raise self.t.exceptions.raised(error) from None
        return ConstantValue(result) if is_constant_object(result) else None

    def ask(self, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`fold` of a function whose answer depends on state that no other guard watches: every call asks again."""
        answer = self.fold(function, args, kwargs)
        given = tuple(self.t.wrapper.to_python(arg) for arg in args)
        named = {name: self.t.wrapper.to_python(value) for name, value in kwargs.items()}
        self.t.guards.answer(function, given, named, self.t.wrapper.to_python(answer))
        return answer

    def concrete(self, value: Value) -> Any:
        """A Python number or other constant; a symbol is specialised."""
        value = value.realise(self.t)
        if isinstance(value, SymbolicValue):
            return value.concrete(self.t)
        if isinstance(value, TensorValue):
            raise GraphBreak("data-dependent-value", "a tensor is used as a Python number")
        try:
            return self.t.wrapper.to_python(value)
        except NotConstant as error:
            raise GraphBreak("unsupported-operation", f"{error} is used where a constant is needed") from None


def fits_an_index(number: int) -> int:
    """The number; one too large for C has an error of its own in every function, or none where Python's integers are taken."""
    if not -sys.maxsize <= number <= sys.maxsize:
        raise GraphBreak("unsupported-call", "an integer that is too large for an index")
    return number


def _takes(method: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether a model has a parameter for each of these arguments."""
    counts = _counts(method)
    if counts is not None and not kwargs:
        return counts[0] <= len(args) <= counts[1]
    try:
        _signature(method).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


@functools.cache
def _counts(method: Callable[..., Any]) -> tuple[int, float] | None:
    """How few and how many arguments a function takes by position; None where it needs some by name."""
    few, many = 0, 0.0
    for parameter in _signature(method).parameters.values():
        needed = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            many = math.inf
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            few, many = few + needed, many + 1
        elif parameter.kind is parameter.KEYWORD_ONLY and needed:
            return None
    return few, many


_signature = functools.cache(inspect.signature)


def _looks_for_nan(given: tuple[Any, ...]) -> bool:
    """Whether what compares the parts of these may ask whether some nan is the very one, as every comparison of containers does."""
    return any(map(_is_container, given)) and any(map(_holds_nan, given))


def _holds_nan(obj: Any) -> bool:
    if not _is_container(obj):
        return is_nan(obj)
    if isinstance(obj, dict):
        return any(map(_holds_nan, (*obj, *obj.values())))
    # A class that is made of a tuple may have an `__iter__` of the program's.
    return any(map(_holds_nan, tuple.__iter__(obj) if isinstance(obj, tuple) else obj))


def _is_container(obj: Any) -> bool:
    return type(obj) in _MUTABLE or type(obj) is frozenset or issubclass(type(obj), tuple)


def _may_be_shared(result: Any) -> bool:
    """Whether all calls may share what a pure function made."""
    return type(result) in _SHARED or isinstance(result, tuple) or issubclass(type(result), types.GenericAlias)


def _holds(result: Any, made: Any) -> bool:
    """Whether a mutable argument is what a function returned, or in it."""
    if result is made:
        return True
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, list | tuple) else ()
    return any(_holds(part, made) for part in parts)
