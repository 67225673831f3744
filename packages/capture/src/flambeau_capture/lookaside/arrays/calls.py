"""How calls of NumPy's functions are taken: computed by NumPy itself where all arguments are known, else by a rule of ours.

In: `@computes(function, …)` on a rule `(tracer, …) -> Value`, whose parameters are those of the function. Out: replacements. An argument that a rule has no
parameter for, and whatever it does not take, is a graph break: the array is computed by NumPy then.
"""

from __future__ import annotations

import types
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ...class_names import name_of
from ...library import functools, inspect
from ...numpy_classes import ARRAY, floating_errors_raise, numpy
from ...replacements import replaces
from ...signals import GraphBreak
from ...values.base import MISSING
from ...values.builtins import RealValue
from ...values.ndarrays import ArrayValue, MemoryValue
from ...values.sequences import ListValue, SliceValue, TupleValue
from ...values.symbolic import SymbolicValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...values.base import Tracer, Value

    Rule = Callable[..., Value]

_WRITING = frozenset(
    ("__setitem__", "fill", "sort", "partition", "put", "itemset", "resize", "setfield", "setflags", "byteswap")
)
"""Methods that write to the array."""
LARGEST = 2**22
"""Elements of the largest array that NumPy makes while tracing, and that compiled code copies at each call."""


class Unknown(Exception):
    """An argument is not known while tracing."""


def refuse(function: Any, what: str) -> NoReturn:
    """Leave a call to NumPy."""
    raise GraphBreak("numpy", f"{name_of(function)} {what}")


def computes(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a rule for functions that do the same."""

    def register(rule: Rule) -> Rule:
        for target in targets:
            replaces(target, as_given=True)(functools.partial(_call, target, rule))
        return rule

    return register


def only_folds(*targets: Any) -> None:
    """Register functions that are computed where all arguments are known, and nowhere else."""

    def rule(t: Tracer, *args: Value, **kwargs: Value) -> Value:
        raise GraphBreak("numpy", "a function of an array that the graph computes")

    computes(*targets)(rule)


def _call(target: Any, rule: Rule, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    args = [value.realise(t) for value in args]
    kwargs = {name: value.realise(t) for name, value in kwargs.items()}
    if not t.config.trace_numpy:
        refuse(target, "is called, and trace_numpy is off")
    read = target.__get__ if isinstance(target, types.GetSetDescriptorType) else target
    folded = fold(t, read, args, kwargs)
    if folded is not None:
        return folded
    try:
        _signature(rule).bind(t, *args, **kwargs)
    except TypeError:
        refuse(target, "with these arguments")
    return rule(t, *args, **kwargs)


_signature = functools.cache(inspect.signature)


# what is known


def fold(t: Tracer, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call by NumPy itself; None where it does not know all arguments."""
    met: list[ArrayValue] = []
    try:
        real = [known(t, value, met) for value in args]
        keyword = {name: known(t, value, met) for name, value in kwargs.items()}
    except Unknown:
        return None
    try:
        with warnings.catch_warnings(record=True, action="always") as told, floating_errors_raise():
            result = function(*real, **keyword)
    except FloatingPointError:
        refuse(function, "warns or raises, as NumPy is told to")
    except Exception as error:
        raise t.exceptions.raised(error) from None
    if told:
        refuse(function, "warns")
    if (
        name_of(function) in _WRITING
        or keyword.get("out") is not None
        or (isinstance(function, numpy.ufunc) and len(real) > function.nin)
    ):
        t.heap.wrote()
    return _wrapped(t, function, result, met)


def known(t: Tracer, value: Value, met: list[ArrayValue] | None = None) -> Any:
    """The real object; arrays that the trace made are noted in `met`. Raises Unknown."""
    value = value.realise(t)
    if isinstance(value, ArrayValue):
        found = value.real_now()
        if found is None:
            raise Unknown
        if met is not None:
            met.append(value)
        return found
    if value.is_constant():
        return value.constant()
    if isinstance(value, SymbolicValue):
        return value.concrete(t)
    if isinstance(value, (TupleValue, ListValue)) and value.cls in (tuple, list, torch.Size):
        items = [known(t, item, met) for item in value.items]
        return items if isinstance(value, ListValue) else tuple(items)
    if isinstance(value, SliceValue):
        return slice(*(known(t, part, met) for part in value.parts))
    if isinstance(value, RealValue) and value.real() is not MISSING and isinstance(value.real(), type):
        return value.real()
    raise Unknown


def _wrapped(t: Tracer, function: Any, result: Any, met: Sequence[ArrayValue]) -> Value:
    """What NumPy gave as a value. Views of arrays among the arguments lie in the memory of these."""
    if isinstance(result, (tuple, list)) and type(result) in (tuple, list):
        return t.wrapper.sequence([_wrapped(t, function, part, met) for part in result], type(result))
    if type(result) is not ARRAY:
        return t.wrapper.from_python(result)
    given = next((value for value in met if value.known is result), None)
    if given is not None:
        return given
    if result.size > LARGEST:
        refuse(function, "makes a large array")
    root = result
    while type(root.base) is ARRAY:
        root = root.base
    memory = next((value.memory for value in met if value.memory is not None and value.memory.root is root), None)
    if root.base is not None or not (root.flags.c_contiguous or root.flags.f_contiguous) or not result.flags.writeable:
        refuse(function, "makes an array in memory that is not its own")
    return ArrayValue(None, known=result, memory=memory or MemoryValue(root))


def made_of(t: Tracer, array: Any) -> ArrayValue:
    """A value for an array that the trace has just made."""
    return ArrayValue(None, known=array, memory=MemoryValue(array))


def constant(t: Tracer, value: Value | None, function: Any) -> Any:
    """An argument that a rule needs to know; None where it is not given."""
    if value is None:
        return None
    try:
        return known(t, value)
    except Unknown:
        refuse(function, "of what is not known while tracing")


NO_VALUE = None if numpy is None else numpy._NoValue
