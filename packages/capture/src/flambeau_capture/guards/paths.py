"""The paths that guards are about, and the same guards about what lies at other paths.

In: guard specs and sources. Out: the sources of a spec; whether a path comes by a place; specs and sources with another start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import evolve

from ..library import contextlib
from ..sources.source import Source, SourceError, Step, resolve
from . import spec as gs


def sources_of(spec: gs.GuardSpec) -> tuple[Source, ...]:
    """What a spec is about."""
    match spec:
        case gs.AliasOf(source=source, other=other):
            return source, other
        case gs.SourceGuard(source=source):
            return (source,)
        case gs.NoAlias(sources=sources):
            return sources
        case gs.DistinctStorage(written=written, read=read):
            return (*written, *read)
    return ()


def module_above(
    source: Source, f_locals: Mapping[str, Any], f_globals: Mapping[str, Any], f_builtins: Mapping[str, Any]
) -> torch.nn.Module | None:
    """The nearest module on the way to what a source names, itself left out; None where there is none."""
    while isinstance(source, Step):
        source = source.base
        with contextlib.suppress(SourceError):
            found = resolve(source, f_locals, f_globals, f_builtins)
            if isinstance(found, torch.nn.Module):
                return found
    return None


def leads_from(source: Source, start: Source) -> bool:
    """Whether a path is `start`, or goes on from there."""
    while source is not start:
        if not isinstance(source, Step):
            return False
        source = source.base
    return True


class Inside:
    """Whether paths are ``start`` or go on from there, for many of them: what they have in common is walked once."""

    def __init__(self, start: Source) -> None:
        self._known: dict[Source, bool] = {start: True}

    def __call__(self, source: Source) -> bool:
        known = self._known
        walked = []
        while source not in known:
            walked.append(source)
            if not isinstance(source, Step):
                known[source] = False
            else:
                source = source.base
        found = known[source]
        known.update(dict.fromkeys(walked, found))
        return found


class Moved:
    """Paths, and specs about them, as they are from one place on, from another place on."""

    def __init__(self, start: Source, to: Source) -> None:
        self._paths: dict[int, Source] = {id(start): to}

    def path(self, source: Source) -> Source:
        """The same path from the other place; one that does not come by the place stays as it is."""
        found = self._paths.get(id(source))
        if found is None:
            found = source
            if isinstance(source, Step):
                base = self.path(source.base)
                found = source if base is source.base else evolve(source, base=base)
            self._paths[id(source)] = found
        return found

    def spec(self, spec: gs.GuardSpec) -> gs.GuardSpec:
        """The same spec about the other place, unchanged but for its paths: it need not hold there."""
        changes: dict[str, Any] = {}
        match spec:
            case gs.AliasOf(source=source, other=other):
                changes = {"source": self.path(source), "other": self.path(other)}
            case gs.IdentityIs(source=source, expected=expected):
                changes = {"source": self.path(source), "expected": expected}  # the spec itself has a weak reference
            case gs.SourceGuard(source=source):
                changes = {"source": self.path(source)}
            case gs.NoAlias(sources=sources):
                changes = {"sources": tuple(map(self.path, sources))}
            case gs.DistinctStorage(written=written, read=read):
                changes = {"written": tuple(map(self.path, written)), "read": tuple(map(self.path, read))}
        return evolve(spec, **changes)
