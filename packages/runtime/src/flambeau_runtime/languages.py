"""The languages of libraries: how their kernels become functions that an executor calls.

In: ``register(language)``, once for each (``builtin_languages.py``). Out: ``language_of(library)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from attrs import frozen

from .cache import Store
from .errors import ArtifactError
from .records import Library
from .registry import Registry


@frozen(kw_only=True)
class Language:
    """``bind(artifact, store)`` gives a function for every kernel in this language, by its number; None for C++, which the compiler builds and an
    executor calls by address. ``start(artifact, store)`` has compiling begin in the background as soon as there is an artifact."""

    name: str
    bind: Callable[[Any, Store], Mapping[int, Callable[..., int]]] | None = None
    start: Callable[[Any, Store], None] | None = None


_LANGUAGES: Registry[str, Language] = Registry("language")


def register(language: Language) -> Language:
    """Have artifacts hold libraries in ``language``. Raises ValueError for a name that is taken."""
    return _LANGUAGES.register(language.name, language)


def registered(language: Language) -> AbstractContextManager[Language]:
    """``register`` for the length of a block."""
    return _LANGUAGES.registered(language.name, language)


def language_of(library: Library) -> Language:
    """The record of a library's language. Raises ``ArtifactError`` for one that nobody registered."""
    found = _LANGUAGES.get(library.language)
    if found is None:
        raise ArtifactError(f"library {library.name}: unknown language {library.language!r}")
    return found
