"""Python's builtin functions and types.

In: calls of builtins met while tracing. Out: the same on values.
"""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_qualname
from ..interp.assumed_branches import is_assumed, truth_of_argument
from ..interp.conversions import bool_of
from ..library import collections, functools
from ..replacements import impure, replaces
from ..signals import GraphBreak, TracedRaise
from ..values.base import MISSING, Value
from ..values.builtins import ClassValue
from ..values.by_index import ReversedIterator
from ..values.constants import ConstantValue
from ..values.iterators import BackwardIterator, ComputedIterator
from ..values.mappings import DictView
from ..values.members import is_native_access
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, TupleValue
from ..values.subclasses import SubclassValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

impure(
    builtins.exec,
    builtins.eval,
    builtins.compile,
    builtins.__import__,
)


@replaces(builtins.print, builtins.input)
def prints(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("input-output", "print() or input() is called")


@replaces(builtins.len)
def length(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[0].length(t)


@replaces(builtins.isinstance)
def is_instance(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value, classes = args[0], t.caller.class_or_tuple(args[1])
    cls = value.python_type()
    if isinstance(t.members.class_lookup(cls, "__class__"), property):
        raise GraphBreak("unsupported-call", f"isinstance() of {class_qualname(cls)}, which names its class itself")
    t.caller.asked_of_class(cls, classes)
    try:
        if isinstance(value, ObjectValue) and not is_native_access(cls):
            return ConstantValue(_is_by_class(t, value, cls, classes))
        if isinstance(value, ObjectValue) and value.object is not MISSING:
            return ConstantValue(isinstance(value.object, classes))
        if isinstance(value, (TensorValue, SubclassValue)):
            return ConstantValue(_is_tensor_of(t, value, classes))
        if value.is_constant():
            return ConstantValue(isinstance(value.constant(), classes))
        return ConstantValue(issubclass(cls, classes))
    except TypeError as error:
        raise t.exceptions.raised(TypeError(str(error).replace(*_ASKED))) from None


def _is_by_class(t: Tracer, value: ObjectValue, cls: type, classes: Any) -> bool:
    """`isinstance` of an object whose `__getattribute__` is the program's: it is asked for the class where that of the object does not do."""
    if isinstance(classes, tuple | types.UnionType):
        parts = classes if isinstance(classes, tuple) else classes.__args__
        return any(_is_by_class(t, value, cls, one) for one in parts)
    if issubclass(cls, classes):
        return True
    access: Any = t.attributes.special_method(value, "__getattribute__")
    asked = t.caller.call(access, [ConstantValue("__class__")], {})
    if asked.real() is not cls:
        raise GraphBreak("unsupported-call", f"isinstance() of {class_qualname(cls)}, which names its class itself")
    return False


_ASKED = (
    "issubclass() arg 2 must be a class, a tuple of classes, or a union",
    "isinstance() arg 2 must be a type, a tuple of types, or a union",
)


_TYPED_TENSORS: Any = type(torch.FloatTensor)


def _is_tensor_of(t: Tracer, value: TensorValue | SubclassValue, classes: Any) -> bool:
    """`isinstance`; classes such as `torch.FloatTensor` look at the dtype and the device, `nn.Parameter` at a mark."""
    if isinstance(value, TensorValue) and value.tensor is not MISSING:
        return isinstance(value.tensor, classes)
    if isinstance(classes, tuple):
        return any(_is_tensor_of(t, value, one) for one in classes)
    if isinstance(classes, _TYPED_TENSORS):
        fake = value.fake if isinstance(value, TensorValue) else value.plain.fake
        return fake.dtype is classes.dtype and fake.device.type == ("cuda" if classes.is_cuda else "cpu")
    if classes is torch.nn.Parameter and isinstance(value, SubclassValue) and value.is_parameter(t):
        return True
    return issubclass(value.python_type(), classes)


@replaces(builtins.issubclass)
def is_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls, classes = t.folder.concrete(args[0]), t.caller.class_or_tuple(args[1])
    if not isinstance(cls, type):
        t.folder.real_error(issubclass, args, {})
    t.caller.asked_of_class(cls, classes, "__subclasscheck__")
    try:
        return ConstantValue(issubclass(cls, classes))
    except TypeError as error:
        raise t.exceptions.raised(error) from None


@replaces(builtins.type)
def type_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise GraphBreak("unsupported-call", "a class is made")
    return t.wrapper.wrap_pinned(args[0].python_type())


@replaces(builtins.callable)
def is_callable(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(callable_value(t, args[0]))


def callable_value(t: Tracer, value: Value) -> bool:
    """`callable(value)`."""
    return t.members.class_lookup(value.python_type(), "__call__") is not MISSING


def _attribute_name(t: Tracer, value: Value) -> str:
    """The name that `getattr` and its like are given; with anything but a string, Python has an error to tell."""
    name = t.folder.concrete(value)
    if type(name) is not str:
        raise GraphBreak("unsupported-call", "the name of an attribute is no string")
    return name


@replaces(builtins.getattr)
def get_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = _attribute_name(t, args[1])
    try:
        return t.attributes.get_attribute(args[0], name)
    except TracedRaise as error:
        if len(args) > 2 and issubclass(error.value.python_type(), AttributeError):
            return args[2]
        raise


@replaces(builtins.hasattr)
def has_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        t.attributes.get_attribute(args[0], _attribute_name(t, args[1]))
    except TracedRaise as error:
        if issubclass(error.value.python_type(), AttributeError):
            return ConstantValue(False)
        raise
    return ConstantValue(True)


@replaces(builtins.setattr)
def set_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].set_attribute(t, _attribute_name(t, args[1]), args[2])
    return ConstantValue(None)


@replaces(builtins.delattr)
def del_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delete_attribute(t, _attribute_name(t, args[1]))
    return ConstantValue(None)


@replaces(builtins.iter)
def make_iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        function, sentinel = args
        if not callable_value(t, function):
            t.folder.real_error(iter, args, {})

        def step(t: Tracer) -> Value | None:
            found = t.caller.call(function, [], {})
            return None if t.operators.same_or_equal(found, sentinel) else found

        return ComputedIterator(type(iter(int, 1)), step, ends="reached")
    return args[0].realise(t).iterate(t)


@replaces(builtins.next)
def next_item(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        found = args[0].next(t)
        return args[1] if found is None else found
    return args[0].advance(t)


@replaces(builtins.range)
def make_range(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        return ConstantValue(range(*map(t.folder.integer, args)))
    except ValueError as error:
        raise t.exceptions.raised(error) from None


@replaces(builtins.slice)
def make_slice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.operators.make_slice(args)


@replaces(builtins.enumerate)
def make_enumerate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = t.folder.integer(args[1]) if len(args) > 1 else 0
    source = args[0].realise(t).iterate(t)
    position = [start]

    def step(t: Tracer) -> Value | None:
        item = source.next(t)
        if item is None:
            return None
        position[0] += 1
        return t.wrapper.sequence([ConstantValue(position[0] - 1), item], tuple)

    return ComputedIterator(enumerate, step, lambda: (source, ConstantValue(position[0])))


@replaces(builtins.zip)
def make_zip(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and kwargs["strict"].truth(t)
    sources = [arg.realise(t).iterate(t) for arg in args]

    def step(t: Tracer) -> Value | None:
        items: list[Value] = []
        for i, source in enumerate(sources):
            item = source.next(t)
            if item is None:
                if strict:
                    _unequal(t, sources, i)
                return None
            items.append(item)
        return t.wrapper.sequence(items, tuple) if items else None

    return ComputedIterator(zip, step, None if strict else lambda: sources)


def _unequal(t: Tracer, sources: Sequence[Value], ended: int) -> None:
    """Raise what `zip(strict=True)` does when the iterable at `ended` is the first without another element."""
    several = "argument 1" if ended == 1 else f"arguments 1-{ended}"
    if ended:
        raise t.exceptions.raised(ValueError(f"zip() argument {ended + 1} is shorter than {several}"))
    for place, other in enumerate(sources[1:], 1):
        if other.next(t) is not None:
            several = "argument 1" if place == 1 else f"arguments 1-{place}"
            raise t.exceptions.raised(ValueError(f"zip() argument {place + 1} is longer than {several}"))


@replaces(builtins.map)
def make_map(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, *sources = args[0], *(arg.realise(t).iterate(t) for arg in args[1:])

    def step(t: Tracer) -> Value | None:
        items = []
        for source in sources:
            item = source.next(t)
            if item is None:
                return None
            items.append(item)
        return t.caller.call(function, items, {})

    return ComputedIterator(map, step, lambda: (function, *sources))


@replaces(builtins.filter)
def make_filter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, source = args[0], args[1].realise(t).iterate(t)

    def step(t: Tracer) -> Value | None:
        while (item := source.next(t)) is not None:
            if (item if _is_none(function) else t.caller.call(function, [item], {})).truth(t):
                return item
        return None

    return ComputedIterator(filter, step, lambda: (function, source))


@replaces(builtins.reversed)
def make_reversed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, ObjectValue) and (own := value.special(t, "__reversed__")) is not None:
        return t.caller.call(own, [], {})
    cls = value.python_type()
    if cls is list and isinstance(value, ListValue):
        return BackwardIterator(value.items, value)
    if cls in _REVERSED:
        return _reversed_of(t, value, cls)
    plain = isinstance(value, TupleValue | ConstantValue) and issubclass(cls, tuple)
    if plain and t.members.class_lookup(cls, "__reversed__") is MISSING:
        return _reversed_of(t, value, tuple)
    if isinstance(value, ObjectValue) and value.storage is None and value.special(t, "__getitem__") is not None:
        return ReversedIterator(value, t.folder.integer(value.length(t)) - 1)
    raise GraphBreak("unsupported-call", f"reversed() of {value.describe()}")


def _reversed_of(t: Tracer, value: Value, cls: type) -> Value:
    items = list(t.operators.iterate_all(value))
    # What it is over may change meanwhile: the container itself, or the dict of a view.
    held = getattr(value.dict if isinstance(value, DictView) else value, "items", ())
    before = _contents(held)

    def step(t: Tracer) -> Value | None:
        if _contents(held) != before:
            raise GraphBreak("unsupported-operation", f"changing {value.describe()} while iterating over it backwards")
        return items.pop() if items else None

    rest = None if not issubclass(cls, tuple) else lambda: [t.wrapper.sequence(items, tuple)]
    return ComputedIterator(_REVERSED[cls], step, rest, maker=reversed, ends="reached")


def _contents(held: Any) -> list[Any]:
    return [*map(id, held)] if isinstance(held, list) else list(held)


_REVERSED: dict[type, type] = {
    kind: type(reversed(kind()))
    for kind in (list, tuple, dict, collections.deque, collections.OrderedDict, str, bytes, torch.Size)
} | {range: type(reversed(range(1))), type({}.keys()): type(reversed({}.keys())), type({}.values()): type(reversed({}.values())), type({}.items()): type(reversed({}.items()))}  # fmt: skip


@replaces(builtins.sorted)
def make_sorted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = t.operators.collect(args[0])
    reverse = kwargs.get("reverse")
    return ListValue(t.operators.sort(items, kwargs.get("key"), reverse is not None and t.folder.flag(reverse)))


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.constant() is None


@replaces(builtins.any)
def any_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(any(truth_of_argument(t, item) for item in t.operators.iterate_all(args[0])))


@replaces(builtins.all)
def all_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(all(truth_of_argument(t, item) for item in t.operators.iterate_all(args[0])))


@replaces(builtins.sum)
def sum_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = args[1] if len(args) > 1 else ConstantValue(0)
    if issubclass(total.python_type(), str | bytes | bytearray):
        raise GraphBreak("unsupported-call", "sum() of text")
    numbers: list[Value] | None = [total] if _SUMS_COMPENSATE and _is_native_number(total) else None
    for item in t.operators.iterate_all(args[0]):
        if numbers is not None and _is_native_number(item):
            numbers.append(item)
            continue
        if numbers is None:
            total = t.operators.binary("+", total, item)
            continue
        if issubclass(item.python_type(), int):
            raise GraphBreak("unsupported-call", f"sum() of {item.describe()}")
        integers = numbers[0].python_type() is int and all(n.python_type() in (int, bool) for n in numbers)
        total = t.operators.binary("+", _sum_of_numbers(t, numbers), item)
        numbers = [total] if integers and total.python_type() is float else None
    return total if numbers is None else _sum_of_numbers(t, numbers)


_SUMS_COMPENSATE = sum([0.1] * 10) == 1.0
"""Whether a sum of floats carries what its additions round off (3.12 and later): until the first element that is no float and no integer."""


def _is_native_number(value: Value) -> bool:
    return value.python_type() in (int, bool, float) or (
        value.is_constant() and isinstance(value.constant(), int) and type(value.constant()).__add__ is int.__add__
    )


def _sum_of_numbers(t: Tracer, numbers: Sequence[Value]) -> Value:
    floats = [place for place, number in enumerate(numbers) if number.python_type() is float]
    if len(floats) < 2 or (len(floats) == 2 and floats[1] == len(numbers) - 1):
        return functools.reduce(
            lambda total, number: t.operators.binary("+", total, number), numbers
        )  # nothing is carried
    real = [t.folder.concrete(number) for number in numbers]
    return ConstantValue(sum(real[1:], real[0]))


def _extremum(t: Tracer, args: Args, kwargs: Kwargs, symbol: str, symbolic: Any) -> Value:
    if len(args) > 1 and "default" in kwargs:
        raise GraphBreak("unsupported-call", "a default for several arguments")
    items = list(t.operators.iterate_all(args[0])) if len(args) == 1 else list(args)
    if not items:
        if "default" in kwargs:
            return kwargs["default"]
        t.folder.real_error(max if symbol == ">" else min, [t.wrapper.sequence([], tuple)], {})
    key = kwargs.get("key")
    key = None if key is None or _is_none(key) else key
    best, best_key = items[0], t.caller.call(key, [items[0]], {}) if key is not None else items[0]
    for item in items[1:]:
        item_key = t.caller.call(key, [item], {}) if key is not None else item
        if (
            key is None
            and (isinstance(item, SymbolicValue) or isinstance(best, SymbolicValue))
            and not isinstance(item, TensorValue)
            and not isinstance(best, TensorValue)
            and item.python_type() is best.python_type()
        ):
            best = best_key = t.arithmetic.symbolic(symbolic, [best, item])
        elif t.operators.compare(symbol, item_key, best_key).truth(t):
            best, best_key = item, item_key
    return best


@replaces(builtins.max)
def maximum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _extremum(t, args, kwargs, ">", torch.sym_max)


@replaces(builtins.min)
def minimum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _extremum(t, args, kwargs, "<", torch.sym_min)


@replaces(builtins.pow)
def power(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2 or _is_none(args[2]):
        return t.operators.binary("**", args[0], args[1])
    return t.folder.fold(pow, args, {})


@replaces(builtins.bool)
def to_bool(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and isinstance(args[0], TensorValue) and not is_assumed(t, args[0]):
        return bool_of(t, args[0])
    if len(args) == 1 and isinstance(args[0], SymbolicValue) and args[0].python_type() is bool:
        return args[0]
    return ConstantValue(truth_of_argument(t, args[0])) if args else ConstantValue(False)


@replaces(builtins.str)
def to_str(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.texts.to_text(args[0], "str") if len(args) == 1 else t.folder.fold(str, args, kwargs)


@replaces(builtins.repr)
def to_repr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.texts.to_text(args[0], "repr")


@replaces(builtins.format)
def formatted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    spec = args[1] if len(args) > 1 else ConstantValue("")
    return (
        t.texts.format(args[0], spec)
        if issubclass(spec.python_type(), str)
        else t.folder.real_error(format, args, kwargs)
    )


@replaces(builtins.id)
def id_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    real = args[0].real()
    if real is MISSING or args[0].source is None:
        raise GraphBreak("unsupported-call", "id() of an object made in the function")
    t.guards.identity(args[0].source, real)
    return ConstantValue(id(real))


@replaces(builtins.property, builtins.classmethod, builtins.staticmethod)
def makes_descriptor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "a descriptor is made in the function")


@replaces(builtins.globals, builtins.locals, builtins.dir)
def namespaces(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "globals(), locals() or dir()")


@replaces(builtins.vars)
def attributes_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and (isinstance(args[0], ClassValue) or args[0].python_type().__dictoffset__):
        return t.attributes.get_attribute(args[0], "__dict__")
    raise GraphBreak("unsupported-call", "vars() of what has no __dict__")
