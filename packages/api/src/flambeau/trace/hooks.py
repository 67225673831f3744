"""What is called at the borders of the stages: each does nothing where no compile is traced.

In: graphs, artifacts, decisions. Out: records of the compile that is going on in this thread.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..calling import AroundCall, on_first_call
from .folders import Folders
from .session import RegionTrace, Session, active, part, spared

if TYPE_CHECKING:
    from flambeau_autograd.records import Prepared
    from flambeau_runtime import Artifact
    from flambeau_runtime.graphs import GraphDecision

__all__ = ["part", "reporting", "watching", "write_halves", "write_program"]

Backend = Callable[..., Callable[..., Any]]
SCRIPT, INPUTS = "run.py", "inputs.pt"


def watching(backend: Backend, trace: RegionTrace, arguments: Mapping[str, Any]) -> Backend:
    """`backend`, with the graphs that capture hands over in the trace, and where folders are asked for, a script that runs each.

    `arguments`: of the compile call, for the script. Its inputs are drawn anew; the real ones of the first call take their place where these are to be saved.
    """
    told = {name: value for name, value in arguments.items() if _has_text(value) and name != "name"}

    @functools.wraps(backend)
    def compile_watched(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        session, folders, script = active(), trace.folders, ""
        if session is None:
            return backend(gm, inputs)
        with spared(session):
            session.graph("captured", "", gm)
            if folders is not None:
                folders.write("script", session.compile_id, text=_script(gm, inputs, told))
                if trace.saves_inputs:
                    # Before it is compiled: that may edit the graph in place.
                    script = _script(gm, [], told, data=INPUTS)
        compiled = backend(gm, inputs)
        if folders is None or not script:
            return compiled
        return on_first_call(compiled, _saving(script, folders, session))

    return compile_watched


def _has_text(value: Any) -> bool:
    """Whether `repr` of an argument is what a script can say."""
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, Mapping) and all(_has_text(part) for part in value.values())
    )


def _script(gm: fx.GraphModule, inputs: list[Any], told: Mapping[str, Any], data: str = "") -> str:
    # Not at the top: only debug folders need it.
    from ..debugging.graphs import script

    return script(gm, inputs, "crash", data=data, **told)


def _saving(script: str, folders: Folders, session: Session) -> AroundCall:
    """Leaves the inputs of a call in the folder of the compile, with a script that reads them."""

    @contextmanager
    def saving(inputs: tuple[Any, ...]) -> Iterator[None]:
        with spared(session):
            buffer = io.BytesIO()
            torch.save([_leaf(value) for value in inputs], buffer)
            folders.add(session.compile_id, {INPUTS: buffer.getvalue(), SCRIPT: script.encode()})
        yield

    return saving


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not value.is_leaf:
        return value.detach().requires_grad_(value.requires_grad)
    return value


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
