"""One graph tried: does it fail as the first did? Here, or in a process that may crash.

In: a graph, its inputs, how to compile it. Out: a verdict: "ok", "wrong: …", "slow: …", "crash: …" or, of a process, "signal 11" or "hung".
`Process` is one that has torch and flambeau loaded and forks a child for each trial: a crash ends the child alone. The process itself
computes nothing, so that a child may use threads and GPUs. It loads what children had to load, which takes longer than a compilation.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any

import torch
from torch import nn

from ..scripts import run_as_main
from .compare import copies, difference, run, widened

_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1
#: How much slower than eager counts as slow, how long one look at that takes, and how many have to say so.
_SLOWER, _SECONDS, _LOOKS = 1.2, 0.2, 3


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
    """Slow is what is slow at every look: the machine has other work that may fall into one of them."""
    least = float("inf")
    for _ in range(_LOOKS):
        least = min(least, _ratio(model, compiled, inputs))
        if least <= _SLOWER:
            return "ok"
    return f"slow: {least:.2f} times eager"


def _ratio(model: nn.Module, compiled: Callable[..., Any], inputs: Sequence[Any]) -> float:
    """The shortest time of each, called in turn; with a backward where there are inputs for one."""
    cuda = any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)
    training = any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
    shortest = [float("inf"), float("inf")]
    given = [copies(inputs), copies(inputs)]
    calls, end = 0, time.perf_counter() + _SECONDS
    with contextlib.nullcontext() if training else torch.no_grad():
        while calls < 3 or time.perf_counter() < end:
            for place, function in enumerate((model, compiled)):
                start = time.perf_counter()
                _ = run(function, given[place]) if training else function(*given[place])
                if cuda:
                    torch.cuda.synchronize()
                shortest[place] = min(shortest[place], time.perf_counter() - start)
            calls += 1
    return shortest[1] / shortest[0]


def check(model: nn.Module, compiled: Callable[..., Any], inputs: Sequence[Any], what: str) -> None:
    """What the scripts of the minifier call. Raises AssertionError where the compiled model fails; a crash is raised as it is."""
    if what == "crash":
        run(compiled, copies(inputs))
        return
    verdict = judge(model, compiled, inputs, what)
    if not verdict.startswith("ok"):
        raise AssertionError(verdict)


def try_here(
    packed: bytes,
    what: str,
    arguments: Mapping[str, Any],
    how: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> str:
    """Compile a packed graph in this process, whose environment it changes, call it, and judge."""
    import flambeau

    from .graphs import unpack

    os.environ.update(environment or {})
    gm, inputs = unpack(packed)
    try:
        compiled = flambeau.compile(gm, **arguments)
    except Exception as error:
        return f"crash: {_kind(error)}"
    return judge(gm, compiled, inputs, what, **how)


def run_script(path: str, words: Sequence[str], environment: Mapping[str, str], beside: str = "") -> str:
    """Run a script in this process, which it may change as it likes, as if it lay in the folder `beside`."""
    os.environ.update(environment)
    try:
        run_as_main(path, words, beside)
    except SystemExit as end:
        return "ok" if end.code in (None, 0) else f"exit {end.code}"
    except BaseException as error:
        traceback.print_exc()
        return f"exit 1: {_kind(error)}"
    return "ok"


class Process:
    """A process that runs jobs, each in a child of its own; a context manager.

    Args:
        environment: laid over this process's.
        forked: it is this process's own child, which saves loading torch again: for processes that have computed nothing, as a child has none
            of their threads, and cannot use their devices. Where there are any of these, a new process is started all the same.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, *, forked: bool = False) -> None:
        changed = {"FLAMBEAU_SUPPRESS_ERRORS": "0", **(environment or {}), **_QUIET}
        self._child: subprocess.Popen[bytes] | int
        if forked and _can_be_copied():
            self._child, self._jobs, self._answers = _forked(changed)
            return
        self._child = subprocess.Popen(
            [sys.executable, "-c", "from flambeau.debugging.trial import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **changed},
        )
        assert self._child.stdin is not None and self._child.stdout is not None
        self._jobs, self._answers = self._child.stdin, self._child.stdout

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(BrokenPipeError):
            self._jobs.close()  # a job that an ended process did not read
        self._answers.close()
        if isinstance(self._child, int):
            os.waitpid(self._child, 0)
        else:
            self._child.wait()

    def ask(self, function: Callable[..., str], arguments: Sequence[Any], seconds: float) -> str:
        """What a function answers in a child, which is stopped after `seconds`. Raises RuntimeError where the process has ended."""
        job = pickle.dumps((function, arguments, seconds))
        size = b""
        with contextlib.suppress(BrokenPipeError):
            self._jobs.write(_LENGTH.pack(len(job)) + job)
            self._jobs.flush()
            size = self._answers.read(_LENGTH.size)
        if len(size) < _LENGTH.size:
            raise RuntimeError("the process that tries graphs has ended")
        return self._answers.read(*_LENGTH.unpack(size)).decode()


def _can_be_copied() -> bool:
    """Whether a child of this process can compute. Threads of torch's own begin with what it computes, and are not seen here."""
    return threading.active_count() == 1 and not torch.cuda.is_initialized()


def _forked(environment: Mapping[str, str]) -> tuple[int, IO[bytes], IO[bytes]]:
    jobs, answers = os.pipe(), os.pipe()
    child = os.fork()
    if child:
        os.close(jobs[0])
        os.close(answers[1])
        return child, os.fdopen(jobs[1], "wb"), os.fdopen(answers[0], "rb")
    os.close(jobs[1])
    os.close(answers[0])
    os.environ.update(environment)
    try:
        with os.fdopen(jobs[0], "rb") as given:
            _serve(given, answers[1])
    finally:
        os._exit(0)  # nothing of the process that it is a copy of is to be ended here


class Trials:
    """Tries graphs and scripts, each in a child of a process; a context manager.

    Args:
        arguments: of `flambeau.compile`.
        seconds: after which a trial is stopped.
        environment: laid over this process's.
        process: that of other trials, which stays open; a new one without.
    """

    def __init__(
        self,
        what: str = "any",
        arguments: Mapping[str, Any] | None = None,
        *,
        seconds: float = 60.0,
        environment: Mapping[str, str] | None = None,
        how: Mapping[str, Any] | None = None,
        process: Process | None = None,
    ) -> None:
        self.what, self.arguments, self.seconds, self.how = what, dict(arguments or {}), seconds, dict(how or {})
        self.count = 0
        self._is_shared = process is not None
        self._process = process or Process(environment)

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._is_shared:
            self._process.close()

    def verdict(self, packed: bytes, environment: Mapping[str, str] | None = None) -> str:
        """The verdict on one packed graph; the environment is that of its trial alone."""
        self.count += 1
        given = (packed, self.what, self.arguments, self.how, dict(environment or {}))
        return self._process.ask(try_here, given, self.seconds)

    def script(
        self,
        path: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        beside: str = "",
        *,
        seconds: float | None = None,
        run: Callable[..., str] = run_script,
    ) -> str:
        """How a script ends: "ok", or "exit" and what it ended with, or what another function that runs it says. The environment is that of the script alone.
        `seconds`: other ones than for a trial."""
        self.count += 1
        given = (path, tuple(words), dict(environment), beside)
        return self._process.ask(run, given, self.seconds if seconds is None else seconds)


#: What the environment of a trial must not have: it would keep and judge graphs itself.
_QUIET = dict.fromkeys(("FLAMBEAU_REPRO_AFTER", "FLAMBEAU_REPRO_LEVEL", "FLAMBEAU_VERIFY"), "")


def serve() -> None:
    """The loop of the process: a job in, a verdict out."""
    import flambeau  # noqa: F401  (once, for every child)

    answers = os.dup(1)
    os.dup2(2, 1)  # what a trial prints is no verdict
    _serve(sys.stdin.buffer, answers)


def _serve(given: IO[bytes], answers: int) -> None:
    while len(size := given.read(_LENGTH.size)) == _LENGTH.size:
        verdict, modules = _in_child(given.read(*_LENGTH.unpack(size)))
        words = verdict.encode()
        os.write(answers, _LENGTH.pack(len(words)) + words)
        for name in modules:
            # A module that cannot be loaded is a matter of the trials that need it.
            with contextlib.suppress(Exception):
                importlib.import_module(name)


#: Packages whose modules the process loads for its children: none of the script's, which may do anything when they are loaded.
_SHARED = frozenset({"torch", "numpy", "sympy", "mpmath", "triton", "attrs", "attr", "structlog", "rich", "flambeau"})


def _is_shared(name: str) -> bool:
    top = name.partition(".")[0]
    return top in _SHARED or top.startswith("flambeau_") or top in sys.stdlib_module_names


def _in_child(job: bytes) -> tuple[str, list[str]]:
    """A child's verdict, and the modules that it had to load."""
    read, write = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_child(job, write, parent)
    os.close(write)
    seconds: float = pickle.loads(job)[-1]
    text, late = _read(read, seconds)
    os.close(read)
    # What it started is of its group, which there is none of where it was stopped before it made one.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text:
        verdict, *modules = text.split("\0")
        return verdict, modules
    return "hung" if late else f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "crash: exit", []


def _end_with(parent: int) -> None:
    """Also where the parent is killed: nothing else would stop a trial that hangs, as it is of a session of its own."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


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


def _be_child(job: bytes, write: int, parent: int) -> None:
    os.setsid()
    _end_with(parent)
    # What it prints is no verdict, and what it could read are the jobs.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    loaded = set(sys.modules)
    function, arguments, _ = pickle.loads(job)
    try:
        words = function(*arguments)
    except BaseException as error:
        words = f"ok: cannot be tried: {type(error).__name__}: {error}"
    modules = [name for name in tuple(sys.modules) if name not in loaded and _is_shared(name)]
    with os.fdopen(write, "wb") as answer:
        answer.write("\0".join([words[: 1 << 16].replace("\0", ""), *modules]).encode(errors="replace"))
    os._exit(0)
