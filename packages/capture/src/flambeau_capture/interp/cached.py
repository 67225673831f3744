"""Functions with a cache (`functools.lru_cache`): what they answer is what the cache holds, or else what their body gives.

In: a cached function and arguments as values. Out: the answer as a value, guarded where another one could be in the cache; or a break.
How often the cache was asked while compiling shows in its counts, nowhere else.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..captured import CallFunction
from ..class_names import type_name
from ..constant_objects import is_constant_object
from ..library import functools, gc
from ..signals import GraphBreak, TracedRaise
from ..sources.source import CallResult, Pinned
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.members import may_be_hashed
from ..values.sequences import TupleValue
from ..values.symbolic import SymbolicValue
from ..values.trust import is_pure_module, is_pure_native

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer


def call_cached(t: Tracer, value: Value, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """A call of the cached `function`, which `value` stands for."""
    inner = getattr(function, "__wrapped__", None)
    # An attribute like any other: what the cache calls is only known to be among what it holds.
    if not any(inner is held for held in gc.get_referents(function)):
        raise GraphBreak("unsupported-call", "a cached function whose __wrapped__ was assigned")
    if function.cache_parameters()["maxsize"] == 0:  # nothing is held
        return t.caller.call(t.wrapper.wrap_pinned(inner), args, kwargs)
    for arg in (*args, *kwargs.values()):
        _refuse_unhashable(t, arg)
    return _Call(t, value, function, inner, args, kwargs).answer()


def _refuse_unhashable(t: Tracer, value: Value) -> None:
    """Raise what a cache does that looks for this argument."""
    value = value.realise(t)
    if isinstance(value, TupleValue) and value.cls is tuple:
        for item in value.items:
            _refuse_unhashable(t, item)
    elif value.python_type().__hash__ is None:
        raise t.exceptions.raised(TypeError(f"unhashable type: '{type_name(value.python_type())}'"))
    elif (real := value.real()) is not MISSING and not may_be_hashed(real):
        raise GraphBreak("unsupported-call", f"a cached function of {value.describe()}, which is asked for its hash")


def _is_symbol(value: Value) -> bool:
    return isinstance(value, SymbolicValue)


class _Call:
    """One call of a cached function."""

    def __init__(
        self,
        t: Tracer,
        value: Value,
        function: Any,
        inner: Any,
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
    ) -> None:
        self.t, self.value, self.function, self.inner, self.args, self.kwargs = t, value, function, inner, args, kwargs
        self.constant = all(t.wrapper.is_foldable(arg) for arg in (*args, *kwargs.values()))
        self.before = t.heap.size()
        known = self.constant or all(t.wrapper.is_foldable(arg) or _is_symbol(arg) for arg in (*args, *kwargs.values()))
        self.always_same = known and depends_on_arguments_alone(inner)

    def answer(self) -> Value:
        """The body is traced, for what it reads and changes; then the cache is asked where its answer can differ."""
        t, calls, mark = self.t, len(self.t.heap.calls), self.t.graph.mark()
        try:
            result = t.caller.call(t.wrapper.wrap_pinned(self.inner), self.args, self.kwargs)
        except GraphBreak as error:
            # It answers the same to the same arguments, whenever it is asked: but not to what this frame has changed before.
            if not self.constant or error.code == "input-output" or any(t.heap.size()) or t.graph.rewind(mark):
                raise
            return self._ask()
        except TracedRaise:
            if self.always_same:
                raise
            raise GraphBreak(
                "unsupported-call", "a cached function that raises, and may have an older answer"
            ) from None
        if len(t.heap.calls) > calls:
            return self._call_later(result, calls)
        if isinstance(result, ConstantValue | SymbolicValue):
            return self._constant(result)
        if any(t.heap.size()) or t.graph.rewind(mark):
            raise GraphBreak("unsupported-call", "a cached function that makes an object")
        return self._object()

    def _call_later(self, result: Value, calls: int) -> Value:
        """What the body leaves for after the graph is done by a call through the cache, so once."""
        heap = self.t.heap
        known = all(self.t.wrapper.is_foldable(arg) or arg.real() is not MISSING for arg in self.args)
        if self.kwargs or not known:
            raise GraphBreak("input-output", "a cached function with effects")
        heap.calls[calls:] = [CallFunction(self.value, tuple(self.args))]
        if not isinstance(result, ConstantValue | SymbolicValue):
            raise GraphBreak("unsupported-call", "a cached function that makes an object")
        return result

    def _constant(self, result: Value) -> Value:
        """A number or text: the cache may hold an older answer, and has to hold this one from now on."""
        t = self.t
        if t.heap.size() != self.before:
            raise GraphBreak("unsupported-call", "a cached function with effects, which a call may have had before")
        if self.always_same:
            return t.folder.fold(self.function, self.args, self.kwargs) if self.constant else result
        if any(self.before):
            self._refuse_what_was_changed(result)
        return self._ask()

    def _refuse_what_was_changed(self, result: Value) -> None:
        """Break where the body reads what this frame has changed before: the cache, asked now, would keep what was there until then."""
        given, named, _ = self._real()
        if not self.constant or not result.is_constant() or not same(self.inner(*given, **named), result.constant()):
            raise GraphBreak("unsupported-call", "a cached function that may read what was changed before")

    def _real(self) -> tuple[list[Any], dict[str, Any], Value | None]:
        """The arguments, and the one among them that is no constant; a break where there are several."""
        t = self.t
        objects = [arg for arg in self.args if not t.wrapper.is_foldable(arg)]
        exist = all(arg.source is not None and arg.real() is not MISSING for arg in objects)
        if not exist or len(objects) > 1 or not all(map(t.wrapper.is_foldable, self.kwargs.values())):
            raise GraphBreak("unsupported-call", "a cached function of arguments that are not constant")
        given = [t.wrapper.to_python(arg) if t.wrapper.is_foldable(arg) else arg.real() for arg in self.args]
        return (
            given,
            {name: t.wrapper.to_python(arg) for name, arg in self.kwargs.items()},
            objects[0] if objects else None,
        )

    def _ask(self) -> Value:
        """The answer of the cache; every call asks again."""
        t, function = self.t, self.function
        given, named, owner = self._real()
        found = self._found(given, named)
        if not is_constant_object(found):
            raise GraphBreak("unsupported-call", "a cached function with an older answer that is an object")
        answer = t.wrapper.from_python(found)
        told = f"the answer {answer.describe()}"
        if owner is None:
            t.guards.holds(Pinned(function), lambda ask: same(ask(*given, **named), found), told)
        else:
            place = next(i for i, arg in enumerate(self.args) if arg is owner)
            first, rest = given[:place], given[place + 1 :]
            assert owner.source is not None
            t.guards.holds(owner.source, lambda obj: same(function(*first, obj, *rest, **named), found), told)
        return answer

    def _found(self, given: list[Any], named: dict[str, Any]) -> Any:
        """What the cache answers now."""
        try:
            return self.function(*given, **named)
        except Exception as error:
            raise self.t.exceptions.raised(error) from None

    def _object(self) -> Value:
        """The very object that the cache holds, asked for real; every call asks again, as it would in eager."""
        t, function = self.t, self.function
        if not self.constant:
            raise GraphBreak(
                "unsupported-call", "a cached function that makes an object of arguments that are not constant"
            )
        given, named, _ = self._real()
        found = self._found(given, named)
        asked = functools.partial(function, *given, **named) if given or named else function
        t.wrapper.keep_alive.append(asked)
        return t.wrapper.wrap(found, CallResult(Pinned(asked)))


def same(found: Any, expected: Any) -> bool:
    """Whether two answers are one, or equal in a way that no program can tell."""
    return found is expected or (type(found) is type(expected) and repr(found) == repr(expected))


def depends_on_arguments_alone(function: Any) -> bool:
    """Whether a function reads nothing but its arguments, builtins and pure functions: then all its answers are equal.

    Names of attributes are taken for globals too where there is one of that name.
    """
    if not isinstance(function, types.FunctionType) or function.__closure__ or function.__defaults__:
        return False
    if function.__kwdefaults__ or any(isinstance(const, types.CodeType) for const in function.__code__.co_consts):
        return False
    return all(_is_pure(function.__globals__, name) for name in function.__code__.co_names)


def _is_pure(namespace: dict[str, Any], name: str) -> bool:
    if name not in namespace:
        return True  # a builtin, or an attribute
    found = namespace[name]
    if isinstance(found, types.ModuleType):
        return is_pure_module(found)
    return isinstance(found, types.FunctionType | types.BuiltinFunctionType | type) and is_pure_native(found)
