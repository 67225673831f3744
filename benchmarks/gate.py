"""Who may use the device: many processes that compile at once, or one process that is timed at each place, never both.

In: stages that processes ask for, one thread of the runner each. Out: `enter` returns when the stage may begin. Compiling
goes on until every process that compiles has finished; then those that wait are timed, at one place (a device, or a core) one after
the other, in the order in which they asked; then compiling goes on. No process is timed while another one launches kernels there.
"""

from __future__ import annotations

from threading import Condition


class Gate:
    """The stages that run now. `owner` is any hashable name of a process, `place` of what processes are timed on."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._compiling: set[object] = set()
        self._timed: dict[object, object] = {}
        self._waiting: dict[object, list[object]] = {}
        self._timing_phase = False

    def enter(self, owner: object, stage: str, place: object = None) -> None:
        """Wait until `owner` may "compile", or "time" at a place; what it did before has ended."""
        with self._changed:
            if stage == "compile":
                self._end(owner)
                self._changed.wait_for(lambda: not self._timing_phase)
                self._compiling.add(owner)
                return
            # It waits before it gives up its place, so that compiling does not go on between two turns.
            queue = self._waiting.setdefault(place, [])
            queue.append(owner)
            self._end(owner)
            self._changed.wait_for(lambda: not self._compiling and place not in self._timed and queue[0] is owner)
            queue.pop(0)
            self._timing_phase = True
            self._timed[place] = owner

    def leave(self, owner: object) -> None:
        """`owner` has ended."""
        with self._changed:
            self._end(owner)

    def _end(self, owner: object) -> None:
        self._compiling.discard(owner)
        for place in [place for place, timed in self._timed.items() if timed is owner]:
            del self._timed[place]
            self._timing_phase = bool(self._timed) or any(self._waiting.values())
        self._changed.notify_all()
