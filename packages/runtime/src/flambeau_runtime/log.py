"""The logger of runtime and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: where `event_log.py` says.
"""

from __future__ import annotations

from typing import Final

from .event_log import EventLogger

logger = EventLogger("flambeau.runtime")

CACHE_HIT: Final = "cache hit"
CACHE_MISS: Final = "cache miss"
CACHE_CORRUPT: Final = "cache entry is corrupt and was removed"
CACHE_UNWRITABLE: Final = "cache folder cannot be written; entries stay in memory"
CACHE_UNTRUSTED: Final = (
    "the cache folder {folder} is not used, entries stay in memory: {reason} "
    "(what lies there is loaded and run; FLAMBEAU_CACHE_SHARED=1 uses it all the same)"
)
CACHE_FOREIGN: Final = "a cache entry that others put there, or may change, is not read"
SCRATCH_REFUSED: Final = "the folder for temporary files is not used to build kernels"
CACHE_EVICTED: Final = "cache evicted entries"
FOLDED: Final = "what follows from frozen inputs was computed"
FOLDED_OFTEN: Final = "frozen inputs change often; a program without freezing would do less"
COMPILED: Final = "compiled a library"
COMPILER_BROKE: Final = "the C++ compiler broke down; a library is compiled again with fewer optimisations"
COMPILER_UNAVAILABLE: Final = "no working C++ compiler; library calls are used instead of fused kernels"
