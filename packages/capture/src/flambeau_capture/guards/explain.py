"""Why a guard fails, in words.

In: a spec that does not hold and the frame it was checked on. Out: one sentence for the recompiles log, such as
`tensor L['x'] size 0: expected 4, actual 5`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from attrs import fields

from ..class_names import class_name, class_qualname
from ..constant_objects import is_constant_object
from ..library import collections, linecache
from ..sources.source import Source, SourceError, resolve
from . import spec as gs
from .check import changed_bindings, holds
from .state import current_state

_SIZED = (list, tuple, dict, set, frozenset, collections.deque, str, bytes)
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


class GuardText:
    """The guards of an entry as text, one a line; rendered only when somebody prints it."""

    __slots__ = ("specs",)

    def __init__(self, specs: tuple[gs.GuardSpec, ...]) -> None:
        self.specs = specs

    def __repr__(self) -> str:
        return "\n".join(describe(spec) for spec in self.specs)


def verbose_text(specs: tuple[gs.GuardSpec, ...]) -> str:
    """The guards of an entry, one a line, each followed by the user's line that needs it, where one does."""
    lines: list[str] = []
    for spec in specs:
        lines.append(f"{type(spec).__name__}: {describe(spec)}")
        if spec.position is not None:
            file, line, function = spec.position
            source = linecache.getline(file, line).strip()
            lines.append(f"  needed at {file}:{line} in {function}" + (f": {source}" if source else ""))
    return "\n".join(lines) + "\n"


def explain(spec: gs.GuardSpec, f_locals: Mapping[str, Any], f_globals: Mapping[str, Any], builtins: Any = None) -> str:
    """One sentence about a guard that failed on this frame, ending with the user's line where one is known."""

    def value_of(source: Source) -> Any:
        return resolve(source, f_locals, f_globals, builtins)

    try:
        # No mode and no class of the program's is asked what is read of tensors.
        with nullcontext() if isinstance(spec, gs.GlobalState) else torch._C.DisableTorchFunction():
            words = _words(spec, value_of)
        if holds(spec, f_locals, f_globals, builtins):
            words = f"{describe(spec)} held again when it was looked at a second time"
    except SourceError as error:
        words = f"{error} does not exist any more"
    except Exception as error:  # an explanation must not fail where the value is not even of the kind that was seen
        words = f"{describe(spec)} does not hold: {type(error).__name__} on looking closer"
    if spec.position is not None:
        file, line, function = spec.position
        words += f" (assumed at {file}:{line} in {function})"
    return words


def describe(spec: gs.GuardSpec) -> str:
    """The assumption as one line of Python-like text."""
    match spec:
        case gs.TypeIs(source=source, cls=cls):
            return f"type({source}) is {class_qualname(cls)}"
        case gs.NumberIs(source=source, cls=cls, limit=limit):
            return f"type({source}) is {cls.__name__} and abs({source}) <= {limit}"
        case gs.IdentityIs(source=source):
            expected = spec.expected
            return f"{source} is <{class_name(type(expected))} at {id(expected):#x}>"
        case gs.ConstantIs(source=source, value=value):
            return f"{source} == {value!r}"
        case gs.NotConstant(source=source, value=value):
            return f"{source} != {value!r}"
        case gs.TensorMatch(source=source):
            dims = ", ".join("?" if size is None else str(size) for size in spec.sizes)
            grad = ", requires_grad" if spec.requires_grad else ""
            return f"{source} is {class_name(spec.cls)}({str(spec.dtype).removeprefix('torch.')}[{dims}], {spec.device}{grad})"
        case gs.SequenceLength(source=source, length=length):
            return f"len({source}) == {length}"
        case gs.DictKeys(source=source, keys=keys):
            return f"list({source}) == {list(keys)!r}"
        case gs.Contains(source=source, key=key, present=present):
            return f"{key!r} {'in' if present else 'not in'} {source}"
        case gs.SetEquals(source=source, members=members):
            return f"{source} == {set(members)!r}"
        case gs.HasAttribute(source=source, attribute=attribute, present=present):
            return f"{'' if present else 'not '}hasattr({source}, {attribute!r})"
        case gs.FunctionIs(source=source, code=code):
            place = f"{code.co_filename}:{code.co_firstlineno}"
            return f"{source}.__code__ is {code.co_qualname} ({place}), in the same namespace"
        case gs.ClassMembers(source=source, members=members):
            return f"{source} has, as it had: {', '.join(sorted({member.name for member in members}))}"
        case gs.AliasOf(source=source, other=other):
            return f"{source} is {other}"
        case gs.NoAlias(sources=sources):
            return f"no two of {len(sources)} tensors are the same object"
        case gs.DistinctStorage(written=written):
            return f"the memory of {len(written)} written tensor{'s' if len(written) > 1 else ''} is no other's"
        case gs.ShapeExpression(expression=expression, symbols=symbols):
            return f"{expression} where " + ", ".join(f"{name} = {source}" for name, source in symbols)
        case gs.PythonCheck(source=source, description=description):
            return f"{description} of {source}"
        case gs.ModuleBindings(namespace=namespace, bound=bound):
            return f"{namespace.get('__name__')} binds, as it did: {', '.join(sorted(str(pair[0]) for pair in bound))}"
        case gs.GlobalState():
            return "torch's global state"
    return type(spec).__name__


def _words(spec: gs.GuardSpec, value_of: Any) -> str:
    match spec:
        case gs.GlobalState():
            return _state_words(spec)
        case gs.TensorMatch(source=source):
            return _tensor_words(spec, value_of(source))
        case gs.TypeIs(source=source, cls=cls):
            return f"type of {source}: expected {class_qualname(cls)}, actual {class_qualname(type(value_of(source)))}"
        case gs.NumberIs(source=source, cls=cls) if type(value_of(source)) is not cls:
            return f"type of {source}: expected {cls.__name__}, actual {class_qualname(type(value_of(source)))}"
        case gs.NumberIs(source=source, limit=limit):
            return f"{source}: expected at most {limit} in size, actual {_short(value_of(source))}"
        case gs.ConstantIs(source=source, value=value):
            return f"{source}: expected {value!r}, actual {_short(value_of(source))}"
        case gs.SequenceLength(source=source, length=length):
            value = value_of(source)
            actual = gs.own_length(value) if isinstance(value, _SIZED) else f"a {class_name(type(value))}"
            return f"len({source}): expected {length}, actual {actual}"
        case gs.DictKeys(source=source, keys=keys):
            return f"keys of {source}: expected {list(keys)!r}, actual {_short(list(gs.own_keys(value_of(source))))}"
        case gs.ModuleBindings(namespace=namespace):
            return f"{namespace.get('__name__')}: {', '.join(changed_bindings(spec))} was replaced"
        case gs.AliasOf(source=source, other=other):
            return f"{source} and {other} were one object and are two now"
        case gs.NoAlias(sources=sources):
            return _alias_words(sources, value_of)
        case gs.ShapeExpression(expression=expression, symbols=symbols):
            values = ", ".join(f"{name} = {source} = {value_of(source)!r}" for name, source in symbols)
            return f"{expression} is false for {values}"
        case gs.SourceGuard(source=source):
            return f"{describe(spec)} does not hold: actual {_short(value_of(source))}"
    return f"{describe(spec)} does not hold"


def _tensor_words(spec: gs.TensorMatch, value: Any) -> str:
    name = f"tensor {spec.source}"
    if type(value) is not spec.cls:
        return f"{name} type: expected {class_qualname(spec.cls)}, actual {class_qualname(type(value))}"
    now = gs.TensorMatch.of(spec.source, value)
    for field in ("dtype", "device", "requires_grad"):
        if getattr(spec, field) != getattr(now, field):
            return f"{name} {field}: expected {getattr(spec, field)}, actual {getattr(now, field)}"
    if len(spec.sizes) != len(now.sizes):
        return f"{name} dimensions: expected {len(spec.sizes)}, actual {len(now.sizes)}"
    for kind, expected, actual in (("size", spec.sizes, now.sizes), ("stride", spec.strides, now.strides)):
        for dim, (want, have) in enumerate(zip(expected or (), actual or ())):
            if want is not None and want != have:
                return f"{name} {kind} {dim}: expected {want}, actual {have}"
    for dim, other, want, have in spec.misplaced(value):
        return f"{name} stride {dim}: expected {want} (dimension {other} lies in front of it), actual {have}"
    keys = torch._C.DispatchKeySet.from_raw_repr(spec.dispatch_keys), torch._C._dispatch_keys(value)
    return f"{name} dispatch keys: expected {keys[0]}, actual {keys[1]}"


def _state_words(spec: gs.GlobalState) -> str:
    now = current_state()
    names = [field.name for field in fields(gs.GlobalState) if field.name != "position"]
    changed = [n for n in names if getattr(spec, n) != getattr(now, n)]
    parts = [f"{n}: expected {getattr(spec, n)}, actual {getattr(now, n)}" for n in changed]
    return "global state " + ("; ".join(parts) or "changed")


def _alias_words(sources: tuple[Source, ...], value_of: Any) -> str:
    seen: dict[int, Source] = {}
    for source in sources:
        first = seen.setdefault(id(value_of(source)), source)
        if first is not source:
            return f"{first} and {source} are the same object and were two"
    return "two tensors are the same object"


def _short(value: Any) -> str:
    """A value in a few words; no `__repr__` of the program's is called, nor torch's for tensors, which calls operators by name."""
    text = _plainly(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plainly(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{class_qualname(type(value))}.{value._name_}"
    brackets = _BRACKETS.get(type(value))
    if brackets is not None:
        return ", ".join(map(_plainly, value)).join(brackets)
    if is_constant_object(value):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return object.__repr__(value)
