"""What is registered, in order, and how it is taken back.

In: entries, each of a kind ("lowering"), with a name and a ``uuid``. Out: ``Registration`` handles; ``entries()``, which are part of the key of a compiled
graph: whoever registers something without a ``uuid`` has graphs compiled anew in each process, for nothing tells whether it is what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from attrs import frozen

from ..errors import ExtensionError


@frozen(eq=False)
class Entry:
    """``payload`` is what the compiler works with; ``name`` is unique among entries of a ``kind``."""

    kind: str
    name: str
    uuid: str | None
    payload: Any


_ENTRIES: list[Entry] = []
_LISTENERS: list[Callable[[], None]] = []
_LOCK = threading.Lock()


def entries(kind: str = "") -> tuple[Entry, ...]:
    """What is registered now, the earliest first; of one kind, or all."""
    return tuple(entry for entry in _ENTRIES if not kind or entry.kind == kind)


def on_change(listener: Callable[[], None]) -> None:
    """Call ``listener`` whenever something was registered or taken back."""
    _LISTENERS.append(listener)


def _changed() -> None:
    for listener in _LISTENERS:
        listener()


class Registration:
    """What a registration gives: a decorator where the function was left out, and a context that takes it back.

    ``enter(function)`` makes the entries. Graphs that were compiled before stay as they are, in memory until ``flambeau.compiler.reset()``.
    """

    def __init__(self, enter: Callable[[Callable[..., Any]], list[Entry]], function: Callable[..., Any] | None) -> None:
        self._enter = enter
        self._made: list[Entry] = []
        if function is not None:
            self(function)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register ``function``, which is given back."""
        if self._made:
            raise ExtensionError("this registration has its function already")
        if not callable(function):
            raise ExtensionError(f"a function is registered, not {function!r}")
        made = self._enter(function)
        with _LOCK:
            for entry in made:
                if any((entry.kind, entry.name) == (other.kind, other.name) for other in _ENTRIES):
                    raise ExtensionError(
                        f"there is a {entry.kind} {entry.name} already", hint="remove() it before, or give another name"
                    )
            _ENTRIES.extend(made)
            self._made = made
            _changed()
        return function

    def remove(self) -> None:
        """Take it back; a second time does nothing."""
        with _LOCK:
            for entry in self._made:
                _ENTRIES.remove(entry)
            self._made = []
            _changed()

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def checked_uuid(uuid: Any) -> str | None:
    """``uuid`` as it goes into keys."""
    if uuid is not None and not (isinstance(uuid, str) and uuid):
        raise ExtensionError(f"uuid takes a text that changes with what the function does, or None, not {uuid!r}")
    return uuid
