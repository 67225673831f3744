"""How the functions that have a replacement are called, so that a replacement sees arguments in one form only.

In: a callable and the arguments of a call. Out: `signature_of` (None for torch's own that tell none), `fit`: parameters that may be given
either way are positional, gaps filled with defaults; `None` where the call does not fit, which raises TypeError in Python.
"""

from __future__ import annotations

import builtins
import types
import warnings
from typing import TYPE_CHECKING, Any

from .library import collections, functools, inspect, itertools, math, operator
from .patches import unpatched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .values.base import Value

NOT_GIVEN: Any = object()
"""Default of a parameter that the function can tell from every value."""

_KINDS = inspect.Parameter
_WRITTEN: dict[Any, Callable[..., Any]] = {
    builtins.bool: lambda x=NOT_GIVEN, /: 0,
    builtins.classmethod: lambda function, /: 0,
    builtins.dict: lambda mapping=NOT_GIVEN, /, **named: 0,
    builtins.dir: lambda object=NOT_GIVEN, /: 0,
    builtins.filter: lambda function, iterable, /: 0,
    builtins.frozenset: lambda iterable=NOT_GIVEN, /: 0,
    builtins.getattr: lambda object, name, default=NOT_GIVEN, /: 0,
    builtins.iter: lambda object, sentinel=NOT_GIVEN, /: 0,
    builtins.map: lambda function, iterable, /, *iterables: 0,
    builtins.max: lambda first, /, *args, key=None, default=NOT_GIVEN: 0,
    builtins.min: lambda first, /, *args, key=None, default=NOT_GIVEN: 0,
    builtins.next: lambda iterator, default=NOT_GIVEN, /: 0,
    builtins.range: lambda start, stop=NOT_GIVEN, step=NOT_GIVEN, /: 0,
    builtins.set: lambda iterable=NOT_GIVEN, /: 0,
    builtins.slice: lambda start, stop=NOT_GIVEN, step=NOT_GIVEN, /: 0,
    builtins.staticmethod: lambda function, /: 0,
    builtins.str: lambda object=NOT_GIVEN, encoding=NOT_GIVEN, errors=NOT_GIVEN: 0,
    builtins.super: lambda cls=NOT_GIVEN, owner=NOT_GIVEN, /: 0,
    builtins.type: lambda object, bases=NOT_GIVEN, names=NOT_GIVEN, /, **named: 0,
    builtins.vars: lambda object=NOT_GIVEN, /: 0,
    builtins.int: lambda x=NOT_GIVEN, /, base=NOT_GIVEN: 0,
    builtins.zip: lambda *iterables, strict=False: 0,
    collections.OrderedDict: lambda mapping=NOT_GIVEN, /, **named: 0,
    collections.defaultdict: lambda default_factory=NOT_GIVEN, mapping=NOT_GIVEN, /, **named: 0,
    collections.deque: lambda iterable=NOT_GIVEN, maxlen=None: 0,
    functools.partial: lambda function, /, *args, **named: 0,
    functools.reduce: lambda function, iterable, initial=NOT_GIVEN, /: 0,
    itertools.chain: lambda *iterables: 0,
    itertools.islice: lambda iterable, start, stop=NOT_GIVEN, step=NOT_GIVEN, /: 0,
    itertools.product: lambda *iterables, repeat=1: 0,
    itertools.repeat: lambda object, times=NOT_GIVEN: 0,
    itertools.zip_longest: lambda *iterables, fillvalue=None: 0,
    math.hypot: lambda *coordinates: 0,
    math.log: lambda x, base=NOT_GIVEN, /: 0,
    operator.attrgetter: lambda attribute, /, *attributes: 0,
    operator.itemgetter: lambda item, /, *items: 0,
    operator.methodcaller: lambda name, /, *args, **named: 0,
    types.MappingProxyType: lambda mapping: 0,
    types.SimpleNamespace: lambda **named: 0,
    # 3.12 adds a parameter, and a signature that `inspect` cannot read.
    warnings.warn: lambda message, category=None, stacklevel=1, source=None, **named: 0,
}
"""Those of the functions written in C that do not tell their own."""


@functools.cache
def signature_of(function: Any) -> inspect.Signature | None:
    """The parameters of a callable, None where nothing tells them. Asked for at the first call: to read one of C's takes as long as a module."""
    written = next((found for target, found in _WRITTEN.items() if target is function), None)
    try:
        with unpatched():
            return inspect.signature(function if written is None else written)
    except (TypeError, ValueError):
        return None


def fit(
    signature: inspect.Signature, args: Sequence[Value], kwargs: Mapping[str, Value], value_of: Callable[[Any], Value]
) -> tuple[list[Value], dict[str, Value]] | None:
    """The arguments in their one form, None where the function does not take them."""
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if _KINDS.VAR_KEYWORD not in kinds and any(
        parameters[name].kind is _KINDS.POSITIONAL_ONLY for name in kwargs if name in parameters
    ):
        return None  # `bind` of CPython 3.13.0 takes them
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    given = bound.arguments
    named = {name for name in given if parameters[name].kind is _KINDS.POSITIONAL_OR_KEYWORD}
    positional: list[Value] = []
    for name, parameter in parameters.items():
        if parameter.kind is _KINDS.VAR_POSITIONAL:
            positional += given.get(name, ())
        elif parameter.kind not in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD):
            continue
        elif name in given:
            positional.append(given[name])
        elif named.isdisjoint(list(parameters)[list(parameters).index(name) :]):
            break
        elif parameter.default is NOT_GIVEN:
            return None
        else:
            positional.append(value_of(parameter.default))
    keywords: dict[str, Value] = {}
    for name, parameter in parameters.items():
        if parameter.kind is _KINDS.KEYWORD_ONLY and name in given:
            keywords[name] = given[name]
        elif parameter.kind is _KINDS.VAR_KEYWORD:
            keywords |= given.get(name, {})
    return positional, keywords
