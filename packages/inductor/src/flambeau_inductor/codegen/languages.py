"""Who writes kernels in which language.

In: ``register_language(language, writer)``, once for each. Out: ``writer_of(language)``. What writes Triton kernels is loaded when the first one is written: on a
machine without a GPU nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from attrs import frozen

from flambeau_runtime.registry import Registry

from ..devices import CPP, TRITON, Language
from ..ir.kernel import Combined, Gemm, KernelBody
from ..ir.loops import Template
from . import cpp
from .kernel import GeneratedKernel
from .tunable import Tunable


@frozen
class Writer:
    """The functions that write the steps of a schedule, one kernel for each, in order; ``combined``, ``templates`` and ``gemms`` where the language has
    such steps. ``tunable`` says what may be tried for a body where launches are measured. ``support`` is the text in front of kernels, ``flags`` are the compiler's. A body that the language cannot express
    raises ``UnsupportedKernel``."""

    flags: tuple[str, ...]
    support: Callable[[Sequence[GeneratedKernel]], str]
    bodies: Callable[[Sequence[KernelBody]], Sequence[GeneratedKernel]]
    combined: Callable[[Sequence[Combined]], Sequence[GeneratedKernel]] | None = None
    templates: Callable[[Sequence[Template]], Sequence[GeneratedKernel]] | None = None
    gemms: Callable[[Sequence[Gemm]], Sequence[GeneratedKernel]] | None = None
    tunable: Callable[[KernelBody], Tunable | None] | None = None


#: By the name of the language.
_WRITERS: Registry[str, Writer] = Registry("language")


def register_language(language: Language, writer: Writer) -> None:
    """Have the kernels of devices of ``language`` written by ``writer``. Raises ValueError for a name that is taken, or where the two do not say
    the same of combined kernels, templates and products."""
    _WRITERS.register(language.name, _agreeing(language, writer))


def registered_language(language: Language, writer: Writer) -> AbstractContextManager[Writer]:
    """``register_language`` for the length of a block."""
    return _WRITERS.registered(language.name, _agreeing(language, writer))


def _agreeing(language: Language, writer: Writer) -> Writer:
    said = (language.combines, language.templates, language.gemms)
    if said != tuple(write is not None for write in (writer.combined, writer.templates, writer.gemms)):
        raise ValueError(
            f"language {language.name} and its writer disagree about combined kernels, templates or products"
        )
    return writer


def writer_of(language: Language) -> Writer:
    """The writer of a language; KeyError for one that nobody registered."""
    found = _WRITERS.get(language.name)
    if found is None:
        raise KeyError(language.name)
    return found


def _triton_support(kernels: Sequence[GeneratedKernel]) -> str:
    from . import triton

    return triton.support(kernels)


def _triton_bodies(bodies: Sequence[KernelBody]) -> Sequence[GeneratedKernel]:
    from . import triton

    return triton.generate(bodies)


def _triton_combined(bodies: Sequence[Combined]) -> Sequence[GeneratedKernel]:
    from .triton.combine import generate_combined

    return generate_combined(bodies)


def _triton_templates(templates: Sequence[Template]) -> Sequence[GeneratedKernel]:
    from .triton.templates import generate_templates

    return generate_templates(templates)


def _triton_gemms(gemms: Sequence[Gemm]) -> Sequence[GeneratedKernel]:
    from .triton.templates import generate_gemms

    return generate_gemms(gemms)


def _triton_tunable(body: KernelBody) -> Tunable | None:
    from .triton.candidates import tunable

    return tunable(body)


register_language(CPP, Writer(cpp.FLAGS, cpp.support, cpp.generate, templates=cpp.generate_templates))
register_language(
    TRITON,
    Writer(
        (),
        _triton_support,
        _triton_bodies,
        _triton_combined,
        _triton_templates,
        _triton_gemms,
        _triton_tunable,
    ),
)
