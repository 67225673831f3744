"""Who may use the machine: many processes that compile at once, or one process that is timed at each place, never both.

In: stages that processes ask for, one thread of the runner each. Out: `enter` returns when the stage may begin. Compiling
goes on until every process that compiles has finished; then those that wait are timed, at one place (a device, or a core) one after
the other; then compiling goes on. No process is timed while another one launches kernels there, or starts.
"""

from __future__ import annotations

from threading import Condition


class Gate:
    """The stages that run now. `owner` is any hashable name of a process, `place` of what processes are timed on. At most `limit` processes compile at once."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._changed = Condition()
        self._compiling: set[object] = set()
        self._timed: dict[object, object] = {}
        self._waiting: dict[object, list[tuple[int, int, object]]] = {}
        self._turns: dict[object, int] = {}
        self._timing_phase = False

    def enter(self, owner: object, stage: str, place: object = None, rank: int = 0) -> None:
        """Wait until `owner` may "compile", or "time" at a place; what it did before has ended.

        Who was timed least often is next; of these the one of the lowest `rank`, so that what is compared is timed in a row.
        """
        with self._changed:
            if stage == "compile":
                if owner not in self._compiling:
                    self._end(owner)
                    self._changed.wait_for(self._may_compile)
                    self._compiling.add(owner)
                return
            # It waits before it gives up its place, so that compiling does not go on between two turns.
            queue = self._waiting.setdefault(place, [])
            turn = (self._turns.get(owner, 0), rank, owner)
            queue.append(turn)
            self._end(owner)
            self._changed.wait_for(
                lambda: not self._compiling and place not in self._timed and min(queue, key=_order) is turn
            )
            queue.remove(turn)
            self._turns[owner] = turn[0] + 1
            self._timing_phase = True
            self._timed[place] = owner

    def leave(self, owner: object) -> None:
        """`owner` has ended."""
        with self._changed:
            self._end(owner)

    def _may_compile(self) -> bool:
        return not self._timing_phase and (self._limit is None or len(self._compiling) < self._limit)

    def _end(self, owner: object) -> None:
        self._compiling.discard(owner)
        for place in [place for place, timed in self._timed.items() if timed is owner]:
            del self._timed[place]
            self._timing_phase = bool(self._timed) or any(self._waiting.values())
        self._changed.notify_all()


def _order(turn: tuple[int, int, object]) -> tuple[int, int]:
    return turn[:2]
