"""Which C++ compiler is used, found once per process and environment.

In: ``CXX`` and ``PATH``. Out: a ``Toolchain`` whose ``identity`` is part of every kernel's cache key, or
``CompilerUnavailable`` and one warning per process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import warnings

from attrs import frozen

from .. import log, processor
from ..config import Config
from ..errors import CompilerUnavailable

BASE_FLAGS = (
    # GCC 12 takes AVX2's masked loads of several arrays for one while it removes partial redundancies: a part of a concatenation is lost.
    "-std=c++20", "-O3", "-fno-tree-pre", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp-simd", "-fno-exceptions", "-fno-rtti", "-fPIC", "-shared", "-w",
)  # fmt: skip
_CANDIDATES = ("g++", "clang++", "c++")
_PROBE_SECONDS = 20


@frozen
class Toolchain:
    """A compiler command (``command``), its version line and an identity that changes when its output may."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    identity: str


def find_toolchain(config: Config | None = None) -> Toolchain:
    """The compiler to use. Raises ``CompilerUnavailable`` (after one warning) when there is none that answers."""
    config = Config.from_environment() if config is None else config
    found = _probe(config.cxx, os.environ.get("PATH", ""), config.cxx_flags)
    reason = _unable.get(found) if isinstance(found, Toolchain) else found
    if isinstance(found, Toolchain) and reason is None:
        return found
    raise CompilerUnavailable(str(reason))


def give_up(toolchain: Toolchain, reason: str) -> CompilerUnavailable:
    """Note that a compiler answers but cannot compile, warn once, and return the error to raise."""
    _unable[toolchain] = reason
    warn_unavailable(reason)
    return CompilerUnavailable(reason)


_unable: dict[Toolchain, str] = {}


@functools.lru_cache(maxsize=32)
def _probe(cxx: str, path: str, extra_flags: str) -> Toolchain | str:
    """A toolchain, or the reason why there is none. ``path`` is an argument so that a changed PATH probes again."""
    candidates = [shlex.split(cxx)] if cxx.strip() else [[name] for name in _CANDIDATES]
    reasons = []
    for command in candidates:
        executable = shutil.which(command[0], path=path)
        if executable is None:
            reasons.append(f"{command[0]} {'of CXX ' if cxx.strip() else ''}was not found")
            continue
        answer = _version([executable, *command[1:]])
        if isinstance(answer, bytes):
            version = answer.decode(errors="replace").splitlines()[0] if answer else ""
            flags = (*BASE_FLAGS, f"-DFB_FAR_BYTES={_far_bytes()}", *shlex.split(extra_flags))
            identity = hashlib.sha256("\0".join((version, *command[1:], *flags, _cpu())).encode()).hexdigest()
            return Toolchain((executable, *command[1:]), version, flags, identity)
        reasons.append(answer)
    reason = "; ".join(reasons)
    warn_unavailable(reason)
    return reason


@functools.cache
def warn_unavailable(reason: str) -> None:
    """Tell the user once per reason that fused CPU kernels are not available."""
    warnings.warn(f"{log.COMPILER_UNAVAILABLE} ({reason})", RuntimeWarning, stacklevel=5)


def _version(command: list[str]) -> bytes | str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    if done.returncode:
        return f"{command[0]} --version ended with status {done.returncode}"
    return done.stdout


def _far_bytes() -> int:
    """What a kernel has to read and write for its results not to stay in a cache: most of the largest cache."""
    return max(processor.cache_bytes(3) * 3 // 4, 4 << 20)


def _cpu() -> str:
    """What ``-march=native`` depends on: the machine and the CPU's feature flags."""
    return f"{platform.machine()} {' '.join(sorted(processor.features()))}"
