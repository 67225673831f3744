"""Runs the graph passes in order, timing each.

In: a `Joint`. Out: the same `Joint`, tidied, and a `PassReport` per pass that prints as one line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from attrs import frozen

from .. import log
from ..config import Config
from ..joint.record import Joint
from .common import merge_common
from .dead import remove_dead
from .fold import fold_no_ops
from .results import gradient_roots, separate_gradients, separate_results

Pass = tuple[str, Callable[[Joint], int]]
PASSES: tuple[Pass, ...] = (
    ("dead code", remove_dead),
    ("no-ops", fold_no_ops),
    ("common subexpressions", merge_common),
    ("dead code again", remove_dead),
    ("separate results", separate_results),
)


@frozen
class PassReport:
    """What one pass did: `changes` nodes in `seconds`."""

    name: str
    changes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.changes} changes in {self.seconds * 1e3:.1f} ms"


def run_passes(joint: Joint, config: Config) -> list[PassReport]:
    """Run every pass once."""
    reports = []
    last: Pass = ("separate gradients", partial(separate_gradients, traced=gradient_roots(joint)))
    for name, run in (*PASSES, last):
        start = time.perf_counter()
        changes = run(joint)
        reports.append(PassReport(name, changes, time.perf_counter() - start))
        if config.log_passes:
            log.logger.info(log.PASS, name=name, changes=changes, graph=str(joint.graph))
    return reports
