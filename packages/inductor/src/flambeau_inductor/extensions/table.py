"""What is registered, in order, and how it is taken back.

In: entries, each of a kind ("lowering"), with a name and a ``uuid``. Out: ``Registration`` handles; ``entries()``, which are part of the key of a compiled
graph: whoever registers something without a ``uuid`` has graphs compiled anew in each process, for nothing tells whether it is what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from attrs import define, field, frozen

from ..errors import ExtensionError


@frozen(eq=False)
class Entry:
    """``payload`` is what the compiler works with; ``name`` is unique among entries of a ``kind``."""

    kind: str
    name: str
    uuid: str | None
    payload: Any


@define(eq=False)
class _Table:
    """``entries`` is replaced as a whole, so that who goes through them sees one state. ``lock`` is held by who changes something, from what is checked to what listeners are told."""

    entries: tuple[Entry, ...] = ()
    edition: int = 0
    listeners: tuple[Callable[[], None], ...] = ()
    lock: threading.RLock = field(factory=threading.RLock)

    def put(self, entries: tuple[Entry, ...]) -> None:
        self.edition += 1
        self.entries = entries
        for listener in self.listeners:
            listener()
        self.edition += 1


_TABLE = _Table()


def entries(kind: str = "") -> tuple[Entry, ...]:
    """What is registered now, the earliest first; of one kind, or all."""
    return tuple(entry for entry in _TABLE.entries if not kind or entry.kind == kind)


def edition() -> int:
    """Another number after each change: where it is the same before and after a compilation, that saw one state."""
    return _TABLE.edition


def on_change(listener: Callable[[], None]) -> None:
    """Call ``listener`` whenever something was registered or taken back."""
    with _TABLE.lock:
        _TABLE.listeners += (listener,)


class Registration:
    """What a registration gives: a decorator where the function was left out, and a context that takes it back.

    ``enter(function)`` makes the entries, and nothing is registered or taken back meanwhile. Graphs that were compiled before stay as they are, in memory until ``flambeau.compiler.reset()``.
    """

    def __init__(self, enter: Callable[[Callable[..., Any]], list[Entry]], function: Callable[..., Any] | None) -> None:
        self._enter = enter
        self._made: list[Entry] = []
        if function is not None:
            self(function)

    @staticmethod
    def of(*made: Entry) -> Registration:
        """Of entries that wait for no function."""
        registration = Registration(lambda function: [], None)
        registration._put(lambda: list(made))
        return registration

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register ``function``, which is given back."""
        if not callable(function):
            raise ExtensionError(f"a function is registered, not {function!r}")
        self._put(lambda: self._enter(function))
        return function

    def _put(self, make: Callable[[], list[Entry]]) -> None:
        with _TABLE.lock:
            if self._made:
                raise ExtensionError("this registration has its function already")
            made = make()
            names = {(entry.kind, entry.name) for entry in _TABLE.entries}
            for entry in made:
                if (entry.kind, entry.name) in names:
                    raise ExtensionError(
                        f"there is a {entry.kind} {entry.name} already", hint="remove() it before, or give another name"
                    )
            self._made = made
            _TABLE.put((*_TABLE.entries, *made))

    def remove(self) -> None:
        """Take it back; a second time does nothing."""
        with _TABLE.lock:
            if self._made:
                made, self._made = self._made, []
                _TABLE.put(tuple(entry for entry in _TABLE.entries if entry not in made))

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
