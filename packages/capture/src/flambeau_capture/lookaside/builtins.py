"""Python's builtin functions and types.

In: calls of builtins met while tracing. Out: the same on values.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import torch

from ..interp.signals import GraphBreak, TracedRaise
from ..values.base import MISSING, Value
from ..values.builtins import BoundBuiltin, BuiltinValue, ClassValue
from ..values.constants import ConstantValue
from ..values.functions import ClosureValue, FunctionValue, MethodValue, PartialValue
from ..values.iterators import ComputedIterator, GeneratorValue
from ..values.mappings import DictValue, SetValue
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .registry import impure, replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

impure(
    builtins.open,
    builtins.exec,
    builtins.eval,
    builtins.compile,
    builtins.__import__,
    builtins.breakpoint,
)


@replaces(builtins.print, builtins.input)
def prints(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("input-output", "print() or input() is called")


@replaces(builtins.len)
def length(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.length(args[0])


@replaces(builtins.isinstance)
def is_instance(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value, classes = args[0], t.class_or_tuple(args[1])
    cls = value.python_type()
    if isinstance(t.class_lookup(cls, "__class__"), property):
        raise GraphBreak("unsupported-call", f"isinstance() of {cls.__qualname__}, which names its class itself")
    t.asked_of_class(cls, classes)
    if isinstance(value, ObjectValue) and value.object is not MISSING:
        return ConstantValue(isinstance(value.object, classes))
    if isinstance(value, TensorValue):
        if value.tensor is not MISSING:
            return ConstantValue(isinstance(value.tensor, classes))
        return ConstantValue(
            isinstance(torch.empty(0, dtype=value.fake.dtype, device="meta"), classes) or issubclass(cls, classes)
        )
    if value.is_constant():
        return ConstantValue(isinstance(value.constant(), classes))
    return ConstantValue(issubclass(cls, classes))


@replaces(builtins.issubclass)
def is_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls, classes = t.concrete(args[0]), t.class_or_tuple(args[1])
    t.asked_of_class(cls, classes)
    return ConstantValue(issubclass(cls, classes))


@replaces(builtins.type)
def type_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise GraphBreak("unsupported-call", "a class is made")
    return t.wrap_pinned(args[0].python_type())


@replaces(builtins.callable)
def is_callable(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(
        value, (FunctionValue, ClosureValue, MethodValue, BuiltinValue, BoundBuiltin, ClassValue, PartialValue)
    ):
        return ConstantValue(True)
    return ConstantValue("__call__" in dir(value.python_type()))


@replaces(builtins.getattr)
def get_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = t.concrete(args[1])
    try:
        return t.get_attribute(args[0], name)
    except TracedRaise as error:
        if len(args) > 2 and issubclass(error.value.python_type(), AttributeError):
            return args[2]
        raise


@replaces(builtins.hasattr)
def has_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        t.get_attribute(args[0], t.concrete(args[1]))
    except TracedRaise as error:
        if issubclass(error.value.python_type(), AttributeError):
            return ConstantValue(False)
        raise
    return ConstantValue(True)


@replaces(builtins.setattr)
def set_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    t.set_attribute(args[0], t.concrete(args[1]), args[2])
    return ConstantValue(None)


@replaces(builtins.delattr)
def del_attr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delete_attribute(t, t.concrete(args[1]))
    return ConstantValue(None)


@replaces(builtins.iter)
def make_iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        function, sentinel = args

        def step(t: Tracer) -> Value | None:
            found = t.call(function, [], {})
            return None if t.same_or_equal(found, sentinel) else found

        return ComputedIterator(type(iter(int, 1)), step)
    return t.iterate(args[0])


@replaces(builtins.next)
def next_item(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = args[0].next(t)
    if found is not None:
        return found
    if len(args) > 1:
        return args[1]
    value = args[0].frame.returned if isinstance(args[0], GeneratorValue) else None
    raise t.raised(StopIteration(), value=value)


@replaces(builtins.range)
def make_range(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(range(*(int(t.concrete(a)) for a in args)))


@replaces(builtins.slice)
def make_slice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.make_slice(args)


@replaces(builtins.enumerate)
def make_enumerate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = t.concrete(args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0)))
    source = t.iterate(args[0])
    position = [start]

    def step(t: Tracer) -> Value | None:
        item = source.next(t)
        if item is None:
            return None
        position[0] += 1
        return t.sequence([ConstantValue(position[0] - 1), item], tuple)

    return ComputedIterator(enumerate, step, lambda: (source, ConstantValue(position[0])))


@replaces(builtins.zip)
def make_zip(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    sources = [t.iterate(arg) for arg in args]
    strict = "strict" in kwargs and t.truth(kwargs["strict"])

    def step(t: Tracer) -> Value | None:
        items: list[Value] = []
        for i, source in enumerate(sources):
            item = source.next(t)
            if item is None:
                if strict and (i or any(other.next(t) is not None for other in sources[1:])):
                    raise t.raised(ValueError("zip() arguments have different lengths"))
                return None
            items.append(item)
        return t.sequence(items, tuple) if items else None

    return ComputedIterator(zip, step, None if strict else lambda: sources)


@replaces(builtins.map)
def make_map(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, *sources = args[0], *(t.iterate(arg) for arg in args[1:])

    def step(t: Tracer) -> Value | None:
        items = []
        for source in sources:
            item = source.next(t)
            if item is None:
                return None
            items.append(item)
        return t.call(function, items, {})

    return ComputedIterator(map, step, lambda: (function, *sources))


@replaces(builtins.filter)
def make_filter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, source = args[0], t.iterate(args[1])

    def step(t: Tracer) -> Value | None:
        while (item := source.next(t)) is not None:
            kept = item if function.is_constant() else t.call(function, [item], {})
            if t.truth(kept):
                return item
        return None

    return ComputedIterator(filter, step, lambda: (function, source))


@replaces(builtins.reversed)
def make_reversed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], ObjectValue) and args[0].special(t, "__reversed__") is not None:
        return t.call(t.get_attribute(args[0], "__reversed__"), [], {})
    if isinstance(args[0], TensorValue):
        raise GraphBreak("unsupported-call", "reversed() of a tensor")
    return t.iterate(t.sequence(list(reversed(list(t.iterate_all(args[0])))), list))


@replaces(builtins.sorted)
def make_sorted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(
        t.sort(list(t.iterate_all(args[0])), kwargs.get("key"), "reverse" in kwargs and t.truth(kwargs["reverse"]))
    )


@replaces(builtins.any)
def any_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(any(t.truth(item) for item in t.iterate_all(args[0])))


@replaces(builtins.all)
def all_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(all(t.truth(item) for item in t.iterate_all(args[0])))


@replaces(builtins.sum)
def sum_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))
    for item in t.iterate_all(args[0]):
        total = t.binary("+", total, item)
    return total


def _extremum(t: Tracer, args: Args, kwargs: Kwargs, symbol: str, symbolic: Any) -> Value:
    items = list(t.iterate_all(args[0])) if len(args) == 1 else list(args)
    if not items:
        if "default" in kwargs:
            return kwargs["default"]
        raise t.raised(
            ValueError("max() arg is an empty sequence" if symbol == ">" else "min() arg is an empty sequence")
        )
    key = kwargs.get("key")
    best, best_key = items[0], t.call(key, [items[0]], {}) if key is not None else items[0]
    for item in items[1:]:
        item_key = t.call(key, [item], {}) if key is not None else item
        if (
            key is None
            and (isinstance(item, SymbolicValue) or isinstance(best, SymbolicValue))
            and not isinstance(item, TensorValue)
            and not isinstance(best, TensorValue)
            and item.python_type() is best.python_type()
        ):
            best = best_key = t._symbolic(symbolic, [best, item])
        elif t.truth(t.compare(symbol, item_key, best_key)):
            best, best_key = item, item_key
    return best


@replaces(builtins.max)
def maximum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _extremum(t, args, kwargs, ">", torch.sym_max)


@replaces(builtins.min)
def minimum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _extremum(t, args, kwargs, "<", torch.sym_min)


@replaces(builtins.abs)
def absolute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        return t.record("call_function", abs, args, {})
    if isinstance(args[0], SymbolicValue):
        return t._symbolic(abs, args)
    return t.fold(abs, args, {})


@replaces(builtins.pow)
def power(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.binary("**", args[0], args[1]) if len(args) == 2 else t.fold(pow, args, {})


@replaces(builtins.divmod)
def divide(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.sequence([t.binary("//", args[0], args[1]), t.binary("%", args[0], args[1])], tuple)


@replaces(builtins.bool)
def to_bool(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(t.truth(args[0])) if args else ConstantValue(False)


@replaces(builtins.int)
def to_int(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SymbolicValue):
        return args[0] if args[0].python_type() is int else t._symbolic(torch.sym_int, args)
    if args and isinstance(args[0], TensorValue):
        raise GraphBreak("data-dependent-value", "int() of a tensor")
    return t.fold(int, args, kwargs)


@replaces(builtins.float)
def to_float(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SymbolicValue):
        return args[0] if args[0].python_type() is float else t._symbolic(torch.sym_float, args)
    if args and isinstance(args[0], TensorValue):
        raise GraphBreak("data-dependent-value", "float() of a tensor")
    return t.fold(float, args, kwargs)


@replaces(builtins.round)
def rounded(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        return t.record("call_function", torch.round, args, {})
    if any(isinstance(a, SymbolicValue) for a in args):
        return t.computed(round, args, kwargs)
    return t.fold(round, [t.from_python(t.concrete(a)) for a in args], kwargs)


@replaces(builtins.str)
def to_str(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.to_text(args[0], "str") if len(args) == 1 else t.fold(str, args, kwargs)


@replaces(builtins.repr)
def to_repr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.to_text(args[0], "repr")


@replaces(builtins.format)
def formatted(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.format(args[0], args[1] if len(args) > 1 else ConstantValue(""))


@replaces(builtins.hash)
def hash_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args[0].is_constant():
        return t.fold(hash, args, {})
    raise GraphBreak("unsupported-call", "hash() of an object")


@replaces(builtins.id)
def id_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    real = args[0].real()
    if real is MISSING or args[0].source is None:
        raise GraphBreak("unsupported-call", "id() of an object made in the function")
    t.guards.identity(args[0].source, real)
    return ConstantValue(id(real))


@replaces(builtins.list)
def to_list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(list(t.iterate_all(args[0])) if args else [])


@replaces(builtins.tuple)
def to_tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(list(t.iterate_all(args[0])) if args else [], tuple)


@replaces(builtins.set)
def to_set(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return SetValue({t.hashable(item): item for item in t.iterate_all(args[0])} if args else {})


@replaces(builtins.frozenset)
def to_frozenset(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return SetValue({t.hashable(item): item for item in t.iterate_all(args[0])} if args else {}, frozenset)


@replaces(builtins.dict)
def to_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({})
    made.m_update(t, *args, **kwargs)
    return made


@replaces(dict.fromkeys)
def from_keys(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({})
    for key in t.iterate_all(args[0]):
        made.set_item(t, key, args[1] if len(args) > 1 else ConstantValue(None))
    return made


@replaces(object.__new__)
def new_object(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.make_instance(args[0], args[1:])


@replaces(tuple.__new__, dict.__new__, list.__new__)
def new_container(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.make_instance(args[0], args[1:])


@replaces(builtins.property, builtins.classmethod, builtins.staticmethod)
def makes_descriptor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "a descriptor is made in the function")


@replaces(builtins.globals, builtins.locals, builtins.vars, builtins.dir)
def namespaces(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return t.get_attribute(args[0], "__dict__")
    raise GraphBreak("unsupported-call", "globals(), locals() or dir()")
