"""C++ sources to shared objects, through the store, several compilers at once.

In: libraries of an artifact and the folders of the headers they include. Out: the same libraries with ``binary``.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import evolve

from .. import log
from ..artifact import Artifact, Library
from ..cache import CacheKey, Store, default_store
from ..cache.trust import scratch_folder
from ..config import Config
from ..errors import BuildError, CompilerUnavailable
from ..languages import language_of
from ..profile import span
from .toolchain import Toolchain, find_toolchain, give_up

#: How g++ and clang say that the fault is theirs.
_FAULT = re.compile(
    r"internal compiler error|unrecognizable insn|could not split insn|terminated program|PLEASE submit a bug report"
)
#: What is asked of a compiler next, after a fault of its own. g++ 12 reads an operand of a masked vector instruction from memory where there is no
#: such instruction, and splits some that it has made up; other faults are in what only `-O3` does, or in instructions of AVX-512.
_WEAKER = (("-fno-tree-ter",), ("-O1",), ("-O1", "-mno-avx512f"))
_POSITION = re.compile(r"kernel\.cpp:(\d+)")
_PROBE_SOURCE = 'extern "C" long flambeau_probe(long x) { return x + 1; }\n'
_CONTEXT_LINES = 3


def library_key(library: Library, toolchain: Toolchain, include_dirs: Sequence[str | Path] = ()) -> CacheKey:
    """What decides a binary: source, flags, compiler and CPU, and the headers' content."""
    return CacheKey(
        "kernel",
        {
            "source": hashlib.sha256(library.text.encode()).hexdigest(),
            "flags": " ".join(library.flags),
            "toolchain": toolchain.identity,
            "headers": _headers_digest(include_dirs),
        },
    )


def _start(artifact: Artifact, store: Store) -> None:
    """Have what is not C++ begin to be compiled."""
    for language in dict.fromkeys(map(language_of, artifact.libraries)):
        if language.start is not None:
            language.start(artifact, store)


def _headers_digest(include_dirs: Sequence[str | Path]) -> str:
    digest = hashlib.sha256()
    for folder in include_dirs:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in (".h", ".hpp", ".inc"):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build_libraries(
    artifact: Artifact,
    *,
    include_dirs: Sequence[str | Path] = (),
    store: Store | None = None,
    config: Config | None = None,
) -> Artifact:
    """Return ``artifact`` with the binary of every C++ library.

    Binaries come from ``store`` (default: the user's) or from the compiler. Raises ``CompilerUnavailable`` when one is
    missing and no compiler works, ``BuildError`` (with the offending lines) when the compiler refuses a source.
    The Triton kernels of a program for a GPU begin to be compiled in the background.
    """
    config = Config.from_environment() if config is None else config
    store = default_store(config) if store is None else store
    _start(artifact, store)
    wanted = [i for i, lib in enumerate(artifact.libraries) if language_of(lib).bind is None and lib.binary is None]
    if not wanted:
        return artifact
    toolchain = find_toolchain(config)

    def build(index: int) -> Library:
        return compile_library(
            artifact.libraries[index], toolchain, include_dirs=include_dirs, store=store, config=config
        )

    if len(wanted) == 1:
        built = [build(wanted[0])]
    else:
        with ThreadPoolExecutor(max_workers=min(config.jobs(), len(wanted))) as pool:
            built = list(pool.map(build, wanted))
    libraries = list(artifact.libraries)
    for index, library in zip(wanted, built):
        libraries[index] = library
    return evolve(artifact, libraries=tuple(libraries))


def compile_library(
    library: Library,
    toolchain: Toolchain,
    *,
    include_dirs: Sequence[str | Path] = (),
    store: Store,
    config: Config,
) -> Library:
    """``library`` with its binary, from the store or compiled. Two processes wanting the same one compile it once."""
    key = library_key(library, toolchain, include_dirs)
    binary = store.get(key)
    if binary is None:
        # Two libraries of one process may share a lock file; the lock only saves work, so waiting is bounded.
        with store.lock(key, patience_seconds=120):
            binary = store.get(key)
            if binary is None:
                started = time.perf_counter()
                with span("compile C++", library=library.name):
                    binary = run_compiler(library, toolchain, include_dirs, config)
                store.put(key, binary)
                seconds = round(time.perf_counter() - started, 3)
                log.logger.debug(log.COMPILED, artifact="timings", library=library.name, seconds=seconds)
    return evolve(library, binary=binary)


def run_compiler(library: Library, toolchain: Toolchain, include_dirs: Sequence[str | Path], config: Config) -> bytes:
    """Compile one library and return the shared object's bytes."""
    with tempfile.TemporaryDirectory(prefix="flambeau-", dir=scratch_folder()) as folder:
        source, output = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(library.text)
        includes = [f"-I{path}" for path in include_dirs]
        command = [*toolchain.command, *toolchain.flags, *includes, str(source), "-o", str(output), *library.flags]
        done = _run(command, folder, library, toolchain, config)
        for flags in _WEAKER:
            if done.returncode >= 0 and not (done.returncode and _FAULT.search(done.stderr)):
                break
            log.logger.info(log.COMPILER_BROKE, library=library.name, flags=flags)
            done = _run([*command, *flags], folder, library, toolchain, config)
        if done.returncode == 0 and output.exists():
            return output.read_bytes()
        if library.text != _PROBE_SOURCE and not _works(toolchain, config):
            reason = f"{toolchain.command[0]} cannot compile an empty kernel: {done.stderr.strip()[:300]}"
            raise give_up(toolchain, reason)
        raise BuildError(_explain(library, command, done.stderr))


def _run(
    command: Sequence[str], folder: str, library: Library, toolchain: Toolchain, config: Config
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", cwd=folder, check=False,
            timeout=config.precompilation_timeout_seconds,
        )  # fmt: skip
    except OSError as error:
        raise give_up(toolchain, str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"library {library.name}: the compiler ran longer than {config.precompilation_timeout_seconds} s"
        ) from error


def _works(toolchain: Toolchain, config: Config) -> bool:
    """Whether the compiler can compile anything at all: a refusal is then the source's fault."""
    try:
        run_compiler(Library("probe", "cpp", _PROBE_SOURCE), toolchain, (), config)
    except (BuildError, CompilerUnavailable):
        return False
    return True


def _explain(library: Library, command: Sequence[str], stderr: str) -> str:
    """The compiler's words and the source lines they speak of."""
    source_lines = library.text.splitlines()
    shown: list[str] = []
    for match in list(dict.fromkeys(_POSITION.findall(stderr)))[:_CONTEXT_LINES]:
        number = int(match)
        for position in range(max(1, number - 1), min(len(source_lines), number + 1) + 1):
            shown.append(f"{'>' if position == number else ' '} {position:5d} | {source_lines[position - 1]}")
    parts = [f"library {library.name} does not compile", stderr.strip()[:4000], *shown, "command: " + " ".join(command)]
    return "\n".join(parts)
