"""Commands whose processes end with them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau.cli.processes import run_group

#: Starts a process that holds the pipes, says its number, and stays.
CHILD = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"


def ends(process: int) -> bool:
    """Whether nothing but its status is left of it, at once or soon."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_what_a_late_command_started_ends_with_it() -> None:
    """And with it, what it said is there at once."""
    command = [sys.executable, "-c", CHILD]
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run_group(command, environment=os.environ, seconds=1)
    assert ends(int(late.value.output))


def test_what_a_command_leaves_ends_too(tmp_path: Path) -> None:
    text = "import subprocess, os; null = subprocess.DEVNULL; print(os.getcwd(), subprocess.Popen(['sleep', '60'], stdout=null, stderr=null).pid); raise SystemExit(3)"
    done = run_group([sys.executable, "-c", text], environment=os.environ, seconds=30, folder=tmp_path)
    folder, process = done.stdout.split()
    assert (done.returncode, folder) == (3, str(tmp_path)) and ends(int(process))
