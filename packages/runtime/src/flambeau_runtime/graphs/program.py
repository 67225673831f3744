"""From an artifact to a callable that records and replays CUDA graphs.

In: what ``flambeau_runtime.load`` takes, a name and a place for decisions. Out: a callable with the same convention.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from .. import artifact as a
from ..executor import load
from ..inputs import check_count, check_scalar, check_tensor
from ..log import logger
from .call import RecordedProgram
from .classify import accelerator_in, classify
from .decided import DecidingExecutor, decides_by_data
from .recorder import Recorder
from .recorders import recorder_for
from .records import GraphDecision, GraphSettings, Report
from .split import Part, passes_random_state, split

CompiledFn = Callable[..., tuple[Any, ...]]

_PROGRAMS: weakref.WeakSet[RecordedProgram] = weakref.WeakSet()
"""Every recorded program that is alive, for ``reset``."""

_NOT_THERE = "nothing of the program is on a CUDA device"


def load_graphed(
    artifact: a.Artifact,
    *,
    name: str = "program",
    report: Report | None = None,
    recorder: Recorder | None = None,
    settings: GraphSettings | None = None,
    native: bool = True,
    **options: Any,
) -> CompiledFn:
    """``load``, with everything recorded that a CUDA graph can hold.

    ``options`` are those of ``load``. ``report`` receives a ``GraphDecision`` for every choice; the log artifact
    ``cudagraphs`` shows the same. ``recorder`` is CUDA's by default. Raises what ``load`` raises.
    """
    settings = settings or GraphSettings()
    tell = _reporter(report)
    if recorder is None:
        accelerator = accelerator_in(artifact)
        recorder = recorder_for(accelerator) if accelerator else None
        if recorder is None:
            reason = f"no graphs are recorded on {accelerator.type}" if accelerator else _NOT_THERE
            tell(GraphDecision("plain", reason, name))
            return load(artifact, **options)
    conditions = recorder.has_conditions()
    parts = split(artifact, classify(artifact, recorder.device, conditions=conditions), settings)
    if passes_random_state(parts):
        verdicts = classify(artifact, recorder.device, plain_random=True, conditions=conditions)
        parts = split(artifact, verdicts, settings)
    if len(parts) > 1 and not settings.splits:
        plain = next(part for part in parts if not part.recorded)
        tell(GraphDecision("plain", f"{plain.reason}, and programs are not divided", name, plain.position))
        return load(artifact, **options)
    make = _Maker(artifact, name, recorder, tell, settings, native, options)
    if len(parts) == 1:
        return make(parts[0], name)
    steps = [make(part, f"{name}, part {number}") for number, part in enumerate(parts)]
    constants = _constants(artifact, options.get("constants", ()))
    return SplitProgram(artifact, parts, steps, constants)


def reset() -> None:
    """Drop every recording of this process and give their memory back; later calls record again."""
    for program in tuple(_PROGRAMS):
        program.reset()


class _Maker:
    """Makes the callable of one part."""

    def __init__(
        self,
        artifact: a.Artifact,
        name: str,
        recorder: Recorder,
        report: Report,
        settings: GraphSettings,
        native: bool,
        options: Mapping[str, Any],
    ) -> None:
        self._artifact, self._name, self._recorder, self._report = artifact, name, recorder, report
        self._settings, self._native, self._options = settings, native, options

    def __call__(self, part: Part, name: str) -> CompiledFn:
        """Raises what ``load`` raises."""
        artifact = evolve(self._artifact, program=part.program)
        executor = load(artifact, **self._options)
        if not part.recorded:
            self._report(GraphDecision("plain", part.reason, name, part.position))
            return executor
        program = RecordedProgram(
            name, part.program.inputs, executor, self._recorder, self._report, self._settings, native=self._native
        )
        if decides_by_data(part.program.instructions):
            program.executor_of_recordings = self._deciding(artifact)
        _PROGRAMS.add(program)
        table: CompiledFn = program.table
        return table

    def _deciding(self, artifact: a.Artifact) -> CompiledFn:
        """What recordings of a program with branches and loops are made with, loaded for the first of them."""
        made: list[CompiledFn] = []

        def run(*inputs: Any) -> tuple[Any, ...]:
            if not made:
                twin: Any = load(artifact, **{**self._options, "executor": "python"})
                given = (twin.artifact, twin.kernels, twin.constants, twin.python_functions)
                made.append(DecidingExecutor(*given, recorder=self._recorder))
            return made[0](*inputs)

        return run


class SplitProgram:
    """Runs the parts of a divided program in order; registers live here between them."""

    def __init__(
        self, artifact: a.Artifact, parts: Sequence[Part], steps: Sequence[CompiledFn], constants: Mapping[int, Any]
    ) -> None:
        self._program = artifact.program
        self._steps = tuple(zip(parts, steps))
        self._constants = dict(constants)
        self._deaths = _deaths(artifact.program, parts)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Raises ``InputError`` for inputs that the program was not compiled for, and what its parts raise."""
        program = self._program
        check_count(program.inputs, inputs)
        tensors: dict[int, Any] = dict(self._constants)
        scalars: dict[int, Any] = {}
        for position, (spec, value) in enumerate(zip(program.inputs, inputs)):
            if spec.kind == "scalar":
                scalars[spec.register] = check_scalar(position, spec, value)
        for position, (spec, value) in enumerate(zip(program.inputs, inputs)):
            if spec.kind == "tensor":
                tensors[spec.register] = check_tensor(position, spec, value, scalars.__getitem__)
        for (part, step), dead in zip(self._steps, self._deaths):
            given = [(tensors if s.kind == "tensor" else scalars)[s.register] for s in part.program.inputs]
            results = step(*given)
            del given
            for output, value in zip(part.program.outputs, results):
                if output.kind == "tensor":
                    tensors[output.value] = value  # type: ignore[index]
                else:
                    scalars[output.value.index] = value  # type: ignore[union-attr]
            del results
            for register in dead:
                tensors.pop(register, None)
        return tuple(_output(output, tensors, scalars, inputs) for output in program.outputs)


def _deaths(program: a.Program, parts: Sequence[Part]) -> list[tuple[int, ...]]:
    """For each part, the tensor registers that nothing after it reads."""
    wanted = {output.value for output in program.outputs if output.kind == "tensor"}
    found: list[tuple[int, ...]] = []
    for part in reversed(parts):
        touched = {*part.tensors, *(o.value for o in part.program.outputs if o.kind == "tensor")}
        found.append(tuple(register for register in touched if register not in wanted and isinstance(register, int)))
        wanted.update(part.tensors)
    return found[::-1]


def _output(output: a.OutputSpec, tensors: Mapping[int, Any], scalars: Mapping[int, Any], inputs: Any) -> Any:
    if output.kind == "tensor":
        return tensors[output.value]  # type: ignore[index]
    if output.kind == "input":
        return inputs[output.value]
    if output.kind == "none":
        return None
    return scalars[output.value.index] if isinstance(output.value, a.Scalar) else output.value


def _constants(artifact: a.Artifact, supplied: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Constants that are outputs themselves; every part has its own reference to the others."""
    from ..executor import bind_constants

    wanted = {output.value for output in artifact.program.outputs if output.kind == "tensor"}
    if not wanted.intersection(constant.register for constant in artifact.constants):
        return {}
    return {c.register: t for c, t in zip(artifact.constants, bind_constants(artifact, supplied))}


def _reporter(report: Report | None) -> Report:
    def tell(decision: GraphDecision) -> None:
        logger.info("cuda_graph", artifact="cudagraphs", text=str(decision))
        if decision.kind != "recorded":
            logger.info(
                "no_cuda_graph",
                artifact="perf_hints",
                program=decision.program,
                reason=decision.reason,
                at=decision.position,
            )
        if report is not None:
            report(decision)

    return tell


__all__ = ["SplitProgram", "load_graphed", "reset"]
