"""What every stage of one compilation receives: options, timings and counters. No thread-locals.

In: a ``Config``. Out: ``CompileContext``, passed down as an argument.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen

from .config import Config
from .log import LIBRARY_CALL, STAGE_BEGUN, STAGE_DONE, STAGE_TEXT, Text, logger
from .switches import limits


@frozen
class Stage:
    """One stage while it runs."""

    name: str
    context: CompileContext

    def show(self, text: Callable[[], str], *, artifact: str = "ir_stages", dump: str = "") -> None:
        """Log what the stage made, as ``artifact``, and write it into the dump folder, in a file of the stage's name or that of ``dump``; ``text`` is
        asked only where somebody reads it."""
        logger.debug(STAGE_TEXT, artifact=artifact, stage=self.name, form=dump or self.name, text=Text(text))
        if self.context.config.dump:
            self.context.dump(dump or self.name, text())


@frozen
class CompileContext:
    """Options and the notes taken along the way (``seconds`` by stage, ``library_calls`` by reason, ``uses`` of what has a limit)."""

    config: Config = field(factory=Config)
    seconds: dict[str, float] = field(factory=dict)
    library_calls: Counter[str] = field(factory=Counter)
    uses: Counter[str] = field(factory=Counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time the block as stage ``name``."""
        logger.debug(STAGE_BEGUN, stage=name)
        start = time.perf_counter()
        try:
            yield Stage(name, self)
        finally:
            taken = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + taken
            logger.debug(STAGE_DONE, artifact="timings", stage=name, seconds=round(taken, 6))

    def allows(self, name: str) -> bool:
        """Whether a stage, pass or rule may be used once more in this graph; asking counts as a use."""
        disabled = self.config.disabled_passes
        if not disabled or (most := limits(disabled).get(name)) is None:
            return True
        self.uses[name] += 1
        return self.uses[name] <= most

    def note_library_call(self, op: str, reason: str) -> None:
        """Count an op that runs as a library call, and why."""
        self.library_calls[f"{op}: {reason}"] += 1
        logger.debug(LIBRARY_CALL, artifact="fallbacks", op=op, reason=reason)

    def dump(self, name: str, text: str) -> None:
        """Write a stage's text into the dump folder, when one is set."""
        if self.config.dump:
            folder = Path(self.config.dump)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.txt").write_text(text)
