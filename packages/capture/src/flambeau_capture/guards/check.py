"""The guard check in Python: the twin of the native tree and its oracle in tests.

In: specs and a frame's mappings. Out: the index of the first spec that does not hold, or -1. Slow, plain, and never entered on a hit.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..library import math
from ..sources.source import SourceError, resolve, step_from
from . import spec as gs
from .memory import share_memory
from .shape_program import compile_expression, run
from .state import current_state, takes_tf32


class Frame:
    """The mappings a source is resolved against."""

    def __init__(self, f_locals: Mapping[str, Any], f_globals: Mapping[str, Any], builtins: Any = None) -> None:
        self.locals, self.globals, self.builtins = f_locals, f_globals, builtins

    def __getitem__(self, source: Any) -> Any:
        return resolve(source, self.locals, self.globals, self.builtins)


class Resolved(Frame):
    """A frame that walks each path once: while nothing of it changes."""

    def __init__(self, f_locals: Mapping[str, Any], f_globals: Mapping[str, Any], builtins: Any = None) -> None:
        super().__init__(f_locals, f_globals, builtins)
        self._found: dict[int, Any] = {}

    def __getitem__(self, source: Any) -> Any:
        if id(source) not in self._found:
            base = getattr(source, "base", None)
            self._found[id(source)] = super().__getitem__(source) if base is None else step_from(source, self[base])
        return self._found[id(source)]


def all_hold(specs: Sequence[gs.GuardSpec], frame: Frame) -> bool:
    """Whether specs about sources hold on a frame."""
    try:
        with torch._C.DisableTorchFunction():
            return all(_holds(spec, frame) for spec in specs)
    except SourceError:
        return False


def check(
    specs: Sequence[gs.GuardSpec], f_locals: Mapping[str, Any], f_globals: Mapping[str, Any], builtins: Any = None
) -> int:
    """The first spec, in order, that does not hold; -1 when all hold. (The native tree checks in an order of its own.)"""
    return next((i for i, spec in enumerate(specs) if not holds(spec, f_locals, f_globals, builtins)), -1)


_KEYED = (dict, types.MappingProxyType)


def holds(spec: gs.GuardSpec, f_locals: Mapping[str, Any], f_globals: Mapping[str, Any], builtins: Any = None) -> bool:
    """Whether one spec holds on a frame."""
    frame = Frame(f_locals, f_globals, builtins)
    if isinstance(spec, gs.GlobalState):
        return _same_state(spec, current_state())
    try:
        with torch._C.DisableTorchFunction():  # what is read of tensors, no mode and no class of the program's is asked
            return _holds(spec, frame)
    except SourceError:
        return False


def _holds(spec: gs.GuardSpec, frame: Frame) -> bool:
    match spec:
        case gs.ModuleBindings():
            return not changed_bindings(spec)
        case gs.AliasOf(source=source, other=other):
            return frame[source] is frame[other]
        case gs.NoAlias(sources=sources):
            return len({id(frame[source]) for source in sources}) == len(sources)
        case gs.DistinctStorage(written=written, read=read):
            return not share_memory([frame[source] for source in written], [frame[source] for source in read])
        case gs.ShapeExpression(expression=expression, symbols=symbols):
            program = compile_expression(expression, [name for name, _ in symbols])
            return run(program, [frame[source] for _, source in symbols])
        case gs.SourceGuard(source=source):
            return _value_holds(spec, frame[source])
    raise TypeError(f"unknown guard {type(spec).__name__}")


def changed_bindings(spec: gs.ModuleBindings) -> list[str]:
    """The names that a module binds to other objects than it did."""
    absent = object()
    now = ((name, spec.namespace.get(name, absent), found) for name, *found in spec.bound)
    return [name for name, actual, found in now if actual is not (found[0] if found else absent)]


def _value_holds(spec: gs.GuardSpec, value: Any) -> bool:
    match spec:
        case gs.TypeIs(cls=cls):
            return type(value) is cls
        case gs.NumberIs(cls=cls, limit=limit):
            return type(value) is cls and abs(value) <= limit
        case gs.IdentityIs():
            return value is spec.expected and not (spec.is_weak and value is None)
        case gs.ConstantIs(value=expected):
            return same_constant(value, expected)
        case gs.NotConstant(value=expected):
            return not same_constant(value, expected)
        case gs.TensorMatch():
            return _tensor_matches(spec, value)
        case gs.SequenceLength(length=length):
            return hasattr(value, "__len__") and gs.own_length(value) == length
        case gs.DictKeys(keys=keys):
            if isinstance(value, dict) and dict.__len__(value) != len(keys):
                return False  # the order of an OrderedDict leaves out what a method of dict put there
            return isinstance(value, (*_KEYED, set, frozenset)) and same_constant(gs.own_keys(value), tuple(keys))
        case gs.Contains(key=key, present=present):
            return isinstance(value, (*_KEYED, set, frozenset)) and gs.has_key(value, key) == present
        case gs.SetEquals(members=members):
            return isinstance(value, (set, frozenset)) and _same_members(value, members)
        case gs.HasAttribute(attribute=attribute, present=present):
            return hasattr(value, attribute) == present
        case gs.FunctionIs(code=code, namespace=namespace):
            return isinstance(value, types.FunctionType) and value.__code__ is code and value.__globals__ is namespace
        case gs.ClassMembers(members=members):
            return all(_is_member(value, member) for member in members)
        case gs.PythonCheck(predicate=predicate):
            return _predicate_holds(predicate, value)
    raise TypeError(f"unknown guard {type(spec).__name__}")


def _is_member(cls: type, member: gs.ClassMember) -> bool:
    order = cls.__mro__
    if member.after is not None:
        if member.after not in order:
            return False
        order = order[order.index(member.after) + 1 :]
    owner = next((base for base in order if member.name in base.__dict__), None)
    if owner is not member.owner:
        return False
    return owner is None or member.allows(owner.__dict__[member.name])


def _predicate_holds(predicate: Any, value: Any) -> bool:
    try:
        return bool(predicate(value))
    except Exception:
        return False


def _same_state(expected: gs.GlobalState, now: gs.GlobalState) -> bool:
    """Equality, but for the cache switch where autocast is off, and modes go by identity."""
    if expected.autocast and expected.autocast_cache != now.autocast_cache:
        return False
    if len(expected.function_modes) != len(now.function_modes):
        return False
    pairs = zip(expected.function_modes, now.function_modes)
    if any(a is not b and not (isinstance(a, torch.device) and a == b) for a, b in pairs):
        return False
    names = (
        "grad_enabled",
        "inference_mode",
        "autocast",
        "deterministic",
        "deterministic_warn_only",
        "default_dtype",
        "dispatch_modes",
        "function_transform",
        "torch_function_enabled",
        "attention",
        "dual_level",
        "recorded",
    )
    precise = expected.tf32_products is None or expected.tf32_products == takes_tf32()
    return precise and all(getattr(expected, name) == getattr(now, name) for name in names)


def _tensor_matches(spec: gs.TensorMatch, value: Any) -> bool:
    if type(value) is not spec.cls:
        return False
    now = gs.TensorMatch.of(spec.source, value)
    return (
        (spec.dtype, spec.device, spec.requires_grad, spec.dispatch_keys)
        == (now.dtype, now.device, now.requires_grad, now.dispatch_keys)
        and _extents_match(spec.sizes, now.sizes)
        and (spec.strides is None or _extents_match(spec.strides, now.strides))
        and not spec.misplaced(value)
    )


def _extents_match(expected: tuple[int | None, ...], actual: tuple[int | None, ...] | None) -> bool:
    return (
        actual is not None
        and len(expected) == len(actual)
        and all(want is None or want == have for want, have in zip(expected, actual))
    )


def same_constant(left: Any, right: Any) -> bool:
    """Exact equality of constants: types included, floats by bits, every nan equal to every nan; others by identity."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if type(left) in (int, str, bytes) or isinstance(left, torch.device):
        return bool(left == right)
    if type(left) is float:
        return _same_float(left, right)
    if type(left) is complex:
        return _same_float(left.real, right.real) and _same_float(left.imag, right.imag)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same_constant, left, right))
    if isinstance(left, (set, frozenset)):
        return _same_members(left, right)
    if isinstance(left, (range, slice)):
        return all(same_constant(getattr(left, n), getattr(right, n)) for n in ("start", "stop", "step"))
    return False


def _same_float(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1, left) == math.copysign(1, right)


def _same_members(left: Any, right: Any) -> bool:
    mine, theirs = gs.own_keys(left), gs.own_keys(right)
    return len(mine) == len(theirs) and all(any(same_constant(a, b) for b in theirs) for a in mine)
