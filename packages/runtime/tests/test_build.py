"""Finding and using the C++ compiler, and what happens when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings

import attrs
import pytest
import torch

from flambeau_runtime import BuildError, CompilerUnavailable, Config, Store, build_libraries, load, log
from flambeau_runtime.artifact import Library
from flambeau_runtime.build import find_toolchain
from flambeau_runtime.build.compile import library_key
from flambeau_runtime.build.library import entry_address, load_library


def fake_compiler(folder, body: str) -> str:
    path = folder / "fake-g++"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return str(path)


def test_the_toolchain_is_probed_once() -> None:
    assert find_toolchain() is find_toolchain()
    assert find_toolchain().identity and "-O3" in find_toolchain().flags


@pytest.mark.parametrize("body", [None, "exit 1\n", '[ "$1" = --version ] && echo broken $0 && exit 0; exit 3\n'])
def test_without_a_compiler_there_is_one_warning_and_an_error(body, tmp_path, artifact) -> None:
    """Missing, failing, and answering but unable to compile."""
    cxx = str(tmp_path / "absent") if body is None else fake_compiler(tmp_path, body)
    config = Config(cxx=cxx)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            with pytest.raises(CompilerUnavailable):
                build_libraries(artifact, store=Store(None), config=config)
    assert len(caught) == 1 and "library calls" in str(caught[0].message)


def test_a_refused_source_is_shown(artifact) -> None:
    broken = attrs.evolve(
        artifact, libraries=[Library("bad", "cpp", "int first;\nint second = nonsense;\nint third;\n")]
    )
    with pytest.raises(BuildError) as caught:
        build_libraries(broken, store=Store(None))
    text = str(caught.value)
    assert "nonsense" in text and ">     2 | int second = nonsense;" in text and "command:" in text


BREAKDOWNS = [
    "echo 'kernel.cpp:1:1: error: unrecognizable insn:' >&2; exit 1",
    "echo 'internal compiler error: x' >&2; exit 4",
    "kill -SEGV $$",
]


@pytest.mark.parametrize(("enough", "dies"), [*zip(["-fno-tree-ter", "-O1", "-mno-avx512f"], BREAKDOWNS, strict=True)])
def test_a_fault_of_the_compiler_itself_is_gone_around(tmp_path, artifact, monkeypatch, enough, dies) -> None:
    """A compiler that breaks down over an instruction is asked again for what does not lead there, for less each time."""
    cxx = fake_compiler(tmp_path, f'case "$*" in *--version* | *{enough}*) exec g++ "$@" ;; esac\n{dies}\n')
    told: list[tuple[str, ...]] = []

    def note(event: str, library: str, flags: tuple[str, ...]) -> None:
        assert (event, library) == (log.COMPILER_BROKE, artifact.libraries[0].name)
        told.append(flags)

    monkeypatch.setattr(log.logger, "info", note, raising=False)
    built = build_libraries(artifact, store=Store(None), config=Config(cxx=cxx))
    assert enough in told[-1]
    assert not any(enough in flags for flags in told[:-1])
    x = torch.randn(2, 4)
    assert torch.equal(load(built, store=Store(None))(x, 2)[0], x * 2 + 1)


def test_a_built_artifact_needs_no_compiler(artifact, store, tmp_path) -> None:
    built = build_libraries(artifact, store=store)
    assert built.libraries[0].binary and built.digest == artifact.digest
    path = tmp_path / "x"
    built.save(path)
    again = type(built).load(path)
    x = torch.randn(2, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        assert torch.equal(load(again, store=Store(None))(x, 2)[0], x * 2 + 1)


def test_the_store_saves_the_second_compilation(artifact, tmp_path, monkeypatch) -> None:
    build_libraries(artifact, store=Store(tmp_path))
    monkeypatch.setattr("flambeau_runtime.build.compile.run_compiler", lambda *a: pytest.fail("compiled again"))
    build_libraries(artifact, store=Store(tmp_path))


def test_a_corrupt_cached_kernel_is_compiled_again(artifact, tmp_path) -> None:
    store = Store(tmp_path)
    build_libraries(artifact, store=store)
    path = store.path(library_key(artifact.libraries[0], find_toolchain()))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(RuntimeWarning, match="corrupt"):
        built = build_libraries(artifact, store=store)
    x = torch.randn(2, 4)
    assert torch.equal(load(built, store=store)(x, 2)[0], x * 2 + 1)


def test_headers_are_part_of_the_key(artifact, tmp_path) -> None:
    header = tmp_path / "h.hpp"
    header.write_text("static const long answer = 1;")
    source = '#include "h.hpp"\nextern "C" long get() { return answer; }\n'
    made = attrs.evolve(artifact, libraries=[Library("h", "cpp", source)])
    store, answers = Store(None), []
    for value in (1, 2):
        header.write_text(f"static const long answer = {value};")
        built = build_libraries(made, store=store, include_dirs=[tmp_path])
        answers.append(load_library(built.libraries[0]).get())
    assert answers == [1, 2]


def test_several_libraries_are_built(artifact, tmp_path) -> None:
    libraries = [Library(f"l{i}", "cpp", f'extern "C" long get() {{ return {i}; }}\n') for i in range(3)]
    built = build_libraries(attrs.evolve(artifact, libraries=libraries), store=Store(tmp_path))
    assert [load_library(library).get() for library in built.libraries] == [0, 1, 2]


def test_a_missing_entry_is_named(artifact, store) -> None:
    handle = load_library(build_libraries(artifact, store=store).libraries[0])
    with pytest.raises(BuildError, match="nowhere"):
        entry_address(handle, "nowhere")


def test_a_binary_that_cannot_be_loaded() -> None:
    with pytest.raises(BuildError, match="cannot be loaded"):
        load_library(Library("l", "cpp", "", binary=b"not an object"))


def test_two_processes_build_the_same_kernels_at_once(tmp_path) -> None:
    body = """
        import sys, warnings
        warnings.simplefilter("error")
        from flambeau_runtime import Config, Store
        from flambeau_runtime.artifact import Library
        from flambeau_runtime.build import compile_library, find_toolchain
        library = Library("l", "cpp", 'extern "C" long get() { return 42; }')
        print(len(compile_library(library, find_toolchain(), store=Store(sys.argv[1]), config=Config()).binary))
    """
    command = [sys.executable, "-c", textwrap.dedent(body), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    sizes = [process.communicate()[0] for process in both]
    assert sizes[0] == sizes[1]
