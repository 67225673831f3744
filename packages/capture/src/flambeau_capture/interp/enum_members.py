"""Members of enums: constants, but what operators and functions do with them may be a method that the program wrote, or puts there later.

In: real objects, among them members, that a function is about to be called with. Out: guards that their classes have no such methods, a
break where they have; for operators and texts, the method itself.
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from ..class_names import HEAP_TYPE, class_qualname
from ..constant_objects import PLAIN_TYPES, is_constant_object
from ..library import collections, copy, operator
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.members import NATIVE_METHODS
from ..values.trust import is_trusted_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..values.base import Tracer

TEXTS = ("__str__", "__repr__", "__format__")
_NOT_ASKED = frozenset((
    "__class__", "__class_getitem__", "__delattr__", "__dict__", "__doc__", "__getattribute__", "__getnewargs__", "__getstate__", "__init__",
    "__init_subclass__", "__module__", "__new__", "__setattr__", "__slots__", "__subclasshook__", "__weakref__",
))  # fmt: skip
_ELSEWHERE = (
    "__array__", "__await__", "__bytes__", "__call__", "__ceil__", "__complex__", "__copy__", "__deepcopy__", "__enter__", "__exit__", "__float__",
    "__floor__", "__fspath__", "__getattr__", "__imatmul__", "__index__", "__int__", "__length_hint__", "__matmul__", "__missing__", "__next__",
    "__reversed__", "__rmatmul__", "__round__", "__torch_function__", "__trunc__", "__iadd__", "__isub__", "__imul__", "__ipow__", "__itruediv__",
    "__ifloordiv__", "__imod__", "__ilshift__", "__irshift__",
)  # fmt: skip
_ALL = tuple(
    sorted(
        {name for kind in (int, str, bytes, list, dict, set) for name in dir(kind) if name[:2] == "__"}.union(
            _ELSEWHERE
        ).difference(_NOT_ASKED)
    )
)
"""What functions may ask of an argument's class: the special methods of Python's own classes, and those that only other classes have."""


def _operator_names() -> dict[Callable[..., Any], tuple[str, ...]]:
    turned = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
    found: dict[Callable[..., Any], tuple[str, ...]] = {
        getattr(operator, name): (f"__{name}__", f"__{other}__", "__eq__") for name, other in turned.items()
    }
    for name in ("add", "sub", "mul", "truediv", "floordiv", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"):
        plain = (f"__{name}__", f"__r{name}__")
        found[getattr(operator, name, None) or getattr(operator, f"{name}_")] = plain
        found[getattr(operator, f"i{name}")] = (f"__i{name}__", *plain)
    found.update({getattr(operator, name): (f"__{name}__",) for name in ("neg", "pos", "invert", "index")})
    return found


_FUNCTIONS: dict[Callable[..., Any], tuple[str, ...]] = {
    **_operator_names(),
    str: TEXTS, repr: TEXTS, ascii: TEXTS, format: TEXTS, hash: ("__hash__", "__eq__"), len: ("__len__",),
    bool: ("__bool__", "__len__"), iter: ("__iter__", "__getitem__"),
    int: ("__int__", "__index__", "__trunc__"), float: ("__float__", "__index__"), abs: ("__abs__",), round: ("__round__", "__index__"),
    copy.copy: ("__copy__", "__reduce_ex__", "__reduce__"), copy.deepcopy: ("__deepcopy__", "__reduce_ex__", "__reduce__"),
}  # fmt: skip
"""What these functions ask of an argument's class; others may ask anything."""
_ASKED = {id(function): names for function, names in _FUNCTIONS.items()}
"""The same by identity: not everything that is called has a hash, and a weak reference asks its object for it."""


def is_member(value: Value) -> bool:
    """Whether a value is a member of an enum."""
    return isinstance(value, ConstantValue) and isinstance(value.value, enum.Enum)


def hold_methods(t: Tracer, function: Callable[..., Any], objects: Iterable[Any]) -> None:
    """Guard that no method of the program takes part where a function is called with these objects."""
    for cls in _classes(objects):
        for name in _ASKED.get(id(function), _ALL):
            found, _ = t.members.class_member(cls, name)
            if _is_written(found):
                raise GraphBreak("unsupported-operation", f"{name} of {class_qualname(cls)}, which the program wrote")


def _classes(objects: Iterable[Any]) -> Iterator[type]:
    for made in objects:
        kind = type(made)
        if kind in PLAIN_TYPES:
            continue
        if issubclass(kind, enum.Enum):
            yield kind
            continue
        if kind.__flags__ & HEAP_TYPE and not is_trusted_namespace(kind):
            yield kind
        if issubclass(kind, dict):
            yield from _classes(made)
            yield from _classes(made.values())
        elif issubclass(kind, tuple | list | set | frozenset | collections.deque):
            yield from _classes(made)


def _is_written(found: Any) -> bool:
    """Whether a class member is the program's: neither absent, nor native, nor the standard library's."""
    if found is MISSING or found is None or isinstance(found, NATIVE_METHODS):
        return False
    return not (isinstance(found, types.FunctionType) and is_trusted_namespace(found.__globals__))


def special(t: Tracer, member: Any, name: str) -> Value | None:
    """The special method that the program wrote for a member, bound to it."""
    found, _ = t.members.class_member(type(member.value), name)
    if not _is_written(found):
        return None
    return t.attributes.bind_class_attribute(member, type(member.value), name, found)


def to_text(t: Tracer, member: Any, name: str, args: Sequence[Value]) -> Value | None:
    """What `__str__`, `__repr__` or `__format__` gives where the program wrote one of the three; None where it did not."""
    cls = type(member.value)
    if not any(_is_written(t.members.class_member(cls, text)[0]) for text in TEXTS):
        if not is_constant_object(member.value.value):
            raise GraphBreak("unsupported-call", f"{name} of {member.describe()}, whose value may change")
        return None
    found, owner = t.members.class_member(cls, name)
    if owner is object and name == "__str__":
        found, owner = t.members.class_member(cls, "__repr__")
        name = "__repr__"
    if isinstance(found, NATIVE_METHODS):
        return None
    return t.caller.call(t.attributes.bind_class_attribute(member, cls, name, found), args, {})


def construct(t: Tracer, cls: type[enum.Enum], args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`cls(value)`: a member by its value, else what `_missing_` says, which a program may write. Of a class without members, another class."""
    if not cls._member_map_ and (len(args) != 1 or kwargs):
        raise GraphBreak("unsupported-call", f"{class_qualname(cls)}() makes a class, another one at each call")
    found, _ = t.members.class_member(cls, "_missing_")
    written = not is_trusted_namespace(getattr(getattr(found, "__func__", None), "__globals__", cls))
    if written and not (len(args) == 1 and not kwargs and _has(cls, t.folder.concrete(args[0]))):
        raise GraphBreak("unsupported-call", f"{class_qualname(cls)}._missing_, which the program wrote")
    return t.folder.fold(cls, args, kwargs)


def _has(cls: type[enum.Enum], value: Any) -> bool:
    if type(value) in PLAIN_TYPES:
        return value in cls._value2member_map_
    return isinstance(value, cls)


__all__ = ["TEXTS", "construct", "hold_methods", "is_member", "special", "to_text"]
