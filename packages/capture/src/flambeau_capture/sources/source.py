"""Sources: how to reach a value again from a frame's locals and globals.

In: names, keys and other sources. Out: hash-consed frozen nodes (two equal paths are one object, so identity is equality and
memo tables are plain dicts). `source.name` prints Python, `resolve(source, f_locals, f_globals)` walks the path for real::

    >>> weight = Item(Item(InstanceDict(Local("self")), "_parameters"), "weight")
    >>> weight.name
    "L['self'].__dict__['_parameters']['weight']"
    >>> weight is Item(Item(InstanceDict(Local("self")), "_parameters"), "weight")
    True

Read next: `guards/spec.py` (what is assumed about a source) and `guards/build.py` (sources become accessor nodes).
"""

from __future__ import annotations

import builtins as _builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from attrs import field, fields, frozen

from ..class_names import class_name
from ..library import functools, threading, weakref

T = TypeVar("T", bound="Source")

_interned: weakref.WeakValueDictionary[tuple[Any, ...], Source] = weakref.WeakValueDictionary()
_intern_lock = threading.Lock()


class SourceError(LookupError):
    """A source could not be resolved: the object it names is not there (any more)."""


def identity_key(value: Any) -> Any:
    """A hashable stand-in for a field: 1, True and 1.0 stay apart, and so do 0.0 and -0.0; odd objects go by identity."""
    if isinstance(value, Source):
        return id(value)
    if type(value) is tuple:
        return (tuple, tuple(identity_key(item) for item in value))
    if type(value) in (float, complex):
        return (type(value), repr(value))
    if type(value) in (int, bool, str, bytes, type(None), frozenset):
        return (type(value), value)
    return ("id", id(value))


class _HashConsed(type):
    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:  # type: ignore[misc]
        found: Any
        made: T | None = None
        if kwargs or len(args) != len(_field_names(cls)):
            made = type.__call__(cls, *args, **kwargs)
            args = tuple(getattr(made, name) for name in _field_names(cls))
        key = (cls, *map(identity_key, args))
        found = _interned.get(key)
        if found is None:
            if made is None:
                made = type.__call__(cls, *args)
            with _intern_lock:
                found = _interned.setdefault(key, made)
        return found


@functools.cache
def _field_names(cls: type[Source]) -> tuple[str, ...]:
    return tuple(a.name for a in fields(cls))


@frozen(eq=False, weakref_slot=True)
class Source(metaclass=_HashConsed):
    """Abstract. A leaf class is a root (no `base`) or one step from `base`."""

    is_root: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The path as Python text; locals print as `L['x']`, globals as `G['x']`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, a.name) for a in fields(type(self)))

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return self


@frozen(eq=False)
class Local(Source):
    """A local, cell or free variable of the root frame, by name; cells are already unwrapped."""

    variable: str
    is_root: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"L[{self.variable!r}]"


@frozen(eq=False)
class Global(Source):
    """A global of the root frame's function, by name."""

    variable: str
    is_root: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"G[{self.variable!r}]"


@frozen(eq=False)
class Builtin(Source):
    """A builtin, by name."""

    variable: str
    is_root: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"B[{self.variable!r}]"


@frozen(eq=False)
class Pinned(Source):
    """An object the compiled entry keeps alive; it needs no path."""

    value: Any = field(repr=lambda v: f"<{class_name(type(v))}>")
    is_root: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"pinned<{class_name(type(self.value))} {id(self.value):#x}>"


@frozen(eq=False)
class Step(Source):
    """Abstract. One step from another source."""

    base: Source


@frozen(eq=False)
class Attribute(Step):
    """`base.attribute`, through normal attribute access."""

    attribute: str

    @property
    def name(self) -> str:
        return f"{self.base.name}.{self.attribute}"


@frozen(eq=False)
class InstanceDict(Step):
    """`base.__dict__`, never through a user's `__getattr__` or `__getattribute__`."""

    @property
    def name(self) -> str:
        return f"{self.base.name}.__dict__"


@frozen(eq=False)
class Item(Step):
    """`base[key]`; on exact lists, tuples and dicts no user code runs."""

    key: Any

    @property
    def name(self) -> str:
        return f"{self.base.name}[{_key_text(self.key)}]"


def _key_text(key: Any) -> str:
    """A key as Python text; a tensor, as an optimizer's state has, without its elements."""
    return f"<{class_name(type(key))} {id(key):#x}>" if issubclass(type(key), torch.Tensor) else repr(key)


@frozen(eq=False)
class StoredItem(Step):
    """What an instance of a subclass of dict, list or tuple holds under `key`, whatever its own `__getitem__` does."""

    key: Any

    @property
    def name(self) -> str:
        return f"stored({self.base.name})[{_key_text(self.key)}]"


@frozen(eq=False)
class DictKeyAt(Step):
    """The i-th key of a dict, in insertion order."""

    index: int

    @property
    def name(self) -> str:
        return f"list({self.base.name})[{self.index}]"


@frozen(eq=False)
class TypeOf(Step):
    """`type(base)`."""

    @property
    def name(self) -> str:
        return f"type({self.base.name})"


@frozen(eq=False)
class CellContents(Step):
    """What a closure cell holds."""

    @property
    def name(self) -> str:
        return f"{self.base.name}.cell_contents"


@frozen(eq=False)
class TensorSize(Step):
    """`base.size(dim)` of a tensor, an int."""

    dim: int

    @property
    def name(self) -> str:
        return f"{self.base.name}.size()[{self.dim}]"


@frozen(eq=False)
class TensorStride(Step):
    """`base.stride(dim)` of a tensor, an int."""

    dim: int

    @property
    def name(self) -> str:
        return f"{self.base.name}.stride()[{self.dim}]"


@frozen(eq=False)
class TensorOffset(Step):
    """`base.storage_offset()` of a tensor, an int."""

    @property
    def name(self) -> str:
        return f"{self.base.name}.storage_offset()"


@frozen(eq=False)
class CallResult(Step):
    """`base()`: a weak reference's target and the like; runs Python, so it is the last resort."""

    @property
    def name(self) -> str:
        return f"{self.base.name}()"


@frozen(eq=False)
class Computed(Step):
    """`function(base)`, a number computed from another one by a pure function; `text` says what it computes."""

    function: Callable[[Any], Any]
    text: str

    @property
    def name(self) -> str:
        return self.text


def steps(source: Source) -> Iterator[Source]:
    """The path from the root to `source`, both included."""
    path = [source]
    while isinstance(path[-1], Step):
        path.append(path[-1].base)
    return reversed(path)


def root_of(source: Source) -> Source:
    """The root a path starts from."""
    while isinstance(source, Step):
        source = source.base
    return source


def roots_of(sources: Iterable[Source]) -> set[Source]:
    """The roots that paths start from. What several paths have in common is walked once."""
    seen: set[Source] = set()
    roots: set[Source] = set()
    for source in sources:
        while source not in seen:
            seen.add(source)
            if not isinstance(source, Step):
                roots.add(source)
                break
            source = source.base
    return roots


def stored_item(container: Any, key: Any) -> Any:
    """The item by the rule of the builtin class that `container` derives from."""
    bases: tuple[Any, ...] = (dict, list, tuple)
    for base in bases:
        if isinstance(container, base):
            return base.__getitem__(container, key)
    raise TypeError(f"{type(container).__name__} is no container")


def step_from(source: Source, base: Any) -> Any:
    """Take the one step `source` stands for from the object `base`. Raises SourceError where there is nothing."""
    try:
        match source:
            case Attribute(attribute=attribute):
                return getattr(base, attribute)
            case InstanceDict():
                return object.__getattribute__(base, "__dict__")
            case Item(key=key):
                return base[key]
            case StoredItem(key=key):
                return stored_item(base, key)
            case DictKeyAt(index=index):
                return list(dict.keys(base))[index]
            case TypeOf():
                return type(base)
            case CellContents():
                return base.cell_contents
            case TensorSize(dim=dim):
                return base.size(dim)
            case TensorStride(dim=dim):
                return base.stride(dim)
            case TensorOffset():
                return base.storage_offset()
            case CallResult():
                return base()
            case Computed(function=function):
                return function(base)
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise SourceError(source.name) from error
    raise TypeError(f"{type(source).__name__} is not a step")


def resolve(
    source: Source,
    f_locals: Mapping[str, Any],
    f_globals: Mapping[str, Any],
    f_builtins: Mapping[str, Any] | None = None,
) -> Any:
    """Evaluate a source against a frame's mappings. Raises SourceError when the path leads nowhere."""
    match source:
        case Local(variable=variable):
            table: Mapping[str, Any] = f_locals
        case Global(variable=variable):
            table = f_globals
        case Builtin(variable=variable):
            table = f_builtins if f_builtins is not None else vars(_builtins)
        case Pinned(value=value):
            return value
        case Step(base=base):
            return step_from(source, resolve(base, f_locals, f_globals, f_builtins))
        case _:
            raise TypeError(f"unknown source {type(source).__name__}")
    try:
        return table[variable]
    except KeyError as error:
        raise SourceError(source.name) from error
