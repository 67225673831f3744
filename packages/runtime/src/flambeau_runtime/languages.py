"""The languages of libraries: how their kernels become functions that an executor calls.

In: ``register(language)``, once for each (``builtin_languages.py``). Out: ``language_of(library)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from .cache import Store
from .errors import ArtifactError
from .records import Library


@frozen(kw_only=True)
class Language:
    """``bind(artifact, store)`` gives a function for every kernel in this language, by its number; None for C++, which the compiler builds and an
    executor calls by address. ``start(artifact, store)`` has compiling begin in the background as soon as there is an artifact."""

    name: str
    bind: Callable[[Any, Store], Mapping[int, Callable[..., int]]] | None = None
    start: Callable[[Any, Store], None] | None = None


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
