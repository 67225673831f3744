"""A command with all processes that it starts, which end with it.

In: a command line, environment, seconds. Out: its status and what it said, or `subprocess.TimeoutExpired`. Compilers and workers that a command leaves behind would go on, and hold the pipes on
which it is listened to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_group(
    command: Sequence[str], *, environment: Mapping[str, str], seconds: float, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own. What it said until it was stopped is in the exception."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=dict(environment), cwd=folder, text=True, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            said, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process.pid)
            said, errors = process.communicate()
            raise subprocess.TimeoutExpired(command, seconds, said, errors) from None
        finally:
            _kill(process.pid)
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
