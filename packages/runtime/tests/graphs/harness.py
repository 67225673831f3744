"""A function as a recorded program, with a recorder that needs no GPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flambeau_runtime import artifact as a
from flambeau_runtime.graphs.call import RecordedProgram
from flambeau_runtime.graphs.records import GraphDecision, GraphSettings

from .fake import FakeRecorder


class Harness:
    """A function as a recorded program, with what was decided. Programs of one ``recorder`` share a lane."""

    def __init__(
        self,
        function: Any,
        specs: list[a.InputSpec],
        native: bool,
        *,
        recorder: FakeRecorder | None = None,
        **limits: Any,
    ) -> None:
        self.recorder = recorder or FakeRecorder(native=native)
        self.decisions: list[GraphDecision] = []
        self.program = RecordedProgram(
            "test", tuple(specs), function, self.recorder, self.decisions.append, GraphSettings(**limits), native=native
        )
        self.call = self.program.table

    def reasons(self, kind: str) -> list[str]:
        return [decision.reason for decision in self.decisions if decision.kind == kind]


def tensor(register: int = 0, **flags: Any) -> a.InputSpec:
    return a.InputSpec("tensor", register, **flags)


def double(x: Tensor) -> tuple[Tensor]:
    return (x * 2,)
