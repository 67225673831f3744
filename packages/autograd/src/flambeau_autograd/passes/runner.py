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
from ..errors import OptionError
from ..joint.record import Joint
from .common import merge_common
from .dead import remove_dead
from .fold import fold_no_ops
from .results import gradient_roots, separate_gradients, separate_results

Pass = tuple[str, Callable[[Joint], int]]
PASSES: tuple[Pass, ...] = (
    ("dead_code", remove_dead),
    ("no_ops", fold_no_ops),
    ("common_subexpressions", merge_common),
    ("dead_code_again", remove_dead),
    ("separate_results", separate_results),
)
#: What the option ``disabled_joint_passes`` can name: what makes a graph smaller or saves less. The others make it right.
SWITCHES = ("dead_code", "no_ops", "common_subexpressions", "dead_code_again", "min_cut")


@frozen
class PassReport:
    """What one pass did: `changes` nodes in `seconds`."""

    name: str
    changes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.changes} changes in {self.seconds * 1e3:.1f} ms"


def disabled_passes(config: Config) -> frozenset[str]:
    """The passes that are left out. Raises `OptionError` for a name that does not exist."""
    found = frozenset(filter(None, (part.strip() for part in config.disabled_joint_passes.split(","))))
    if unknown := found.difference(SWITCHES):
        raise OptionError(
            f"disabled_joint_passes: there is no pass {min(unknown)!r} that can be left out",
            hint=f"there are: {', '.join(SWITCHES)}",
        )
    return found


def run_passes(joint: Joint, config: Config) -> list[PassReport]:
    """Run every pass once."""
    reports = []
    disabled = disabled_passes(config)
    last: Pass = ("separate_gradients", partial(separate_gradients, traced=gradient_roots(joint)))
    for name, run in (*PASSES, last):
        if name in disabled or (run is fold_no_ops and not config.joint_graph_constant_folding):
            continue
        start = time.perf_counter()
        changes = run(joint)
        reports.append(PassReport(name, changes, time.perf_counter() - start))
        if config.log_passes:
            log.logger.info(log.PASS, name=name, changes=changes, graph=str(joint.graph))
    return reports
