"""The executor that a recording is made with where data decides what runs: branches and loops become parts of the recording.

In: an artifact's kernels and constants, a recorder that has conditions. Out: the results of a run, in memory that each replay fills.
It is the Python executor: what it does between instructions costs once a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import define

from .. import artifact as a
from ..executor_py import Branch, PythonExecutor, Values
from .recorder import Recorder


def decides_by_data(instructions: Sequence[a.Instruction]) -> bool:
    """Whether a branch or loop among the instructions, or in a program that they call, is decided while it runs."""
    inner = [i for i in instructions if isinstance(i, a.Subprogram)]
    return any(
        i.kind in ("cond", "while") or any(decides_by_data(program.instructions) for program in i.programs)
        for i in inner
    )


@define
class DecidingExecutor(PythonExecutor):
    """Has ``recorder`` choose and repeat. Runs within a recording only."""

    recorder: Recorder | None = None

    def choose(self, decides: Any, yes: Branch, no: Branch, operands: Values) -> Values:
        """Both branches are recorded; a number decides already now."""
        if not isinstance(decides, torch.Tensor):
            return PythonExecutor.choose(self, decides, yes, no, operands)
        assert self.recorder is not None
        return self.recorder.choose(decides, yes, no, operands)

    def repeat(self, carried: Values, asks: Callable[[Values], Any], step: Callable[[Values], Values]) -> Values:
        """One step is recorded."""
        assert self.recorder is not None
        return self.recorder.repeat(carried, asks, step)
