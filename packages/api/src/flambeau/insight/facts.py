"""What a call did, as records: the fields of an `Explanation`, which the views in this folder read.

In: the records of a `Recorder`, what was measured. Out: `Facts`, frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..records import BreakReason, FrameRecord, GraphRecord, GuardRecord, ProgramRecord, RepeatRecord

if TYPE_CHECKING:
    from flambeau_runtime.graphs import GraphDecision

    from .measure import Memory, Speed
    from .steps import Step


@frozen
class Facts:
    """What a call did, as `flambeau.explain(function)(*args)` found.

    Attributes:
        graphs, breaks, programs, guards: records in the order they came up.
        seconds: stage -> seconds.
        result: what the call returned.
        eager_graphs: why each graph that could not be compiled runs in eager.
        cuda_graphs: what CUDA graphs were recorded and what runs without one, each with its reason.
        not_captured: why nothing of the target can be captured, or "".
        repeats: calls that are alike and were compiled once.
        frames: the functions that were looked at, with the reasons of recompiles.
        kernels: kernels and library calls of all programs, in order.
        speeds: eager beside compiled, of the whole call where it changes nothing outside of itself, and of each graph.
        memory: peak bytes of each graph, planned beside eager.
        notes: what was not measured, and why.
        name: what was explained.
        left: the functions that were not looked at and run in Python: those of libraries, generators.
    """

    graphs: tuple[GraphRecord, ...]
    breaks: tuple[BreakReason, ...]
    programs: tuple[ProgramRecord, ...]
    guards: tuple[GuardRecord, ...]
    seconds: Mapping[str, float]
    result: Any
    eager_graphs: tuple[str, ...] = ()
    cuda_graphs: tuple[GraphDecision, ...] = ()
    not_captured: str = ""
    repeats: tuple[RepeatRecord, ...] = ()
    frames: tuple[FrameRecord, ...] = ()
    kernels: tuple[Step, ...] = ()
    speeds: tuple[Speed, ...] = ()
    memory: tuple[Memory, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    left: tuple[FrameRecord, ...] = ()

    # ---- the names of torch._dynamo.explain ------------------------------------------------------------------------------------

    @property
    def graph_count(self) -> int:
        """Number of captured graphs."""
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        """Number of graph breaks."""
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        """Operations in all graphs."""
        return sum(graph.operations for graph in self.graphs)

    @property
    def break_reasons(self) -> tuple[BreakReason, ...]:
        """The breaks."""
        return self.breaks

    @property
    def ops_per_graph(self) -> tuple[tuple[str, ...], ...]:
        """The names of what each graph calls."""
        return tuple(graph.ops for graph in self.graphs)

    @property
    def out_guards(self) -> tuple[GuardRecord, ...]:
        """The guards."""
        return self.guards

    @property
    def compile_times(self) -> str:
        """Seconds by stage, one a line."""
        return "\n".join(f"{stage}: {seconds:.3f} s" for stage, seconds in self.seconds.items())
