"""How a program is recorded: the interface that the state machine in ``call.py`` drives.

In: a function that queues work. Out: ``Recorded``, whose ``replay`` queues the same work again on the same memory.
``cuda.py`` implements it; tests have one for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from attrs import frozen

Values = tuple[Any, ...]
Run = Callable[[], Values]


@frozen(eq=False)
class Recorded:
    """A recording: ``outputs`` are what the run returned, in memory that ``replay`` fills again.

    ``lane`` is what its replays must not overlap with. ``reserved_bytes`` is what making it took from the device,
    ``again_bytes`` what another one like it would take.
    """

    outputs: tuple[Any, ...]
    replay: Callable[[], None]
    release: Callable[[], None]
    lane: Any
    reserved_bytes: int = 0
    again_bytes: int = 0


class Recorder(Protocol):
    """Where recordings come from.

    ``device`` is the type of the tensors that can be recorded. ``asks_itself``: the extension finds out by itself whether a capture is going on
    and which queue is the current one.
    """

    device: str
    asks_itself: bool

    def unavailable(self) -> str:
        """Why nothing may be recorded or replayed right now (a capture of the user's is going on), or ""."""

    def is_current(self, device: torch.device) -> bool:
        """Whether work queued now goes to ``device``."""

    def budget_bytes(self) -> int:
        """How much device memory all recordings together may reserve."""

    def warm(self, run: Run) -> tuple[Any, ...]:
        """Run for real, where a recording would run, so that lazy initialisation is over when one is made."""

    def places(self, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Memory for results, as flat bytes, that no recording uses as scratch."""

    def record(self, run: Run, places: Sequence[torch.Tensor] | None = None) -> Recorded:
        """Record ``run`` without doing its work. Raises what ``run`` or the recording raises, leaving nothing behind.

        With ``places``, where ``run`` leaves all its results, scratch memory may be that of other recordings.
        """

    def has_conditions(self) -> bool:
        """Whether a value on the device can decide, at each replay, what of a recording is done."""

    def choose(self, condition: torch.Tensor, yes: Run, no: Run, operands: Values) -> Values:
        """Within a recording: record both, of which a replay does one. Both give the same kinds of tensors.

        ``condition`` has one element. What is given shares no memory with ``operands``.
        """

    def repeat(
        self, carried: Values, asks: Callable[[Values], torch.Tensor], step: Callable[[Values], Values]
    ) -> Values:
        """Within a recording: record a step, which a replay does as long as ``asks`` gives a true element.

        ``carried`` are tensors, as are those that a step gives in their place. What is given shares no memory with them.
        """

    def stream(self) -> int:
        """The queue that work goes to now."""

    def follow(self, stream: int) -> None:
        """Let the current queue wait for what was queued on ``stream``."""
