"""Load, cache and run compiled tensor programs.

``load(artifact)`` gives a callable; ``artifact`` describes what can be run; ``Store`` keeps things on disk;
``build_libraries`` compiles an artifact's C++ kernels.
"""

from __future__ import annotations

from .artifact import Artifact
from .build import build_libraries
from .cache import CacheKey, Store, default_store
from .config import Config
from .errors import (
    ArtifactError,
    BuildError,
    CompilerUnavailable,
    InputError,
    OptionError,
    PredictionError,
    ReleasedError,
    RuntimeFault,
)
from .executor import load, warm_up
from .frozen import FrozenProgram

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "ArtifactError",
    "BuildError",
    "CacheKey",
    "CompilerUnavailable",
    "Config",
    "FrozenProgram",
    "InputError",
    "OptionError",
    "PredictionError",
    "ReleasedError",
    "RuntimeFault",
    "Store",
    "__version__",
    "build_libraries",
    "default_store",
    "load",
    "warm_up",
]
