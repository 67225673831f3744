"""Each compile under Python's own profiler: `FLAMBEAU_COMPILE_CPROFILE`.

In: frames that are being compiled. Out: `<compile id>-<function>-<pid>.prof` in a folder, for `pstats` and what draws such files. A compile within another is part of that one's; so is
one while the program itself is being profiled, and has no file.
"""

from __future__ import annotations

import cProfile
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from flambeau_capture import FrameInfo

from ..log import logger
from .folders import file_name

Around = Callable[[FrameInfo], AbstractContextManager[Any]]


def profiled(folder: Path, inner: Around | None) -> Around:
    """What each compile runs inside of, and inside of that `inner`."""

    @contextmanager
    def around(frame: FrameInfo) -> Iterator[None]:
        profile = cProfile.Profile()
        with inner(frame) if inner is not None else nullcontext():
            try:
                profile.enable()
            except ValueError:  # another is active
                yield
                return
            try:
                yield
            finally:
                profile.disable()
                name = file_name(f"{frame.compile_id.replace('/', '_')}-{frame.code.co_qualname}")
                _write(profile, folder / f"{name}-{os.getpid()}.prof")

    return around


def _write(profile: cProfile.Profile, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.dump_stats(path)
    except OSError as error:
        logger.warning("profile_not_written", path=str(path), reason=str(error))
