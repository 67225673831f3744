"""The languages of libraries: how their kernels become functions that an executor calls.

In: ``register(language)``, once for each. Out: ``language_of(library)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from .errors import ArtifactError

if TYPE_CHECKING:
    from .artifact import Artifact, Library
    from .cache import Store
    from .executor_py import KernelFunction


@frozen(kw_only=True)
class Language:
    """``bind`` gives a function for every kernel of an artifact in this language, by its number; None for C++, which the compiler builds and an
    executor calls by address. ``start`` has compiling begin in the background as soon as there is an artifact."""

    name: str
    bind: Callable[[Artifact, Store], Mapping[int, KernelFunction]] | None = None
    start: Callable[[Artifact, Store], None] | None = None


_LANGUAGES: dict[str, Language] = {}


def register(language: Language) -> Language:
    """Have artifacts hold libraries in ``language``. Raises ValueError for a name that is taken."""
    if language.name in _LANGUAGES:
        raise ValueError(f"language {language.name} is registered twice")
    _LANGUAGES[language.name] = language
    return language


@contextmanager
def registered(language: Language) -> Iterator[Language]:
    """``register`` for the length of a block."""
    register(language)
    try:
        yield language
    finally:
        del _LANGUAGES[language.name]


def language_of(library: Library) -> Language:
    """The record of a library's language. Raises ``ArtifactError`` for one that nobody registered."""
    found = _LANGUAGES.get(library.language)
    if found is None:
        raise ArtifactError(f"library {library.name}: unknown language {library.language!r}")
    return found


def _bind_triton(artifact: Artifact, store: Store) -> Mapping[int, KernelFunction]:
    # Only a program with Triton kernels pays for importing what runs them.
    from .triton_binding import bind_triton

    return bind_triton(artifact, store)


def _start_triton(artifact: Artifact, store: Store) -> None:
    from .triton_binding import start_compiling

    start_compiling(artifact, store)


CPP = register(Language(name="cpp"))
TRITON = register(Language(name="triton", bind=_bind_triton, start=_start_triton))
