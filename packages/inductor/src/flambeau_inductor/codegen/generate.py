"""The kernels of a program as sources: one library for each language.

In: steps in running order, options. Out: ``Sources``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from attrs import evolve, frozen

from flambeau_runtime.artifact import Library

from ..config import Config
from ..devices import CPP, Language, device_of
from ..errors import VerifyError
from ..ir.kernel import Combined, Gemm, KernelBody
from ..ir.loops import Template
from ..kernel_ir.text import kernel_ir_text
from ..kernel_ir.verify import verify
from ..schedule import LaunchStep, Step
from .kernel import GeneratedKernel, sources_of
from .languages import Writer, writer_of


@frozen
class Sources:
    """``kernels`` maps the name of a step to the position of its library and its kernel."""

    libraries: tuple[Library, ...]
    kernels: Mapping[str, tuple[int, GeneratedKernel]]

    def text(self) -> str:
        """The kernels that differ, without what they are translated with."""
        return "\n".join(sources_of(kernel for _, kernel in self.kernels.values()))

    def tiling_text(self) -> str:
        """How the loops of each kernel are cut, one a line."""
        lines = []
        for name, (_, kernel) in self.kernels.items():
            facts = {key: value for key, value in kernel.meta.items() if key not in ("origins", "stack", "modules")}
            facts |= {"parallel": kernel.extent, "grain": kernel.grain}
            lines.append(f"{name}: " + ", ".join(f"{key}={value}" for key, value in facts.items()))
        return "".join(f"{line}\n" for line in lines)

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


def generate(steps: Iterable[Step], config: Config) -> Sources:
    """Write the kernels of ``steps``. Raises ``codegen.errors.UnsupportedKernel`` for a body that its language cannot express."""
    by_language: dict[Language, list[LaunchStep]] = {}
    for step in steps:
        if isinstance(step, LaunchStep):
            by_language.setdefault(_language(step, config), []).append(step)
    libraries: list[Library] = []
    kernels: dict[str, tuple[int, GeneratedKernel]] = {}
    for language, chosen in by_language.items():
        writer = writer_of(language)
        generated = _generated(writer, chosen)
        if config.cpp_min_chunk_size is not None and language == CPP:
            generated = [evolve(kernel, grain=config.cpp_min_chunk_size) for kernel in generated]
        if language.in_grid:
            generated = [evolve(kernel, in_grid=True) for kernel in generated]
        kernels |= {step.name: (len(libraries), kernel) for step, kernel in zip(chosen, generated, strict=True)}
        name, source = f"kernels_{language.name}", "\n".join(sources_of(generated))
        libraries.append(Library(name, language.name, source, writer.flags, support=writer.support(generated)))
    return Sources(tuple(libraries), kernels)


def _language(step: LaunchStep, config: Config) -> Language:
    place = (step.bodies[0] if isinstance(step, Combined) else step).device
    return device_of(place).language(config)


def _generated(writer: Writer, steps: Sequence[LaunchStep]) -> list[GeneratedKernel]:
    """One kernel for each step, in order."""
    written: dict[type, tuple[Callable[[Any], Sequence[GeneratedKernel]] | None, list[Any]]] = {
        KernelBody: (writer.bodies, []),
        Combined: (writer.combined, []),
        Template: (writer.templates, []),
        Gemm: (writer.gemms, []),
    }
    for step in steps:
        written[type(step)][1].append(step)
    found = {kind: iter(write(chosen) if write else ()) for kind, (write, chosen) in written.items()}
    return [next(found[type(step)]) for step in steps]
