"""Each compile under Python's own profiler: `FLAMBEAU_COMPILE_CPROFILE`.

In: frames that are being compiled. Out: `<compile id>-<function>-<pid>.prof` in a folder, for `pstats` and what draws such files. A compile within another is part of that one's.
Where the program itself is being profiled, its profiler stays, the compile is part of what that finds, and has no file; one warning says so.
"""

from __future__ import annotations

import cProfile
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path

from flambeau_capture import Around, FrameInfo

from ..log import logger
from .folders import file_name

_IS_PROFILED: ContextVar[bool] = ContextVar("flambeau_profiled_compile", default=False)
"""Whether a compile that is being profiled goes on here."""


def profiled(folder: Path, inner: Around | None) -> Around:
    """What each compile runs inside of, and inside of that `inner`."""

    @contextmanager
    def around(frame: FrameInfo) -> Iterator[None]:
        with inner(frame) if inner is not None else nullcontext():
            if _IS_PROFILED.get():
                yield
                return
            profile = _begun()
            if profile is None:
                _say_left_out()
                yield
                return
            token = _IS_PROFILED.set(True)
            try:
                yield
            finally:
                profile.disable()
                _IS_PROFILED.reset(token)
                name = file_name(f"{frame.compile_id.replace('/', '_')}-{frame.code.co_qualname}")
                _write(profile, folder / f"{name}-{os.getpid()}.prof")

    return around


def _begun() -> cProfile.Profile | None:
    """A profile that has begun, unless the program's own goes on."""
    if sys.getprofile() is not None:  # Python 3.11's takes its place
        return None
    profile = cProfile.Profile()
    try:
        profile.enable()
    except ValueError:  # from 3.12 on
        return None
    return profile


@functools.cache
def _say_left_out() -> None:
    logger.warning("compiles_not_profiled", reason="another profiler is active, which sees them")


def _write(profile: cProfile.Profile, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.dump_stats(path)
    except OSError as error:
        logger.warning("profile_not_written", path=str(path), reason=str(error))
