"""Scripts in processes of their own, for what is documented of environment variables: they are read before a program begins.

In: the text of a script, variables. Out: what it printed. One process imports torch and forks a child a script, which saves the seconds of
that import; the child imports the compiler itself, under the variables.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen


@frozen
class Done:
    """How a script ended.

    Attributes:
        status: its exit status.
        output: both of its streams.
    """

    status: int
    output: str


_SERVER: list[subprocess.Popen[str]] = []


def run(script: str, folder: Path, **variables: str | Path) -> Done:
    """Run a script with `folder` as the working directory."""
    if "flambeau" not in script:
        return _alone(script, folder, variables)
    job = {
        "script": script,
        "folder": str(folder),
        "variables": {name: str(value) for name, value in variables.items()},
    }
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps(job), file=server.stdin, flush=True)
    return Done(**json.loads(server.stdout.readline()))


def _alone(script: str, folder: Path, variables: Mapping[str, object]) -> Done:
    """torch reads its own variables when it is imported."""
    (folder / "script.py").write_text(script)
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Done(done.returncode, done.stdout)


def _server() -> subprocess.Popen[str]:
    if not _SERVER or _SERVER[0].poll() is not None:
        command = [sys.executable, "-m", "tests.documented.scripts"]
        root = Path(__file__).parents[2]
        pipe = subprocess.PIPE
        _SERVER[:] = [subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True)]
        atexit.register(_end)
    return _SERVER[0]


def _end() -> None:
    for server in _SERVER:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
    _SERVER.clear()


def serve() -> None:
    """The loop of the process: a job in, how it ended out."""
    # Once, for every child.
    import torch.fx.experimental.symbolic_shapes  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        with tempfile.TemporaryFile("w+") as output:
            child = os.fork()
            if child == 0:
                _be_script(job, output.fileno())
            _, status = os.waitpid(child, 0)
            output.seek(0)
            print(json.dumps({"status": os.waitstatus_to_exitcode(status), "output": output.read()}), flush=True)


def _be_script(job: dict[str, object], output: int) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(str(job["folder"]))
    os.environ.update(dict(job["variables"]))  # type: ignore[call-overload]
    path = Path("script.py")
    path.write_text(str(job["script"]))
    status = 0
    try:
        exec(compile(path.read_text(), str(path.absolute()), "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
