"""In which blocks, with how many warps and by which strategy kernels over points and reductions run.

In: schedules. Out: the same, where kernels that something else than the model's choice was measured to be faster for say so (``KernelBody.launch``). Only kernels that take long
enough to be told apart are asked about, and equal ones once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial

import torch
from attrs import evolve, field, frozen

from flambeau_runtime import Artifact

from ..codegen.cpp.canonical import canonical
from ..codegen.languages import writer_of
from ..codegen.tunable import Tunable
from ..config import Config
from ..devices import device_facts, device_of
from ..ir.kernel import LOOPED, KernelBody
from ..schedule import Schedule, Step
from ..schedule.steps import step_writes
from .asked import may_look_up, may_measure
from .measure import program_of
from .questions import UNKNOWN, Question, answers


@frozen
class ChooseLaunches:
    """The choice for kernels under ``config``. ``is_tuned``: by what was or is measured."""

    config: Config
    is_tuned: bool = True
    _looks_up: bool = field(init=False)

    @_looks_up.default
    def _decide(self) -> bool:
        return self.is_tuned and may_look_up(self.config)

    def apply(self, plans: Sequence[Schedule]) -> list[Schedule]:
        """The plans with the launches that were chosen."""
        asked: dict[KernelBody, tuple[Question, Tunable]] = {}
        forms: dict[int, KernelBody] = {}
        for step in (step for plan in plans for step in plan.steps):
            if isinstance(step, KernelBody) and self._may_ask(step):
                form = forms[id(step)] = _form(step)
                if form not in asked and (found := self._question(form)) is not None:
                    asked[form] = found
        chosen = self._chosen(asked) if asked else {}
        if not chosen and self.config.triton_persistent_reductions:
            return list(plans)
        return [
            evolve(plan, steps=tuple(self._looped(_with_launch(step, forms, chosen)) for step in plan.steps))
            for plan in plans
        ]

    def _looped(self, step: Step) -> Step:
        """A reduction that keeps no row, where the options ask for that."""
        if self.config.triton_persistent_reductions or not isinstance(step, KernelBody) or not step.inner:
            return step
        kept = any(getattr(step.launch, kind, False) for kind in ("persistent", "pieces"))
        return evolve(step, launch=LOOPED) if step.launch is None or kept else step

    def _chosen(self, asked: Mapping[KernelBody, tuple[Question, Tunable]]) -> dict[KernelBody, Hashable]:
        """Launches by the form of their kernel, where they are not the model's."""
        devices = {question.device for question, _ in asked.values()}
        questions = [question for question, _ in asked.values()]
        measures = all(map(self.may_measure, devices))
        found = answers(questions, self.config, measure=measures, subject="kernels")
        return {
            form: way
            for (form, (_, tuned)), way in zip(asked.items(), found, strict=True)
            if way is not UNKNOWN and way != tuned.launches[0] and tuned.fits(way)
        }

    def may_measure(self, device: torch.device) -> bool:
        """Whether kernels on ``device`` are timed."""
        return self.is_tuned and may_measure(device, self.config.max_autotune or self.config.max_autotune_pointwise)

    def _may_ask(self, body: KernelBody) -> bool:
        device = device_of(body.device)
        if not device.enabled(self.config) or writer_of(device.language(self.config)).tunable is None:
            return False
        return self._looks_up or self.may_measure(body.device)

    def _question(self, form: KernelBody) -> tuple[Question, Tunable] | None:
        writer = writer_of(device_of(form.device).language(self.config))
        tuned = None if writer.tunable is None else writer.tunable(form)
        least = device_facts(form.device).tuning.measured_seconds
        if tuned is None or tuned.seconds < least or len(tuned.launches) < 2:
            return None
        program = partial(_program, form, self.config)
        question = Question(
            form.name, tuned.asked, form.device, tuned.launches, program, tuned.record, tuned.neighbours
        )
        return question, tuned


def _form(body: KernelBody) -> KernelBody:
    """What equal kernels have in common: nothing of where they come from. Which buffers share memory stays: it decides what may be tried."""
    renamed, _ = canonical(body)
    return evolve(renamed, name="measured", origins=(), stacks=())


def _program(form: KernelBody, config: Config, launch: Hashable) -> Artifact | None:
    step = evolve(form, launch=launch)
    return program_of([step], {buffer.name: buffer for buffer in form.buffers}, sorted(step_writes(step)), config)


def _with_launch(step: Step, forms: Mapping[int, KernelBody], chosen: Mapping[KernelBody, Hashable]) -> Step:
    form = forms.get(id(step))
    if form is None or form not in chosen or not isinstance(step, KernelBody):
        return step
    return evolve(step, launch=chosen[form])
