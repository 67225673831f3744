"""Build the native modules: a g++ command a file or group of files, one to link, nothing needed but g++ and an installed torch.

In: `packages/<name>/csrc/**/*.cpp` and the shared headers in `native/include`. Out: `src/flambeau_<name>/_C.<suffix>.so`, or
another path when a wheel is built (`hatch_build.py` of each package uses `build` from here)::

    python tools/build_native.py --inplace                  # every package that has C++ sources
    python tools/build_native.py --inplace capture runtime  # some of them
    python tools/build_native.py --inplace --jobs 1         # one compiler at a time; by default one a core
    python tools/build_native.py --compile-commands FILE    # nothing is built: the commands, as clang-tidy and editors read them

A module is rebuilt only where the content of its sources, the flags, the compiler, Python or torch changed; object files are kept
in `packages/<name>/build/native`. Installing compiles a group of files a core, as if they were one file: two thirds of what a file takes alone are torch's headers.
So no two files of a package may define the same name. torch is found without importing it. `FLAMBEAU_NATIVE_FLAGS` is added to the flags of compiling and of linking: the sessions
`sanitize` and `coverage_native` build with it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

NATIVE_PACKAGES = ("capture", "autograd", "runtime")
KEEP_SECONDS = 3600
LIBRARIES = ("torch_python", "torch", "torch_cpu", "c10")
#: Asked for before there are threads: sysconfig fills its table at the first question, and another thread could see it half full.
_CONFIGURATION = sysconfig.get_config_vars()


class BuildError(RuntimeError):
    """The native module could not be built; the message holds the command and the compiler's words."""


class Torch(NamedTuple):
    """Where the installed torch is and what it was built with."""

    root: Path
    version: str
    cxx11_abi: bool


class Job(NamedTuple):
    """Everything a build of one module depends on."""

    package: Path
    torch: Torch
    compiler: str
    flags: tuple[str, ...]
    link: tuple[str, ...]


def find_torch() -> Torch:
    """Locate torch on the path. Raises BuildError when it is not installed."""
    spec = importlib.util.find_spec("torch")
    # pip's isolated builds hide the environment they build for from the import path, but not from sysconfig.
    root = Path(spec.origin).parent if spec and spec.origin else Path(sysconfig.get_path("platlib")) / "torch"
    if not (root / "version.py").is_file():
        raise BuildError(
            f"torch is not installed for {sys.executable}; install it, and pass --no-build-isolation to pip"
        )
    match = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", (root / "version.py").read_text(), re.MULTILINE)
    if match is None:
        raise BuildError(f"cannot read torch's version from {root / 'version.py'}")
    c10 = (root / "lib" / "libc10.so").read_bytes()
    return Torch(root, match.group(1), b"c105ErrorC1ENS_14SourceLocationENSt7__cxx11" in c10)


def find_compiler() -> str:
    """The C++ compiler: $CXX, else g++. Raises BuildError when there is none."""
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise BuildError(f"no C++ compiler: {name} is not on the path; install g++ or set CXX")
    return path


def shared_include(package: Path) -> Path:
    """`native/include` of the repository, or the copy an sdist carries."""
    for base in (package, package.parent.parent):
        candidate = base / "native" / "include"
        if candidate.is_dir():
            return candidate
    raise BuildError(f"native/include is missing beside {package}")


def make_job(package: Path, torch: Torch, compiler: str) -> Job:
    """Flags of one package."""
    include = torch.root / "include"
    extra = tuple(os.environ.get("FLAMBEAU_NATIVE_FLAGS", "").split())
    flags = (
        "-std=c++20",
        "-O2",
        "-g0",
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-plt",
        "-fopenmp",
        "-Wall",
        "-Wno-unknown-pragmas",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        f'-DFLAMBEAU_TORCH_VERSION="{torch.version}"',
        "-DTORCH_EXTENSION_NAME=_C",
        f"-I{package / 'csrc'}",
        f"-I{shared_include(package)}",
        "-isystem",
        str(include),
        "-isystem",
        str(include / "torch" / "csrc" / "api" / "include"),
        "-isystem",
        sysconfig.get_path("include"),
        *extra,
    )
    lib = torch.root / "lib"
    # The OpenMP runtime must be the one torch loads, or two thread pools would fight over the cores.
    gomp = sorted(lib.glob("libgomp*.so*"))
    openmp = (str(gomp[0]),) if gomp else ("-lgomp",)
    return Job(package, torch, compiler, flags, (f"-L{lib}", *(f"-l{name}" for name in LIBRARIES), *openmp, *extra))


def digest(*parts: bytes) -> str:
    """A content hash of byte strings, each with its length."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()[:24]


def run(command: list[str], verbose: bool, text: str | None = None) -> None:
    """Run a compiler command, `text` being what it reads; on failure raise BuildError with its output."""
    if verbose:
        print(" ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, input=text)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    if verbose and done.stderr:
        print(done.stderr, file=sys.stderr)


def cores() -> int:
    """How many compilers may run at once."""
    return len(os.sched_getaffinity(0))


def build(
    package: Path,
    output: Path | None = None,
    *,
    verbose: bool = False,
    compilers: Executor | None = None,
    together: bool = False,
) -> Path | None:
    """Build the module of the package folder `package` and return its path; None where the package has no C++ sources.

    `output` defaults to the place beside the Python sources. `compilers` runs the compile commands, by default one a core. `together` compiles
    the files in as many groups as there are cores, the quickest way to a whole module; else each alone, so that a changed one is compiled quickly.
    Raises BuildError.
    """
    if compilers is None:
        with ThreadPoolExecutor(cores()) as own:
            return build(package, output, verbose=verbose, compilers=own, together=together)
    package = package.resolve()
    sources = sorted((package / "csrc").rglob("*.cpp"))
    if not sources:
        return None
    job = make_job(package, find_torch(), find_compiler())
    suffix = _CONFIGURATION["EXT_SUFFIX"]
    target = output or package / "src" / f"flambeau_{package_name(package)}" / f"_C{suffix}"
    keep = package / "build" / "native" / f"{sys.implementation.cache_tag}-torch{job.torch.version}"
    keep.mkdir(parents=True, exist_ok=True)

    headers = sorted([*(package / "csrc").rglob("*.hpp"), *shared_include(package).rglob("*.hpp")])
    version = subprocess.run([job.compiler, "--version"], capture_output=True, text=True, check=True).stdout
    # Not where torch lies: environments with the same one share what is built.
    command = repr(job[2:]).replace(str(job.torch.root), "torch")
    common = digest(*(h.read_bytes() for h in headers), command.encode(), version.encode())
    # The longest files first, so that no core waits for one that started last.
    sources.sort(key=lambda source: -source.stat().st_size)
    groups = grouped(sources, cores()) if together else [[source] for source in sources]
    objects = sorted(compilers.map(lambda group: compile_group(job, group, keep, common, verbose), groups))

    stamp = keep / "linked"
    wanted = digest(*(o.name.encode() for o in objects), str(target).encode())
    if target.exists() and stamp_of(target) == wanted:
        return target
    partial = f"{target}.{os.getpid()}.new"
    run([job.compiler, "-shared", *map(str, objects), "-o", partial, *job.link], verbose)
    os.replace(partial, target)
    stamp_path(target).write_text(wanted)
    stamp.write_text(wanted)
    # Another build of other sources may be about to link what this one does not need.
    old = time.time() - KEEP_SECONDS
    for stale in set(keep.glob("*.o")) - set(objects):
        with contextlib.suppress(FileNotFoundError):
            if stale.stat().st_mtime < old:
                stale.unlink()
    return target


def stamp_path(target: Path) -> Path:
    """Where the content hash of a built module is kept."""
    return target.with_name(target.name + ".d")


def stamp_of(target: Path) -> str | None:
    """The content hash a module was built from, if known."""
    path = stamp_path(target)
    return path.read_text() if path.exists() else None


def grouped(sources: Sequence[Path], groups: int) -> list[list[Path]]:
    """`sources`, which begin with the largest, in at most `groups` groups of about the same size."""
    made: list[list[Path]] = [[] for _ in range(min(groups, len(sources)))]
    sizes = [0] * len(made)
    for source in sources:
        smallest = sizes.index(min(sizes))
        made[smallest].append(source)
        sizes[smallest] += source.stat().st_size
    return made


def compile_group(job: Job, sources: Sequence[Path], keep: Path, common: str, verbose: bool) -> Path:
    """Compile files into one object, unless one of the same content exists."""
    names = ["-".join(source.relative_to(job.package / "csrc").with_suffix("").parts) for source in sources]
    content = digest(common.encode(), *(source.read_bytes() for source in sources))
    made = keep / f"{names[0]}{f'-and-{len(names) - 1}' if names[1:] else ''}.{content}.o"
    if made.exists():
        return made
    print(f"compiling {job.package.name}/csrc: {', '.join(names)}", flush=True)
    partial = made.with_suffix(f".{os.getpid()}.tmp")
    text = "".join(f'#include "{source}"\n' for source in sources)
    run([job.compiler, *job.flags, "-x", "c++", "-c", "-", "-o", str(partial)], verbose, text)
    os.replace(partial, made)
    return made


def build_all(packages: Sequence[Path], *, jobs: int, verbose: bool) -> list[Path | None]:
    """Build the modules of several packages side by side, with at most `jobs` compilers at once. Raises BuildError."""
    with ThreadPoolExecutor(jobs) as compilers, ThreadPoolExecutor(max(1, min(jobs, len(packages)))) as linkers:
        return list(linkers.map(lambda package: build(package, verbose=verbose, compilers=compilers), packages))


def compile_commands(packages: Sequence[Path]) -> str:
    """The command of each source of these packages, as a compilation database (JSON). Raises BuildError."""
    torch, compiler = find_torch(), find_compiler()
    jobs = [make_job(package.resolve(), torch, compiler) for package in packages]
    commands = [
        {"directory": str(job.package), "file": str(source), "arguments": [compiler, *job.flags, "-c", str(source)]}
        for job in jobs
        for source in sorted((job.package / "csrc").rglob("*.cpp"))
    ]
    return json.dumps(commands, indent=1)


def package_name(package: Path) -> str:
    """`capture` for `packages/capture`, and for an unpacked sdist, whatever its folder is called."""
    (found,) = (p.name.removeprefix("flambeau_") for p in (package / "src").glob("flambeau_*") if p.is_dir())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Build flambeau's native modules.")
    parser.add_argument("packages", nargs="*", help=f"any of {', '.join(NATIVE_PACKAGES)}; all by default")
    parser.add_argument("--inplace", action="store_true", help="put each module beside its Python sources")
    parser.add_argument("--compile-commands", type=Path, metavar="FILE", help="write a compilation database instead")
    parser.add_argument("--jobs", type=int, default=cores(), help="compilers at once; one a core by default")
    parser.add_argument("--verbose", action="store_true", help="print the commands")
    options = parser.parse_args()
    unknown = set(options.packages) - set(NATIVE_PACKAGES)
    if unknown:
        parser.error(f"unknown packages: {', '.join(sorted(unknown))}")
    if not options.inplace and options.compile_commands is None:
        parser.error("only --inplace builds run from here; wheels are built by pip or hatch")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    root = Path(__file__).resolve().parent.parent
    names = options.packages or NATIVE_PACKAGES
    folders = [root / "packages" / name for name in names]
    try:
        if options.compile_commands is not None:
            options.compile_commands.write_text(compile_commands(folders))
            return 0
        built = build_all(folders, jobs=options.jobs, verbose=options.verbose)
        for name, path in zip(names, built, strict=True):
            print(f"{name}: {path.relative_to(root) if path else 'no C++ sources'}")
    except BuildError as error:
        print(f"build failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
