"""What a run of a program shows, written down: values, layouts, memory, identities, errors, output.

In: any object, at some moment of a run. Out: `Entry` records in the order of a walk, which two runs can be compared by. Objects and memories
get the number of their first appearance in the run, so that "the same list as in the call before" is part of what is compared.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import Factory, define, frozen
from torch import Tensor, nn

_DEEPEST, _LONGEST = 12, 40
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, slice)
_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, types.MethodWrapperType)
_ROWS = (list, tuple, collections.deque, type({}.keys()), type({}.values()), type({}.items()))


@frozen
class Entry:
    """One thing seen.

    Attributes:
        path: where, as in `call 1: result[0].grad`.
        kind: which aspect: `value`, `type`, `strides`, ...
        value: what was seen; a tensor's values are a copy of them.
    """

    path: str
    kind: str
    value: Any


@define
class Observer:
    """Writes entries; keeps what it numbered alive, so that a number stays with its object.

    Attributes:
        entries: in order.
        odd_bools: whether a bool was seen whose byte is neither 0 nor 1, as writes through a view of another dtype leave it.
    """

    entries: list[Entry] = Factory(list)
    odd_bools: bool = False
    _numbers: dict[int, int] = Factory(dict)
    _memories: dict[int, tuple[int, int]] = Factory(dict)
    _kept: list[Any] = Factory(list)

    def show(self, path: str, value: Any) -> None:
        """Write down `value`, and all that hangs on it."""
        self._walk(path, value, 0, set())

    def note(self, path: str, kind: str, value: Any) -> None:
        """Write down one fact."""
        self.entries.append(Entry(path, kind, value))

    def error(self, path: str, error: BaseException) -> None:
        """Write down an exception, with those behind it."""
        chain: BaseException | None = error
        self.note(path, "raised", type(error).__name__)
        self._walk(f"{path}.error", error, 0, set())
        for _ in range(3):
            chain = (chain.__cause__ or chain.__context__) if chain is not None else None
            self.note(f"{path}.error", "context", None if chain is None else type(chain).__name__)

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
        return self._numbers[id(value)]

    def _walk(self, path: str, value: Any, depth: int, seen: set[int]) -> None:
        if isinstance(value, _PLAIN):
            self.note(path, "value", f"{type(value).__name__} {value!r}")
        elif isinstance(value, _OF_TORCH):
            self.note(path, "value", f"{type(value).__name__} {value}")
        elif isinstance(value, enum.Enum):
            self.note(path, "value", str(value))
        elif isinstance(value, _NAMED):
            self.note(path, "value", f"{type(value).__name__} {getattr(value, '__qualname__', value.__name__)}")
        elif depth > _DEEPEST:
            self.note(path, "value", "...")
        elif isinstance(value, tuple | frozenset):
            self._contents(path, value, depth, seen)
        else:
            self.note(path, "object", self._number(value))
            if id(value) not in seen:
                seen.add(id(value))
                self._contents(path, value, depth, seen)

    def _contents(self, path: str, value: Any, depth: int, seen: set[int]) -> None:
        if isinstance(value, Tensor):
            self._tensor(path, value, depth, seen)
            return
        if not isinstance(value, nn.Module):
            self.note(path, "type", type(value).__qualname__)
        for name, part in itertools.islice(_parts(value), _LONGEST):
            self._walk(f"{path}{name}", part, depth + 1, seen)

    def _tensor(self, path: str, value: Tensor, depth: int, seen: set[int]) -> None:
        self.note(path, "type", type(value).__name__)
        self.note(path, "dtype", value.dtype)
        self.note(path, "shape", tuple(value.shape))
        self.note(path, "requires_grad", value.requires_grad)
        self.note(path, "is_leaf", value.is_leaf)
        if value.layout is torch.strided and not value.is_quantized:
            self.note(path, "strides", _promised_strides(path, value))
            # Where the first tensor seen of a memory begins in it says nothing.
            storage = value.untyped_storage()
            if storage._cdata not in self._memories:
                self._memories[storage._cdata] = (len(self._memories), value.storage_offset())
                # The tensor alone would not keep it: `m.double()` gives a parameter another one.
                self._kept.append(storage)
            number, start = self._memories[storage._cdata]
            self.note(path, "memory", (number, value.storage_offset() - start))
            if value.dtype is torch.bool:
                self.odd_bools |= bool((value.detach().view(torch.uint8) > 1).any())
            self.note(path, "tensor", value.detach().resolve_conj().resolve_neg().clone())
        if value.is_leaf:
            self._walk(f"{path}.grad", value.grad, depth + 1, seen)
        for name, part in vars(value).items():
            self._walk(f"{path}.{name}", part, depth + 1, seen)


def _promised_strides(path: str, value: Tensor) -> tuple[int | None, ...]:
    """The strides that a compiled run has to keep. A gradient's in a dimension of one element are not among them: they say nothing about memory,
    the engine itself passes over them where it takes a gradient for `.grad`, and eager's come of whichever of several sums was first."""
    if not path.endswith(".grad"):
        return value.stride()
    return tuple(None if size == 1 else step for size, step in zip(value.shape, value.stride(), strict=True))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, by name, in an order that does not depend on hashes."""
    if isinstance(value, nn.Module):
        yield from _module_parts(value)
    elif isinstance(value, BaseException):
        # In which call the stack ran out says nothing.
        yield ".args", () if isinstance(value, RecursionError) else value.args
        # A compiled program may add a note that says where it was.
        yield from ((name, part) for name, part in _attributes(value) if name != ".__notes__")
    elif isinstance(value, Mapping | types.MappingProxyType):
        yield from ((f"[{_short(key)}]", part) for pair in value.items() for key, part in [pair])
        if isinstance(value, collections.defaultdict):
            yield ".default_factory", value.default_factory
        yield ".order", tuple(_short(key) for key in value)
        yield from _attributes(value)
    elif isinstance(value, set | frozenset):
        yield "{}", tuple(sorted(map(_short, value)))
    elif isinstance(value, _ROWS):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
        yield from _attributes(value)
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from ((".func", value.__func__), (".self", value.__self__))
    elif isinstance(value, weakref.ref):
        yield "()", value()
    elif isinstance(value, Iterator):
        yield from ((f"<{number}>", part) for number, part in enumerate(itertools.islice(value, _LONGEST)))
    else:
        yield from _attributes(value)


def _module_parts(value: nn.Module) -> Iterator[tuple[str, Any]]:
    yield ".training", value.training
    yield from ((f".{name}", part) for name, part in value.named_parameters(recurse=False))
    yield from ((f".{name}", part) for name, part in value.named_buffers(recurse=False))
    yield from ((f".{name}", part) for name, part in value.named_children())
    own = {name: part for name, part in vars(value).items() if not name.startswith("_") and name != "training"}
    yield from ((f".{name}", part) for name, part in own.items())


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ()) if base.__module__.startswith("sweep_program") else ()
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


def _short(key: Any) -> str:
    return repr(key) if isinstance(key, _PLAIN) else type(key).__name__
