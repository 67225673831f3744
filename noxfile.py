"""Every command a developer runs, one session each: `nox -s demo`, `nox -s tests`, `nox -l` for the list.

In: a machine with Python and g++. Out: what the session's name says, in a virtual environment of its own.
The native modules are built against the torch of that environment (`--no-build-isolation`), so no second torch is ever fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterable
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = {
    "runtime": "flambeau_runtime",
    "capture": "flambeau_capture",
    "autograd": "flambeau_autograd",
    "inductor": "flambeau_inductor",
    "api": "flambeau",
}
#: What each package needs from the tree; pip checks it against the declared ranges.
SIBLINGS = {
    "runtime": [],
    "capture": [],
    "autograd": [],
    "inductor": ["runtime"],
    "api": ["runtime", "capture", "autograd", "inductor"],
}
#: The supported corners: (python, torch).
MATRIX = [("3.11", "2.13.0"), ("3.12", "2.11.0"), ("3.13", "2.15.0")]
TORCH = "torch==2.13.0"
TEST_REQUIREMENTS = ["-r", "tests/requirements.txt"]
#: The quickest tests of a package that compile something, or come near.
SMOKE = {
    "runtime": "test_artifact.py",
    "capture": "test_backends_and_breaks.py",
    "autograd": "test_modules.py",
    "inductor": "expr",
    "api": "test_compile.py",
}
#: What drives the native modules: frames, regions and guards; the node behind compiled functions and what it is told; programs, launches
#: on a device made of host memory, recordings, blocks of memory, products.
NATIVE_TESTS = {
    "capture": ["native", "guards"],
    "autograd": [
        "test_node.py",
        "test_node_refusals.py",
        "test_absent_gradients.py",
        "test_backward_inside.py",
        "test_gradient_layouts.py",
        "test_partition.py",
        "test_saved_writes.py",
        "test_second_derivatives.py",
        "test_tangent_layouts.py",
        "test_transforms.py",
    ],
    "runtime": [
        "device/test_cuda.py",
        "device/test_native_launch.py",
        "graphs",
        "test_devices.py",
        "test_differential.py",
        "test_executor.py",
        "test_frozen.py",
        "test_held.py",
        "test_linear.py",
        "test_memory.py",
        "test_native_refusals.py",
        "test_ordered.py",
        "test_processor.py",
        "test_profile.py",
        "test_scalars.py",
        "test_subprograms.py",
        "test_threads.py",
    ],
}
#: vptr asks for type information that torch's libraries do not show.
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer -g1 -O1"
#: How many of a hundred lines of a native module the tests must run; measured: 92.6, 90.3 and 90.7.
NATIVE_FLOORS = {"runtime": 91, "capture": 89, "autograd": 89}
#: All tests, in one process a core: a worker takes up to 3 GiB.
ALL_TESTS = ["--numprocesses", "auto", "--maxprocesses", "8", "--dist", "worksteal", "packages", "tests"]

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "lint", "types"]


def install(session: nox.Session, *packages: str, torch: str = TORCH, editable: bool = True) -> None:
    """Install torch first, then the packages against it, built in the session's own environment; a line for each as it begins."""
    wanted = list(dict.fromkeys(name for package in packages for name in [*SIBLINGS[package], package]))
    session.log(f"installing {torch}")
    session.install(torch, "hatchling>=1.27", "editables", "numpy")
    for number, name in enumerate(wanted, 1):
        session.log(f"building and installing {name} ({number} of {len(wanted)}, up to a minute or two each)")
        session.install("--no-build-isolation", *(["-e"] if editable else []), f"packages/{name}")


def distributions(session: nox.Session, packages: Iterable[str], folder: Path) -> None:
    """The sdist of each package, and the wheel that is built of it."""
    session.install(TORCH, "hatchling>=1.27", "build")
    for name in packages:
        # Without `--wheel` or `--sdist` the wheel is built of the sdist.
        session.run("python", "-m", "build", "--no-isolation", "--outdir", str(folder), f"packages/{name}")


def pytest(session: nox.Session, *arguments: str, **variables: str) -> None:
    session.run(
        "python",
        "-m",
        "pytest",
        *arguments,
        env={"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONFAULTHANDLER": "1"} | variables,
    )


@nox.session
def demo(session: nox.Session) -> None:
    """Compile, run and train five transformers models beside eager and print two tables."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    session.run("python", "examples/demo.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test that needs no GPU and is not marked slow."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    pytest(session, "-m", "not slow and not gpu", *(session.posargs or ALL_TESTS))


@nox.session
@nox.parametrize("package", list(PACKAGES), ids=list(PACKAGES))
def tests_package(session: nox.Session, package: str) -> None:
    """One package with what it declares and nothing else, installed from its wheel."""
    install(session, package, editable=False)
    session.install(*TEST_REQUIREMENTS)
    pytest(session, "-m", "not slow and not gpu", f"packages/{package}/tests", *session.posargs)


@nox.session
@nox.parametrize("package", list(PACKAGES), ids=list(PACKAGES))
def packages(session: nox.Session, package: str) -> None:
    """A package as others get it: the sdist, the wheel that is built of it, installed with what it declares, and its quickest tests."""
    made = Path(session.create_tmp())
    for old in made.glob("flambeau*"):
        old.unlink()
    distributions(session, [*SIBLINGS[package], package], made)
    session.install(*map(str, sorted(made.glob("*.whl"))))
    session.run("python", "-m", "pip", "check")
    session.run("python", "-I", "-c", f"import {PACKAGES[package]} as package; print(package.__file__)")
    session.install(*TEST_REQUIREMENTS)
    pytest(session, "-m", "not slow and not gpu", f"packages/{package}/tests/{SMOKE[package]}", *session.posargs)


@nox.session
def lowest(session: nox.Session) -> None:
    """The oldest versions of the pure dependencies that the packages allow (the oldest torch is in `matrix`), under the tests that use most of them."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    session.install(*sorted({oldest for name in PACKAGES for oldest in oldest_versions(name)}))
    files = [f"packages/api/tests/{name}" for name in ("cli", "report", "test_explanations.py", "test_log.py")]
    pytest(
        session, "-m", "not slow and not gpu", *(session.posargs or [*files, "packages/runtime/tests/test_artifact.py"])
    )


def oldest_versions(package: str) -> list[str]:
    """The requirements of a package on libraries of Python alone, each at its lowest version."""
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
    bounds = [re.match(r"([\w-]+)>=([\w.]+)", requirement) for requirement in project["dependencies"]]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound and not bound[1].startswith(("torch", "flambeau"))]


def native_tests() -> list[str]:
    """The paths of `NATIVE_TESTS`."""
    return [f"packages/{package}/tests/{name}" for package, names in NATIVE_TESTS.items() for name in names]


@nox.session
def sanitize(session: nox.Session) -> None:
    """The native modules, built with AddressSanitizer and UndefinedBehaviorSanitizer, under the tests that drive them."""
    session.env["FLAMBEAU_NATIVE_FLAGS"] = SANITIZERS
    # Not in place: other sessions would find these modules in the tree.
    install(session, "runtime", "capture", "autograd", editable=False)
    session.install(*TEST_REQUIREMENTS)
    libraries = [
        str(session.run("g++", f"-print-file-name=lib{name}.so", external=True, silent=True)).strip()
        for name in ("asan", "ubsan")
    ]
    session.run(
        "python",
        "-m",
        "pytest",
        "--capture=sys",  # else what the sanitizers print as they end the process is lost
        "-m",
        "not slow and not gpu",
        *(session.posargs or ["-k", "not leak", *native_tests()]),
        env={
            "LD_PRELOAD": " ".join(libraries),
            # Python keeps objects to the end of the process, and what is freed is kept back: no test of leaks holds. A report ends the process.
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "OMP_NUM_THREADS": "1",
        },
    )


@nox.session
def coverage_native(session: nox.Session) -> None:
    """Lines of the native modules that the tests which drive them run: a table for each package, which is held to its floor (`NATIVE_FLOORS`)."""
    session.env["FLAMBEAU_NATIVE_FLAGS"] = "--coverage -O0"
    # Objects of earlier runs go with their notes and counts: those of sources that changed since would count too.
    for notes in ROOT.glob("packages/*/build/native/*/*.gcno"):
        for part in notes.parent.glob(f"{notes.name.rsplit('.', 2)[0]}.*"):
            part.unlink()
    # Not in place: other sessions would find these modules in the tree. What g++ notes of the sources, and the modules of their runs, lies beside the objects.
    install(session, *NATIVE_FLOORS, editable=False)
    session.install(*TEST_REQUIREMENTS, "gcovr==8.8")
    pytest(session, "-m", "not slow and not gpu", *(session.posargs or native_tests()))
    for name, floor in NATIVE_FLOORS.items():
        sources = ["--filter", f"packages/{name}/csrc/", "--filter", "native/include/"]
        # Files are compiled together, through a stream that is no file.
        quiet = ["--gcov-ignore-errors", "source_not_found", "--gcov-ignore-errors", "no_working_dir_found"]
        table = [
            "--merge-lines",
            "--sort",
            "uncovered-number",
            "--sort-reverse",
            "--print-summary",
            "--fail-under-line",
            str(floor),
        ]
        session.log(f"{name}: at least {floor} of a hundred lines")
        session.run("gcovr", "--root", ".", *sources, *quiet, *table, f"packages/{name}/build/native")


@nox.session
@nox.parametrize(("python", "torch"), MATRIX, ids=[f"{p}-{t}" for p, t in MATRIX])
def matrix(session: nox.Session, torch: str) -> None:
    """The package tests and the model tests on one corner of the supported versions."""
    install(session, "api", torch=f"torch=={torch}")
    session.install(*TEST_REQUIREMENTS)
    pytest(session, "-m", "not slow and not gpu", *(session.posargs or ALL_TESTS))


@nox.session
def slow(session: nox.Session) -> None:
    """The long suites: whole op database, fuzzing, leaks."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    pytest(session, "-m", "slow and not gpu", *(session.posargs or ALL_TESTS))


@nox.session
@nox.parametrize(("python", "torch"), MATRIX, ids=[f"{p}-{t}" for p, t in MATRIX])
def sweep(session: nox.Session, torch: str) -> None:
    """Fresh random programs, ten minutes for each sweep; failures are printed as tests."""
    install(session, "api", torch=f"torch=={torch}")
    session.install(*TEST_REQUIREMENTS)
    session.run("python", "-m", "tests.sweeps", *(session.posargs or ["all"]))


@nox.session
@nox.parametrize(("python", "torch"), MATRIX, ids=[f"{p}-{t}" for p, t in MATRIX])
def conformance(session: nox.Session, torch: str) -> None:
    """All of torch's databases beside eager, hours of it: `-- --shard 0/8 --results FILE` runs a part and can be gone on with."""
    install(session, "api", torch=f"torch=={torch}")
    session.install(*TEST_REQUIREMENTS)
    session.run("python", "-m", "tests.conformance.full", *session.posargs)


@nox.session
def programs(session: nox.Session) -> None:
    """The user programs under eager, torch.compile and flambeau, about a quarter of an hour; writes the page and what the tests expect."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    runs = {"eager": "eager", "torch": "torch.compile", "flambeau": "flambeau"}
    folder = Path(session.create_tmp())
    for name, compiler in runs.items():
        out = folder / f"{name}.json"
        out.unlink(missing_ok=True)
        session.run("python", "-m", "tests.programs", "run", "--compiler", compiler, "--out", str(out))
    files = [part for name in runs for part in (f"--{name}", str(folder / f"{name}.json"))]
    page = ["--out", "docs/captured-programs.md", "--expected", "tests/programs/expected.json"]
    session.run("python", "-m", "tests.programs", "table", *files, *page)


@nox.session
def architectures(session: nox.Session) -> None:
    """Architectures of transformers and timm, made small, captured beside eager, in two hours; torch.compile of those alone that are not one graph."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS, "timm==1.0.31", "torchvision==0.28.0")
    folder = Path(session.create_tmp())
    ours, theirs = folder / "flambeau.json", folder / "torch.json"
    for name, out, several in (("flambeau", ours, []), ("torch.compile", theirs, ["--several", str(ours)])):
        out.unlink(missing_ok=True)
        session.run("python", "-m", "tools.capture_sweep", "run", "--compiler", name, "--out", str(out), *several)
    page = ["--flambeau", str(ours), "--torch", str(theirs), "--out", "docs/captured-architectures.md"]
    session.run("python", "-m", "tools.capture_sweep", "table", *page)


@nox.session
def ecosystem(session: nox.Session) -> None:
    """Libraries on top of PyTorch, as tests: `examples/ecosystem` beside eager. `-- table` times them beside torch.compile too, in half an hour."""
    # torchvision's wheels need a torch with CUDA libraries, also where there is no GPU.
    install(session, "api", torch="torch==2.14.1")
    session.install(*TEST_REQUIREMENTS, "-r", "examples/ecosystem/requirements.txt")
    if session.posargs == ["table"]:
        session.run("python", "-m", "benchmarks.ecosystem", "--out", "docs/ecosystem.md")
    else:
        pytest(session, "tests/ecosystem", *session.posargs)


@nox.session
def coverage_python(session: nox.Session) -> None:
    """Lines and branches of the packages' Python that the quick tests run: each package is held to its floor (`tools/measure_coverage.py`)."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS, "coverage==7.17.5")
    measure = ["python", "-m", "tools.measure_coverage"]
    session.run(*measure, "erase")
    session.run(
        *measure, "run", "-m", "not slow and not gpu", *(session.posargs or ALL_TESTS), env={"OMP_NUM_THREADS": "1"}
    )
    session.run(*measure, "report")


@nox.session
def mutants(session: nox.Session) -> None:
    """Seeded faults, each of which the tests must notice: `-- --slice` for the twenty that CI runs, `-- --shard 0/8` for a part."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    session.run("python", "-m", "tools.mutants", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def faults(session: nox.Session) -> None:
    """Seeded faults, whose stage `flambeau bisect` must name and whose program `flambeau minify` must shrink: `-- --jobs 2 --write` for the page."""
    install(session, "api")
    session.run("python", "-m", "tools.faults", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """The tests that need a CUDA device, on the ambient Python: nothing is installed, native code is built in place."""
    session.run("python3", "tools/build_native.py", "--inplace")
    path = os.pathsep.join(str(ROOT / "packages" / name / "src") for name in PACKAGES)
    path = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
    session.run(
        "python3", "-m", "pytest", "-m", "gpu", *(session.posargs or ["packages", "tests"]), env={"PYTHONPATH": path}
    )


def native_files(session: nox.Session) -> list[str]:
    """The C++ of the repository: sources and headers."""
    listed = session.run("git", "ls-files", "*.cpp", "*.hpp", external=True, silent=True)
    return str(listed).split()


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, the style of the C++ (clang-format), and the arrows between the packages (import-linter)."""
    session.install("-r", "tools/lint-requirements.txt")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("clang-format", "--dry-run", "-Werror", *native_files(session))
    path = os.pathsep.join(str(ROOT / "packages" / name / "src") for name in PACKAGES)
    session.run("lint-imports", env={"PYTHONPATH": path})


@nox.session
def tidy(session: nox.Session) -> None:
    """clang-tidy over the native modules (`.clang-tidy` says which checks); a finding is an error. `-- gemm` looks at the files whose path has that."""
    session.install(TORCH, "-r", "tools/tidy-requirements.txt")
    folder = session.create_tmp()
    session.run("python", "tools/build_native.py", "--compile-commands", f"{folder}/compile_commands.json")
    # OpenMP's header comes with the compiler: clang-tidy has none, and g++'s is not for it.
    clang = ["-clang-tidy-binary", f"{session.bin}/clang-tidy", "-extra-arg=-fno-openmp"]
    session.run("run-clang-tidy.py", "-quiet", "-p", folder, *clang, *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, over every package's sources, and over code as users write it."""
    session.install(
        TORCH, "-r", "tools/lint-requirements.txt", "attrs", "structlog", "rich", "click", "jinja2", "numpy==2.4.6"
    )
    session.run("mypy", *(f"packages/{name}/src" for name in PACKAGES))
    session.run("mypy", "tests/typing/user_code.py")


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks, each beside eager and torch.compile in processes of their own."""
    install(session, "api")
    session.install(*TEST_REQUIREMENTS)
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Generate what comes from the code (pages, public names) and check that it and the tables of kept runs are current."""
    install(session, "api")
    session.run("python", "tools/generate_docs.py", *(session.posargs or ["--check"]))
    session.run("python", "-m", "benchmarks.report", "--check")


@nox.session
def site(session: nox.Session) -> None:
    """The documentation as a site, in .nox/site-pages; warnings are errors. `-- serve` shows it and follows changes."""
    session.install("-r", "tools/site/requirements.txt")
    # Two of the libraries print advertisements of their successors.
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    session.run("mkdocs", *(session.posargs or ["build"]), env=quiet)


@nox.session
def browser(session: nox.Session) -> None:
    """Reports in a headless Chromium of the system, then pictures of those of a GPT-2 and a mixture of experts in .nox/pictures, and how long 10 MB of trace take to open."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        session.error("no Chromium is installed: apt-get install chromium")
    install(session, "api")
    session.install(*TEST_REQUIREMENTS, "playwright==1.65.2")
    pytest(session, *(session.posargs or ["packages/api/tests/report"]), FLAMBEAU_TEST_CHROMIUM=chromium)
    session.run("python", "tools/look_at_reports.py", ".nox/pictures", "--chromium", chromium)


@nox.session
def build(session: nox.Session) -> None:
    """sdist and wheel of each package, into dist/."""
    distributions(session, PACKAGES, Path("dist"))


@nox.session
def changelog(session: nox.Session) -> None:
    """What the changelogs will say of the next release; `-- 0.2.0` writes it into them and takes the fragments away."""
    session.install("towncrier==26.9.0")
    version = session.posargs[0] if session.posargs else "next"
    how = ["--yes"] if session.posargs else ["--draft"]
    for name in PACKAGES:
        package = ["--dir", f"packages/{name}", "--name", name, "--version", version]
        session.run("towncrier", "build", *how, "--config", "towncrier.toml", *package)
