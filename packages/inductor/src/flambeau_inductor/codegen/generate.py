"""The kernels of a program as sources: one library for each language.

In: steps in running order, the language of kernels on the CPU. Out: ``Sources``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from attrs import frozen

from flambeau_runtime.artifact import Library

from ..errors import VerifyError
from ..ir.kernel import Combined, KernelBody
from ..ir.loops import Template
from ..kernel_ir.text import kernel_ir_text
from ..kernel_ir.verify import verify
from ..schedule import Step
from ..schedule.combine import target_of
from . import cpp, triton
from .kernel import GeneratedKernel, sources_of
from .triton.combine import generate_combined
from .triton.templates import generate_templates

_LANGUAGES = {"cpp": cpp, "triton": triton}


@frozen
class Sources:
    """``kernels`` maps the name of a step to the position of its library and its kernel."""

    libraries: tuple[Library, ...]
    kernels: Mapping[str, tuple[int, GeneratedKernel]]

    def text(self) -> str:
        """The kernels that differ, without what they are translated with."""
        return "\n".join(sources_of(kernel for _, kernel in self.kernels.values()))

    def kernel_ir(self) -> str:
        """The same kernels in the kernel IR, as far as their generator has it; equal parts of one once."""
        found: dict[str, list[str]] = {}
        for _, kernel in self.kernels.values():
            found.setdefault(kernel.name, [kernel_ir_text(kernel.name, part) for part in kernel.kernels])
        return "\n".join(dict.fromkeys(chain.from_iterable(found.values())))

    def verify(self) -> None:
        """Check them. Raises VerifyError."""
        for _, kernel in self.kernels.values():
            for part in kernel.kernels:
                try:
                    verify(part)
                except VerifyError as error:
                    error.add_context(f"verifying {kernel.name}")
                    raise


def generate(steps: Iterable[Step], cpu_language: str) -> Sources:
    """Write the kernels of ``steps``. Raises ``codegen.triton.UnsupportedKernel`` for a body that Triton cannot express."""
    by_language: dict[str, list[KernelBody | Combined | Template]] = {}
    for step in steps:
        if isinstance(step, KernelBody | Combined | Template):
            by_language.setdefault(target_of(step, cpu_language), []).append(step)
    libraries: list[Library] = []
    kernels: dict[str, tuple[int, GeneratedKernel]] = {}
    for language, chosen in by_language.items():
        generated = _generated(language, chosen)
        unit = _LANGUAGES[language]
        kernels |= {step.name: (len(libraries), kernel) for step, kernel in zip(chosen, generated, strict=True)}
        name, source = f"kernels_{language}", "\n".join(sources_of(generated))
        libraries.append(Library(name, language, source, unit.FLAGS, support=unit.support(generated)))
    return Sources(tuple(libraries), kernels)


def _generated(language: str, steps: Sequence[KernelBody | Combined | Template]) -> list[GeneratedKernel]:
    """One kernel for each step, in order."""
    single = iter(_LANGUAGES[language].generate([step for step in steps if isinstance(step, KernelBody)]))
    several = iter(generate_combined([step for step in steps if isinstance(step, Combined)]))
    templates = iter(generate_templates([step for step in steps if isinstance(step, Template)]))
    sources = {KernelBody: single, Combined: several, Template: templates}
    return [next(sources[type(step)]) for step in steps]
