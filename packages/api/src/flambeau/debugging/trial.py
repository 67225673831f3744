"""One graph tried: does it fail as the first did? Here, or in a process that may crash.

In: a graph, its inputs, how to compile it. Out: a verdict: "ok", "wrong: …", "slow: …", "crash: …" or, of a process, "signal 11" or "hung".
`Trials` keeps one process that has torch and flambeau loaded and forks one child a trial: a crash ends the child alone. The process itself
computes nothing, so that a child may use threads and GPUs.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import runpy
import select
import signal
import statistics
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn

from .compare import copies, difference, run, widened

_LENGTH = struct.Struct("<Q")
#: How much slower than eager counts as slow, and how long is timed.
_SLOWER, _SECONDS = 1.2, 0.3


def judge(model: nn.Module, compiled: Callable[..., Any], inputs: Sequence[Any], what: str, **how: Any) -> str:
    """The verdict on one call.

    Args:
        what: "wrong" compares results and gradients, "crash" waits for an exception, "slow" times; "any" compares.
        how: `tolerance`, `ignore_integers`, `forward_only` as for `compare`.
    """
    forward_only = bool(how.pop("forward_only", False))
    state = torch.random.get_rng_state()
    try:
        expected = run(model, copies(inputs), forward_only=forward_only)
    except Exception as error:
        return f"ok: eager raises {type(error).__name__}"
    torch.random.set_rng_state(state)
    try:
        actual = run(compiled, copies(inputs), forward_only=forward_only)
    except Exception as error:
        return f"crash: {_kind(error)}"
    if what == "crash":
        return "ok"
    if what == "slow":
        return _slowness(model, compiled, inputs)

    def exact() -> Any:
        torch.random.set_rng_state(state)
        return run(_wide(model), [widened(value) for value in inputs], forward_only=forward_only)

    found = difference(actual, expected, _quiet(exact), **how)
    return f"wrong: {found}" if found else "ok"


def _kind(error: BaseException) -> str:
    """What kind of failure it is: the innermost cause's class, whatever it says of sizes and names."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _quiet(exact: Callable[[], Any]) -> Callable[[], Any]:
    def ask() -> Any:
        try:
            return exact()
        except Exception:
            return None  # a program that names its types has no twin in float64: eager is right then

    return ask


def _wide(model: nn.Module) -> Callable[..., Any]:
    import copy

    return copy.deepcopy(model).double()


def _slowness(model: nn.Module, compiled: Callable[..., Any], inputs: Sequence[Any]) -> str:
    eager, ours = (_median(function, copies(inputs)) for function in (model, compiled))
    return f"slow: {ours / eager:.2f} times eager" if ours > _SLOWER * eager else "ok"


def _median(function: Callable[..., Any], inputs: Sequence[Any]) -> float:
    cuda = any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)
    times: list[float] = []
    with torch.no_grad():
        function(*inputs)
        end = time.perf_counter() + _SECONDS
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            function(*inputs)
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def check(model: nn.Module, compiled: Callable[..., Any], inputs: Sequence[Any], what: str) -> None:
    """What the scripts of the minifier call. Raises AssertionError where the compiled model fails; a crash is raised as it is."""
    if what == "crash":
        run(compiled, copies(inputs))
        return
    verdict = judge(model, compiled, inputs, what)
    if not verdict.startswith("ok"):
        raise AssertionError(verdict)


def try_here(packed: bytes, what: str, arguments: Mapping[str, Any], how: Mapping[str, Any]) -> str:
    """Compile a packed graph in this process, call it, and judge."""
    import flambeau

    from .graphs import unpack

    gm, inputs = unpack(packed)
    try:
        compiled = flambeau.compile(gm, **arguments)
    except Exception as error:
        return f"crash: {_kind(error)}"
    return judge(gm, compiled, inputs, what, **how)


def run_script(path: str, words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a script in this process, which it may change as it likes."""
    os.environ.update(environment)
    sys.argv = [path, *words]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        return "ok" if end.code in (None, 0) else f"exit {end.code}"
    except BaseException:
        traceback.print_exc()
        return "exit 1"
    return "ok"


class Trials:
    """A process that tries graphs and scripts, each in a child of its own; a context manager.

    Args:
        arguments: of `flambeau.compile`.
        seconds: after which a trial is stopped.
        environment: laid over this process's.
    """

    def __init__(
        self,
        what: str = "any",
        arguments: Mapping[str, Any] | None = None,
        *,
        seconds: float = 60.0,
        environment: Mapping[str, str] | None = None,
        how: Mapping[str, Any] | None = None,
    ) -> None:
        self.what, self.arguments, self.seconds, self.how = what, dict(arguments or {}), seconds, dict(how or {})
        self.count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from flambeau.debugging.trial import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "FLAMBEAU_SUPPRESS_ERRORS": "0", **(environment or {}), **_QUIET},
        )

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def verdict(self, packed: bytes) -> str:
        """The verdict on one packed graph."""
        self.count += 1
        return self._ask(try_here, packed, self.what, self.arguments, self.how)

    def script(self, path: str, words: Sequence[str], environment: Mapping[str, str]) -> str:
        """How a script ends: "ok", or "exit", a number; the environment is that of the script alone."""
        self.count += 1
        return self._ask(run_script, path, tuple(words), dict(environment))

    def _ask(self, function: Callable[..., str], *arguments: Any) -> str:
        job = pickle.dumps((function, arguments, self.seconds))
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(_LENGTH.pack(len(job)) + job)
        self._process.stdin.flush()
        size = self._process.stdout.read(_LENGTH.size)
        if len(size) < _LENGTH.size:
            raise RuntimeError("the process that tries graphs has ended")
        return self._process.stdout.read(*_LENGTH.unpack(size)).decode()


#: What the environment of a trial must not have: it would keep and judge graphs itself.
_QUIET = dict.fromkeys(("FLAMBEAU_REPRO_AFTER", "FLAMBEAU_REPRO_LEVEL", "FLAMBEAU_VERIFY"), "")


def serve() -> None:
    """The loop of the process: a job in, a verdict out."""
    import flambeau  # noqa: F401  (once, for every child)

    given, answers = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # what a trial prints is no verdict
    while len(size := given.read(_LENGTH.size)) == _LENGTH.size:
        words = _in_child(given.read(*_LENGTH.unpack(size))).encode()
        os.write(answers, _LENGTH.pack(len(words)) + words)


def _in_child(job: bytes) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_child(job, write)
    os.close(write)
    seconds: float = pickle.loads(job)[-1]
    text, late = _read(read, seconds)
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text:
        return text
    return "hung" if late else f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "crash: exit"


def _read(pipe: int, seconds: float) -> tuple[str, bool]:
    """What a child says before it ends, and whether it was late."""
    end, found = time.monotonic() + seconds, b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return "", True
        part = os.read(pipe, 1 << 16)
        if not part:
            return found.decode(), False
        found += part


def _be_child(job: bytes, write: int) -> None:
    with contextlib.suppress(OSError):
        os.setsid()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.dup2(null, 1)
    function, arguments, _ = pickle.loads(job)
    try:
        words = function(*arguments)
    except BaseException as error:
        words = f"ok: cannot be tried: {type(error).__name__}: {error}"
    os.write(write, words.encode()[: 1 << 16])
    os._exit(0)
