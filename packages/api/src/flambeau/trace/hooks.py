"""What the default stack calls at its borders: each does nothing where no compile is traced.

In: graphs, artifacts, decisions. Out: records of the compile that is going on in this thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import fx

from .session import active, part, spared

if TYPE_CHECKING:
    from flambeau_autograd.records import Prepared
    from flambeau_runtime import Artifact
    from flambeau_runtime.graphs import GraphDecision

__all__ = ["part", "reporting", "write_captured", "write_halves", "write_program"]


def write_captured(graph: fx.GraphModule) -> None:
    """The graph that capture hands over."""
    if (session := active()) is not None:
        with spared(session):
            session.graph("captured", "", graph)


def write_halves(prepared: Prepared) -> None:
    """Forward and backward, as they go to inductor."""
    if (session := active()) is not None:
        with spared(session):
            session.graph("forward", "forward", prepared.forward)
            if prepared.backward is not None:
                session.graph("backward", "backward", prepared.backward)


def write_program(kind: str, artifact: Artifact) -> None:
    """What a program consists of, measured."""
    if (session := active()) is not None:
        # Not at the top: what measures is loaded by a trace alone.
        from .programs import write_program

        with spared(session):
            write_program(session, kind, artifact)


def reporting(report: Callable[[GraphDecision], None]) -> Callable[[GraphDecision], None]:
    """`report`, which also writes each decision about CUDA graphs into the trace of the compile that goes on now: most come up in later calls."""
    session = active()
    if session is None:
        return report

    def tell(decision: GraphDecision) -> None:
        report(decision)
        session.write(
            "cuda_graph",
            program=decision.program,
            decision=decision.kind,
            reason=decision.reason,
            position=decision.position,
        )

    return tell
