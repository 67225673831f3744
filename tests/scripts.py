"""Scripts in processes of their own, for what is read before a program begins or done when one ends: variables, files, exit statuses.

In: the text of a script or a file, words of its command line, variables. Out: how it ended and what it printed. One process imports torch and forks a
child a script, which saves the seconds of that import; the child imports flambeau itself, under the variables. What Python and torch read when they
start (`PYTHONHASHSEED`, `OMP_NUM_THREADS`, `TORCH_LOGS`) is what it was when this module was imported; a script that does not name flambeau has a process
from the beginning.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from attrs import frozen

ROOT = Path(__file__).parents[1]
#: How long a script may take: less than pytest gives a test.
SECONDS = 240.0


@frozen
class Done:
    """How a script ended.

    Attributes:
        status: its exit status; what a signal ended has that signal's number, negative.
        stdout: what it printed.
        stderr: its messages.
    """

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both."""
        return self.stdout + self.stderr


#: The process that forks, while there is one. Tests change the environment: it has that of the session.
_SERVER: list[subprocess.Popen[str]] = []
_ENVIRONMENT = dict(os.environ)


def run(script: str, folder: Path, *words: object, **variables: object) -> Done:
    """Run the text of a script with `folder` as the working directory, as `script.py` there."""
    path = folder / "script.py"
    path.write_text(script)
    return run_file(path, *words, folder=folder, **variables)


def run_file(path: Path, *words: object, folder: Path = ROOT, **variables: object) -> Done:
    """Run a file, with `folder` as the working directory and variables in place of those of this process or beside them."""
    if "flambeau" in path.read_text():
        (done,) = run_together(path, [words], folder=folder, **variables)
        return done
    # torch reads its own variables when it is imported.
    command = [sys.executable, str(path), *map(str, words)]
    alone = subprocess.run(
        command, cwd=folder, env=_with(variables), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return Done(alone.returncode, alone.stdout, alone.stderr)


def run_together(path: Path, words: Sequence[Sequence[object]], *, folder: Path, **variables: object) -> list[Done]:
    """Run a file in several processes at once, which wait for each other or not: one for each command line."""
    commands = [[str(path), *map(str, line)] for line in words]
    return [
        Done(**answer)
        for answer in _answers({"commands": commands, "folder": str(folder), "environment": _with(variables)})
    ]


def _with(variables: dict[str, object]) -> dict[str, str]:
    return {**os.environ, **{name: str(value) for name, value in variables.items()}}


def _answers(job: dict[str, Any]) -> list[dict[str, Any]]:
    """What the server says; one that was not heard out would give this answer to the next."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        print(json.dumps(job), file=server.stdin, flush=True)
        if not select.select([server.stdout], [], [], SECONDS)[0]:
            raise TimeoutError(f"{job['commands']} took more than {SECONDS:.0f} seconds")
        answers: list[dict[str, Any]] = json.loads(server.stdout.readline())
    except BaseException:
        os.killpg(server.pid, signal.SIGKILL)
        _end()
        raise
    return answers


def _server() -> subprocess.Popen[str]:
    if not _SERVER:
        command = [sys.executable, "-m", "tests.scripts"]
        pipe = subprocess.PIPE
        server = subprocess.Popen(
            command, cwd=ROOT, env=_ENVIRONMENT, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        _SERVER.append(server)
    return _SERVER[0]


@atexit.register
def _end() -> None:
    """It ends with its input."""
    for server in _SERVER:
        server.communicate()
    _SERVER.clear()


def serve() -> None:
    """The loop of the process: a job in, how its children ended out."""
    import torch.fx.experimental.symbolic_shapes  # noqa: F401  once, for every child

    for line in sys.stdin:
        job = json.loads(line)
        children = [_Child(command, job) for command in job["commands"]]
        print(json.dumps([child.answer() for child in children]), flush=True)


class _Child:
    """A forked process that runs a script."""

    def __init__(self, command: list[str], job: dict[str, Any]) -> None:
        self._streams = {name: os.memfd_create(name) for name in ("stdout", "stderr")}
        self._number = os.fork()
        if self._number == 0:
            _be_script(command, job, **self._streams)

    def answer(self) -> dict[str, Any]:
        """How it ended, once it has."""
        _, status = os.waitpid(self._number, 0)
        found: dict[str, Any] = {"status": os.waitstatus_to_exitcode(status)}
        for name, descriptor in self._streams.items():
            with open(descriptor, errors="replace") as stream:
                stream.seek(0)
                found[name] = stream.read()
        return found


def _be_script(command: list[str], job: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = list(command)
    sys.path[0] = str(Path(sys.argv[0]).parent)
    status = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    # The end of a Python process, without the destructors of C++: threads of the server's that they may wait for are not in its copy.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
