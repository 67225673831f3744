"""Who may use the device: many processes that compile at once, or one process that is timed, never both.

In: stages that processes ask for, one thread of the runner each. Out: `enter` returns when the stage may begin. Compiling
goes on until every process that compiles has finished; then those that wait are timed, one after the other; then compiling
goes on. No process is timed while another one launches kernels.
"""

from __future__ import annotations

from threading import Condition


class Gate:
    """The stages that run now. `owner` is any hashable name of a process."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._compiling: set[object] = set()
        self._timed: object | None = None
        self._waiting = 0
        self._timing_phase = False

    def enter(self, owner: object, stage: str) -> None:
        """Wait until `owner` may "compile" or "time"; what it did before has ended."""
        with self._changed:
            self._end(owner)
            if stage == "compile":
                self._changed.wait_for(lambda: not self._timing_phase)
                self._compiling.add(owner)
                return
            self._waiting += 1
            self._changed.wait_for(lambda: not self._compiling and self._timed is None)
            self._waiting -= 1
            self._timing_phase = True
            self._timed = owner

    def leave(self, owner: object) -> None:
        """`owner` has ended."""
        with self._changed:
            self._end(owner)

    def _end(self, owner: object) -> None:
        self._compiling.discard(owner)
        if self._timed is owner:
            self._timed = None
            self._timing_phase = self._waiting > 0
        self._changed.notify_all()
