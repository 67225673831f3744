"""`flambeau doctor`: what flambeau finds around itself, whether it compiles here, and what to do where it does not.

In: this machine. Out: a line for each of Python, torch, triton, devices, compiler, cache, and for a small compile on every device; exit status 1 where something fails.
"""

from __future__ import annotations

import importlib.metadata
import linecache
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import torch
from attrs import frozen
from rich.console import Console
from rich.text import Text

from flambeau_runtime import accelerators
from flambeau_runtime.build import find_toolchain
from flambeau_runtime.cache import default_store
from flambeau_runtime.errors import CompilerUnavailable

from ..units import bytes_text, counted, seconds_text
from .failures import one_line

_MARKS = {"ok": ("ok", "green"), "note": ("--", "yellow"), "fails": ("!!", "bold red")}
_LITTLE_BYTES = 1 << 30
_FILE = "<flambeau doctor>"
_SMALL = """def small(x):
    return (torch.tanh(x) * x.sum(-1, keepdim=True)).sum()
"""


@frozen
class Finding:
    """One line.

    Attributes:
        what: what was looked at.
        state: "ok"; "note" for what works without; "fails".
        found: a version, a name, what went wrong.
        remedy: what to do about it; empty where nothing is to be done.
    """

    what: str
    state: str
    found: str
    remedy: str = ""


@click.command()
def doctor() -> None:
    """Look at the surroundings, and compile something small on every device; where something fails, say what to do."""
    console = Console(highlight=False, soft_wrap=True)
    failed = 0
    for finding in findings():
        mark, style = _MARKS[finding.state]
        console.print(Text.assemble((f"{mark} ", style), (f"{finding.what:9} ", "bold"), finding.found))
        if finding.remedy:
            console.print(Text(f"             {finding.remedy}", style="dim"))
        failed += finding.state == "fails"
    if failed:
        console.print(Text(f"{counted(failed, 'check')} failed", style="bold red"))
        raise SystemExit(1)
    console.print(Text("flambeau compiles here", style="green"))


def findings() -> Iterator[Finding]:
    """Everything, in the order in which it is shown; what takes long comes as it is found."""
    yield python()
    yield torchs()
    yield Finding(
        "processor", "ok", f"{torch.backends.cpu.get_cpu_capability()}, {counted(torch.get_num_threads(), 'thread')}"
    )
    yield triton()
    yield from gpus()
    yield compiler()
    yield cache()
    for device in devices():
        yield small_compile(device)


def python() -> Finding:
    """The interpreter: flambeau is not imported by one that it does not support, nor beside another torch."""
    return Finding("python", "ok", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")


def torchs() -> Finding:
    """torch."""
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for CPUs"
    return Finding("torch", "ok", f"{torch.__version__}, built {built}")


def triton() -> Finding:
    """What compiles kernels for GPUs. Its distribution has several names, and builds of one's own may have none."""
    if find_spec("triton") is not None:
        names = importlib.metadata.packages_distributions().get("triton", [])
        return Finding("triton", "ok", importlib.metadata.version(names[0]) if names else "of an unknown version")
    if torch.cuda.is_available():
        return Finding(
            "triton",
            "fails",
            "not installed",
            "pip install 'flambeau[triton]': without it everything on a GPU runs in eager",
        )
    return Finding("triton", "note", "not installed; it is needed on a GPU alone")


def gpus() -> Iterator[Finding]:
    """CUDA devices and their driver."""
    driver = _driver()
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(number)
            told = f"cuda:{number} {found.name}, compute capability {found.major}.{found.minor}, {bytes_text(found.total_memory)}"
            yield Finding("gpu", "ok", f"{told}, driver {driver or 'unknown'}")
    elif not driver:
        yield Finding("gpu", "note", "none: no NVIDIA driver answers, and programs on CPUs need none")
    elif torch.version.cuda is None:
        yield Finding(
            "gpu",
            "fails",
            f"there is one (driver {driver}), but this torch is built for CPUs",
            "install torch for CUDA: https://pytorch.org/get-started/locally",
        )
    else:
        yield Finding("gpu", "fails", f"torch for CUDA {torch.version.cuda} does not see it (driver {driver}); CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}",
                      "unset CUDA_VISIBLE_DEVICES, or update the driver to one for this CUDA")  # fmt: skip


def _driver() -> str:
    """The version of NVIDIA's driver, or ""."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def compiler() -> Finding:
    """What compiles kernels for CPUs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = find_toolchain()
    except CompilerUnavailable as error:
        return Finding(
            "compiler",
            "fails",
            error.message,
            "install g++ or clang++ (Debian: apt-get install g++), or name one in CXX",
        )
    return Finding("compiler", "ok", f"{found.version} ({found.command[0]})")


def cache() -> Finding:
    """The folder in which compiled code is kept."""
    folder = default_store().folder
    if folder is None:
        return Finding("cache", "note", "none: caches are switched off, every process compiles anew")
    try:
        existing = _existing(folder)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError:
        return Finding(
            "cache",
            "fails",
            f"{folder} cannot be written to: every process compiles anew",
            "name a folder of yours in FLAMBEAU_CACHE_DIR",
        )
    status = os.statvfs(existing)
    free = status.f_bavail * status.f_frsize
    if free < _LITTLE_BYTES:
        return Finding(
            "cache",
            "note",
            f"{folder}, {bytes_text(free)} free there",
            "`flambeau cache clear` empties it; FLAMBEAU_CACHE_DIR moves it",
        )
    return Finding("cache", "ok", f"{folder}, {bytes_text(free)} free there")


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def devices() -> list[str]:
    """The CPU, and every device of the kinds that flambeau knows."""
    found = ["cpu"]
    for kind in accelerators.known():
        if kind.is_available():
            count = torch.cuda.device_count() if kind.type == "cuda" else 1
            found += [f"{kind.type}:{number}" for number in range(count)]
    return found


def small_compile(device: str) -> Finding:
    """Compile a function without caches, run it forward and backward, and compare with eager."""
    from ..compiler import config, reset
    from ..explain import explain

    what, function = "compile", _program()
    try:
        # The first use of a device: a driver that does not fit its torch is told here.
        x = torch.linspace(-2, 2, 64, device=device).reshape(8, 8).requires_grad_()
        with config.patch(suppress_errors=False):
            found = explain(function, measure=False, options={"force_disable_caches": True})(x)
            found.result.backward()
        wrong = _wrong(function, x, found.result)
    except Exception as error:
        return Finding(what, "fails", f"on {device}: {type(error).__name__}: {one_line(error)}", _remedy(device))
    finally:
        reset()
    if wrong:
        return Finding(what, "fails", f"on {device}: {wrong}", _remedy(device))
    kernels = sum(program.kernels for program in found.programs)
    if found.eager_graphs or not kernels:
        reason = next(iter(found.eager_graphs), found.not_captured or "no kernel was made of it")
        return Finding(what, "fails", f"on {device}: it runs in eager: {reason}", _remedy(device))
    took = seconds_text(sum(found.seconds.values()))
    return Finding(
        what, "ok", f"on {device}: {counted(kernels, 'kernel')} in {took}, results and gradients as in eager"
    )


def _program() -> Callable[[torch.Tensor], torch.Tensor]:
    """The function that is compiled, in a file of its own: flambeau's own code is never captured."""
    linecache.cache[_FILE] = (len(_SMALL), None, _SMALL.splitlines(keepends=True), _FILE)
    names: dict[str, Any] = {"__name__": "doctor", "torch": torch}
    exec(compile(_SMALL, _FILE, "exec"), names)
    function: Callable[[torch.Tensor], torch.Tensor] = names["small"]
    return function


def _wrong(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, result: Any) -> str:
    gradient, x.grad = x.grad, None
    expected = function(x)
    expected.backward()
    for name, ours, theirs in (("the result", result, expected), ("the gradient", gradient, x.grad)):
        if ours is None or theirs is None or not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5):
            return f"{name} is not eager's"
    return ""


def _remedy(device: str) -> str:
    if device == "cpu":
        return "FLAMBEAU_LOGS=+flambeau shows what was done; a compiler that cannot compile needs its headers (Debian: libc6-dev)"
    return "FLAMBEAU_LOGS=+flambeau shows what was done; docs/guide/gpu.md says what has to be installed"
