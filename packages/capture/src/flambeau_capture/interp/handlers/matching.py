"""Patterns of `match` statements (PEP 634).

In: the subject and what a pattern asks of it. Out: whether it has that, and its parts. What the interpreter calls is called here: `get` of a mapping,
`isinstance` for a class, attributes by name. A pattern that it refuses breaks the graph, so that Python says why.
"""

from __future__ import annotations

import builtins
import collections.abc
from typing import TYPE_CHECKING

from ...signals import GraphBreak, TracedRaise
from ...values.constants import ConstantValue
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ...values.base import Value
    from ..frame import Frame

#: Bits of `type.__flags__` (CPython's Include/object.h): what `match` goes by. Registering a class with an abstract one sets them too.
_IS_SEQUENCE, _IS_MAPPING, _MATCHES_ITSELF = 1 << 5, 1 << 6, 1 << 22


@handles("GET_LEN")
def get_len(f: Frame, i: Instruction) -> None:
    f.push(f.stack[-1].length(f.tracer))


@handles("MATCH_SEQUENCE")
def match_sequence(f: Frame, i: Instruction) -> None:
    f.push(_has_flag(f, _IS_SEQUENCE, collections.abc.Sequence))


@handles("MATCH_MAPPING")
def match_mapping(f: Frame, i: Instruction) -> None:
    f.push(_has_flag(f, _IS_MAPPING, collections.abc.Mapping))


def _has_flag(f: Frame, flag: int, abstract: type) -> ConstantValue:
    """Whether the subject's class has the flag; guarded, as a class of the program's may be registered later."""
    cls = f.stack[-1].python_type()
    f.tracer.caller.asked_of_class(cls, abstract)
    return ConstantValue(bool(cls.__flags__ & flag))


@handles("MATCH_KEYS")
def match_keys(f: Frame, i: Instruction) -> None:
    """Each key is looked up with the mapping's own `get`, whatever else it overrides."""
    subject, t = f.stack[-2], f.tracer
    keys = list(t.operators.iterate_all(f.stack[-1]))
    if not all(key.is_constant() for key in keys) or len({key.constant() for key in keys}) < len(keys):
        raise _refused("keys that are no constants, or two that are equal")
    if not keys:
        f.push(t.wrapper.sequence([], tuple))
        return
    found: list[Value] = []
    if subject.python_type() is dict:
        if all(subject.contains(t, key) for key in keys):
            found += [subject.get_item(t, key) for key in keys]
    else:
        absent = object()
        get, default = t.attributes.get_attribute(subject, "get"), t.wrapper.wrap_pinned(absent)
        for key in keys:
            value = t.caller.call(get, [key, default], {}).realise(t)
            if value is default:
                break
            found.append(value)
    f.push(t.wrapper.sequence(found, tuple) if len(found) == len(keys) else ConstantValue(None))


@handles("MATCH_CLASS")
def match_class(f: Frame, i: Instruction) -> None:
    names = list(f.pop().constant())
    cls, subject, t = f.pop(), f.pop(), f.tracer
    if not issubclass(cls.python_type(), type):
        raise _refused("what is no class")
    if not t.caller.call(t.wrapper.wrap_pinned(builtins.isinstance), [subject, cls], {}).constant():
        f.push(ConstantValue(None))
        return
    positional = _positional(f, cls, i.arg or 0)
    wanted = [*(positional or []), *names]
    if len(set(wanted)) < len(wanted):
        raise _refused("an attribute twice")
    found = [subject] if positional is None else []
    for name in wanted:
        try:
            found.append(t.attributes.get_attribute(subject, name))
        except TracedRaise as error:
            if not issubclass(error.value.python_type(), AttributeError):
                raise
            f.push(ConstantValue(None))
            return
    f.push(t.wrapper.sequence(found, tuple))


def _positional(f: Frame, cls: Value, count: int) -> list[str] | None:
    """Names of the attributes that sub-patterns by position are for; None where the one is for the subject itself."""
    if not count:
        return []
    try:
        names = f.tracer.attributes.get_attribute(cls, "__match_args__").realise(f.tracer)
    except TracedRaise:
        if count == 1 and cls.real().__flags__ & _MATCHES_ITSELF:
            return None
        raise _refused("more by position than the class tells of") from None
    if names.python_type() is not tuple or not names.is_constant():
        raise _refused("a class whose __match_args__ is no tuple of texts")
    known = names.constant()
    if len(known) < count or any(type(name) is not str for name in known[:count]):
        raise _refused("more by position than the class tells of")
    return list(known[:count])


def _refused(what: str) -> GraphBreak:
    return GraphBreak("unsupported-instruction", f"a pattern for {what}")
