"""What a compilation did, as records: graphs, breaks, guards, programs, seconds.

In: what the stages report while they work (`Recorder`). Out: `Explanation`, frozen and printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, frozen

from flambeau_runtime import Artifact

if TYPE_CHECKING:
    # Only a region with CUDA graphs loads what records them.
    from flambeau_runtime.graphs import GraphDecision


@frozen
class BreakReason:
    """Why a graph ended.

    Attributes:
        file, line, function: the user's position.
        code: stable code of the reason.
        reason: one sentence.
        hint: what to do about it.
    """

    file: str
    line: int
    function: str
    code: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: [{self.code}] {self.reason}\n    hint: {self.hint}"


@frozen
class GraphRecord:
    """One captured graph.

    Attributes:
        code: the graph as Python.
        operations: calls in it.
        inputs: placeholders in it.
    """

    code: str
    operations: int
    inputs: int


@frozen
class ProgramRecord:
    """One compiled program (a forward or a backward).

    Attributes:
        kind: "forward" or "backward".
        kernels: launches of generated kernels; those of a branch, or of a loop's step, count once.
        library_calls: library calls by name, with how often each is made, counted likewise.
        fused_operations: ATen operations that live in generated kernels.
        cached: whether it came from the disk cache.
        artifact: the program itself; `artifact.text()` prints it.
    """

    kind: str
    kernels: int
    library_calls: Mapping[str, int]
    fused_operations: int
    cached: bool
    artifact: Artifact

    @property
    def host_waits(self) -> tuple[str, ...]:
        """Where the host waits for the GPU in a call without CUDA graphs, with the reason; of those, see `Explanation.cuda_graphs`."""
        # Not at the top: most processes never ask.
        from flambeau_runtime import graphs

        return graphs.host_waits(self.artifact)


@frozen
class RepeatRecord:
    """Calls of a graph that were compiled once.

    Attributes:
        name: the class of the modules, or "nested_compile_region".
        calls: how many there are.
        operations: captured operations in one of them.
    """

    name: str
    calls: int
    operations: int

    def __str__(self) -> str:
        return f"{self.calls} calls of {self.name} ({self.operations} operations each)"


@define
class Recorder:
    """Collects the records of one region while it compiles."""

    graphs: list[GraphRecord] = Factory(list)
    breaks: list[BreakReason] = Factory(list)
    programs: list[ProgramRecord] = Factory(list)
    guards: list[str] = Factory(list)
    seconds: dict[str, float] = Factory(dict)
    eager_graphs: list[str] = Factory(list)
    cuda_graphs: list[GraphDecision] = Factory(list)
    repeats: list[RepeatRecord] = Factory(list)
    not_captured: str = ""

    def ran_in_eager(self, reason: str) -> None:
        """Count a graph that runs in eager because it holds something that is not modelled."""
        self.eager_graphs.append(reason)

    def spent(self, stage: str, seconds: float) -> None:
        """Add wall-clock seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


@frozen
class Explanation:
    """The result of `flambeau.explain`.

    Attributes:
        graphs, breaks, programs, guards: records in the order they came up.
        seconds: stage -> seconds.
        result: what the call returned.
        eager_graphs: why each graph that could not be compiled runs in eager.
        cuda_graphs: what CUDA graphs were recorded and what runs without one, each with its reason.
        not_captured: why nothing of the target can be captured, or "".
        repeats: calls that are alike and were compiled once.
    """

    graphs: tuple[GraphRecord, ...]
    breaks: tuple[BreakReason, ...]
    programs: tuple[ProgramRecord, ...]
    guards: tuple[str, ...]
    seconds: Mapping[str, float]
    result: Any
    eager_graphs: tuple[str, ...] = ()
    cuda_graphs: tuple[GraphDecision, ...] = ()
    not_captured: str = ""
    repeats: tuple[RepeatRecord, ...] = ()

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
        """The breaks, under the name that `torch._dynamo.explain` gives them."""
        return self.breaks

    def __str__(self) -> str:
        kernels = sum(program.kernels for program in self.programs)
        fused = sum(program.fused_operations for program in self.programs)
        lines = [
            f"graphs: {self.graph_count}, graph breaks: {self.graph_break_count}, operations: {self.op_count}, "
            f"guards: {len(self.guards)}, kernels: {kernels} (of {fused} ATen operations)"
        ]
        lines += [f"not captured: {self.not_captured}"] if self.not_captured else []
        lines += [f"break {number}: {reason}" for number, reason in enumerate(self.breaks, 1)]
        lines += [f"runs in eager: {reason}" for reason in self.eager_graphs]
        lines += [f"compiled once: {repeat}" for repeat in self.repeats]
        lines += [f"CUDA graph, {decision}" for decision in self.cuda_graphs]
        if not self.cuda_graphs:
            waits = [(program.kind, wait) for program in self.programs for wait in program.host_waits]
            lines += [f"the host waits for the GPU, {kind}: {wait}" for kind, wait in waits]
        lines += [f"{stage}: {seconds:.3f} s" for stage, seconds in self.seconds.items()]
        return "\n".join(lines)
