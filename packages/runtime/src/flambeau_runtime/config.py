"""Options of the runtime: one frozen record, resolved once by whoever starts a compilation, and passed down.

In: keyword arguments or environment variables (`option_fields.py`). Out: `Config`.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from .errors import OptionError
from .option_fields import Condition, OptionRecord, option

_NOT_NEGATIVE: Condition = (lambda value: value >= 0, "at least 0")
_POSITIVE: Condition = (lambda value: value >= 1, "at least 1")


def _is_command(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


_COMMAND: Condition = (_is_command, "a command line whose quotes are closed")


@frozen
class Config(OptionRecord):
    """Where things are kept, what compiles C++, and how programs are run."""

    error: ClassVar[type[Any]] = OptionError

    cache_dir: str = option("", "the folder of the disk cache; empty: flambeau in the user's", key=False)
    cache_limit_bytes: int = option(4 << 30, "bound of the disk cache's size", key=False, accepts=_NOT_NEGATIVE)
    cache_enabled: bool = option(True, "whether anything is kept on disk", key=False, variable="FLAMBEAU_CACHE")
    cache_shared: bool = option(
        False, "load what other users put into the cache folder: whoever may write there can run code as us", key=False
    )
    cxx: str = option(
        "", "the C++ compiler's command; empty: the first that is found", key=False, accepts=_COMMAND, variable="CXX"
    )
    cxx_flags: str = option("", "more flags for the C++ compiler", accepts=_COMMAND, variable="FLAMBEAU_CXXFLAGS")
    precompilation_timeout_seconds: int = option(
        600,
        "how long the C++ compiler may take for one library",
        user=True,
        key=False,
        accepts=_POSITIVE,
        variable="FLAMBEAU_COMPILE_TIMEOUT",
    )
    compile_threads: int = option(
        0,
        "C++ compilers at work on one graph at once; 0 = as many as it can use, up to 8 (Triton's are always one a core)",
        user=True,
        key=False,
        accepts=_NOT_NEGATIVE,
    )
    idle_memory_bytes: int = option(
        256 << 20, "memory kept for later calls; read once a process", key=False, accepts=_NOT_NEGATIVE
    )
    executor: str = option(
        "native", "which executor runs the program", user=True, key=False, choices=("native", "python")
    )
    force_cudagraph_gc: bool = option(
        False,
        "run Python's collector before each recording of a CUDA graph, so that what is garbage holds no memory in it",
        key=False,
        variable="FLAMBEAU_CUDAGRAPH_GC",
    )
    cuda_driver: str = option("libcuda.so.1", "the CUDA driver's library; read once a process", key=False)

    def folder(self) -> Path:
        """The cache folder: ``cache_dir``, or ``flambeau`` in the user's cache folder."""
        if self.cache_dir:
            return Path(self.cache_dir)
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return Path(base) / "flambeau"

    def jobs(self) -> int:
        """How many compilers run at once."""
        return self.compile_threads or min(8, len(os.sched_getaffinity(0)))
