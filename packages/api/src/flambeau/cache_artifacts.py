"""`save_cache_artifacts` and `load_cache_artifacts`: what a process compiled, as bytes that make another process's first calls warm.

In: the entries of the store that this process wrote or read. Out: one bundle and what is in it. A bundle holds machine code: load those alone that
come from somebody you trust.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from attrs import frozen

from flambeau_runtime.cache import CacheKey, Store, default_store

from .options import Options
from .shape_profiles import KIND as SHAPES
from .stages import resolve_stages

_TUNING = ("tuning",)


@frozen
class CacheInfo:
    """What a bundle holds.

    Attributes:
        artifacts: kind of entry -> the names of the entries.
    """

    artifacts: Mapping[str, tuple[str, ...]]

    @property
    def inductor_artifacts(self) -> list[str]:
        """Compiled graphs (forward and backward are one entry) and the kernels that they are made of."""
        others = (*_TUNING, SHAPES)
        return [name for kind, names in self.artifacts.items() if kind not in others for name in names]

    @property
    def autotune_artifacts(self) -> list[str]:
        """What was measured and chosen."""
        return [name for kind in _TUNING for name in self.artifacts.get(kind, ())]

    @property
    def aot_autograd_artifacts(self) -> list[str]:
        """Compiled graphs: what ahead-of-time autograd made of a graph lies in its entry."""
        return list(self.artifacts.get("graph", ()))

    @property
    def pgo_artifacts(self) -> list[str]:
        """What was learnt about sizes that change, see the setting `job_id`."""
        return list(self.artifacts.get(SHAPES, ()))

    def empty(self) -> bool:
        """Whether nothing is in it."""
        return not any(self.artifacts.values())


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """Everything that this process has compiled so far, or found compiled, for `load_cache_artifacts`.

    Returns:
        The bundle, which another process and another machine with the same processor, GPU and versions may load, and what is in it;
        None where nothing was compiled.
    """
    store = _store()
    info = _info(store.used())
    return None if info.empty() else (store.export_bundle(store.used()), info)


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put a bundle of `save_cache_artifacts` into this process's cache, before the first call of what it was made of.

    Returns:
        What was in it; None after a warning where it is no bundle.
    """
    try:
        added = _store().import_bundle(serialized_artifacts)
    except ValueError as error:
        warnings.warn(f"no cache artifacts were loaded: {error}", RuntimeWarning, stacklevel=2)
        return None
    return _info(added)


def _store() -> Store:
    return default_store(resolve_stages(Options()).runtime)


def _info(keys: Iterable[CacheKey]) -> CacheInfo:
    named: dict[str, list[str]] = {}
    for key in keys:
        named.setdefault(key.kind, []).append(key.digest)
    return CacheInfo({kind: tuple(sorted(names)) for kind, names in sorted(named.items())})
