"""One content-addressed store on disk for kernels, artifacts and choices."""

from __future__ import annotations

from .key import CacheKey
from .store import Store, default_store

__all__ = ["CacheKey", "Store", "default_store"]
