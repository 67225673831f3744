"""Who writes kernels in which language.

In: ``register_language(language, writer)``, once for each. Out: ``writer_of(language)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from ..devices import CPP, TRITON, Language
from ..ir.kernel import Combined, Gemm, KernelBody
from ..ir.loops import Template
from . import cpp, triton
from .kernel import GeneratedKernel
from .triton.combine import generate_combined
from .triton.templates import generate_gemms, generate_templates


@frozen
class Writer:
    """The functions that write the steps of a schedule, one kernel for each, in order; ``combined``, ``templates`` and ``gemms`` where the language has
    such steps. ``support`` is the text in front of kernels, ``flags`` are the compiler's. A body that the language cannot express
    raises ``UnsupportedKernel``."""

    flags: tuple[str, ...]
    support: Callable[[Sequence[GeneratedKernel]], str]
    bodies: Callable[[Sequence[KernelBody]], Sequence[GeneratedKernel]]
    combined: Callable[[Sequence[Combined]], Sequence[GeneratedKernel]] | None = None
    templates: Callable[[Sequence[Template]], Sequence[GeneratedKernel]] | None = None
    gemms: Callable[[Sequence[Gemm]], Sequence[GeneratedKernel]] | None = None


_WRITERS: dict[Language, Writer] = {}


def register_language(language: Language, writer: Writer) -> None:
    """Have the kernels of devices of ``language`` written by ``writer``. Raises ValueError for a name that is taken, or where the two do not say
    the same of combined kernels, templates and products."""
    if any(known.name == language.name for known in _WRITERS):
        raise ValueError(f"language {language.name} is registered twice")
    said = (language.combines, language.templates, language.gemms)
    if said != tuple(write is not None for write in (writer.combined, writer.templates, writer.gemms)):
        raise ValueError(
            f"language {language.name} and its writer disagree about combined kernels, templates or products"
        )
    _WRITERS[language] = writer


@contextmanager
def registered_language(language: Language, writer: Writer) -> Iterator[None]:
    """``register_language`` for the length of a block."""
    register_language(language, writer)
    try:
        yield
    finally:
        del _WRITERS[language]


def writer_of(language: Language) -> Writer:
    """The writer of a language; KeyError for one that nobody registered."""
    return _WRITERS[language]


register_language(CPP, Writer(cpp.FLAGS, cpp.support, cpp.generate))
register_language(
    TRITON,
    Writer(triton.FLAGS, triton.support, triton.generate, generate_combined, generate_templates, generate_gemms),
)
