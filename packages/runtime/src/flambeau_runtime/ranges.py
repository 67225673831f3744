"""What programs, kernels and library calls show in torch's profiler.

In: an artifact. Out: names and facts of ranges, which the native executor asks for at the first call under a profiler. Facts are in a trace where
the profiler was told to keep arguments (``record_shapes=True``): ``ops``, ``user_lines``, ``modules``, ``bytes``, ``flops``, and ``step``, which names one
instruction of one artifact (``flambeau.profile`` finds it again by that).

A program is ``## Call CompiledFxGraph <digest> ##`` and a library call ``extern_kernels.<op>``, as in torch.compile's traces, so that tools for those know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from . import records as a

Range = tuple[str, dict[str, str | int]]
#: A profiler writes texts into its trace as they are: what would end them there is left out.
_PLAIN = str.maketrans({'"': "'", "\\": "/", "\n": " "})
_MOST_LINES = 8


def program_title(digest: str) -> str:
    """The name of the range around a call of a program."""
    return f"## Call CompiledFxGraph {digest} ##"


def step_name(digest: str, program: int, position: int) -> str:
    """The name of one instruction among those of all artifacts."""
    return f"{digest}/{program}/{position}"


def call_name(instruction: a.Call) -> str:
    """What a library call is called in a trace."""
    return f"extern_kernels.{instruction.op.partition('::')[2] or instruction.op}"


@frozen
class NamedStep:
    """A kernel launch or library call: what it is called, and what is known of it (``records.Kernel.meta``).

    ``step`` is its name among all (``step_name``), ``kind`` "kernel" or "library call".
    """

    step: str
    name: str
    kind: str
    meta: Mapping[str, Any]


def named_steps(
    digest: str, number: int, program: a.Program, kernels: Sequence[a.Kernel]
) -> Iterator[NamedStep | None]:
    """One for each instruction; None for one that neither launches nor calls."""
    for position, instruction in enumerate(program.instructions):
        name = step_name(digest, number, position)
        if isinstance(instruction, a.Launch):
            kernel = kernels[instruction.kernel]
            yield NamedStep(name, kernel.name, "kernel", kernel.meta)
        elif isinstance(instruction, a.Call):
            yield NamedStep(name, call_name(instruction), "library call", instruction.meta)
        else:
            yield None


def programs_of(program: a.Program) -> list[a.Program]:
    """The program and those nested in it, each once, in the order of their numbers."""
    found: dict[int, a.Program] = {}

    def enter(program: a.Program) -> None:
        if id(program) in found:
            return
        found[id(program)] = program
        for instruction in program.instructions:
            if isinstance(instruction, a.Subprogram):
                for nested in instruction.programs:
                    enter(nested)

    enter(program)
    return list(found.values())


def program_ranges(
    digest: str, number: int, program: a.Program, kernels: Sequence[a.Kernel]
) -> tuple[Range | None, tuple[Range | None, ...]]:
    """The range of a program (None for a nested one) and those of its instructions."""
    whole: Range | None = (program_title(digest), {}) if number == 0 else None
    steps = named_steps(digest, number, program, kernels)
    return whole, tuple(None if step is None else (step.name, _facts(step)) for step in steps)


def _facts(step: NamedStep) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"step": step.step}
    for name, key in (("ops", "ops"), ("user_lines", "stack"), ("modules", "modules")):
        values = [str(value) for value in step.meta.get(key) or ()]
        if values:
            more = f", {len(values) - _MOST_LINES} more" if len(values) > _MOST_LINES else ""
            facts[name] = (", ".join(values[:_MOST_LINES]) + more).translate(_PLAIN)
    for name in ("bytes", "flops"):
        if isinstance(step.meta.get(name), int):
            facts[name] = step.meta[name]
    return facts
