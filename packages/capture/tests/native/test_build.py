"""The build tool: what it finds, when it skips, how it fails."""

from __future__ import annotations

import importlib.util
import json
import sysconfig
from pathlib import Path

import pytest
import torch

from flambeau_capture.native import _C

TOOL = Path(__file__).resolve().parents[4] / "tools" / "build_native.py"
pytestmark = pytest.mark.skipif(not TOOL.is_file(), reason="the tool is part of the repository, not of the package")


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("build_native", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path):
    """A package with one tiny module that needs no torch header."""
    root = tmp_path / "packages" / "tiny"
    (root / "csrc").mkdir(parents=True)
    (root / "src" / "flambeau_tiny").mkdir(parents=True)
    (tmp_path / "native" / "include").mkdir(parents=True)
    (root / "csrc" / "module.cpp").write_text(
        "#include <Python.h>\n"
        'static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", FLAMBEAU_TORCH_VERSION, 0, nullptr};\n'
        "PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&definition); }\n"
    )
    return root


def test_torch_is_found_without_importing_it(tool):
    found = tool.find_torch()
    assert found.version == str(torch.__version__) == _C.TORCH_VERSION
    assert found.root == Path(torch.__file__).parent
    assert found.cxx11_abi == torch._C._GLIBCXX_USE_CXX11_ABI


def test_a_compilation_database_has_the_commands_of_the_build(tool, package):
    (command,) = json.loads(tool.compile_commands([package]))
    source = package / "csrc" / "module.cpp"
    assert command["file"] == str(source)
    assert command["directory"] == str(package)
    flags = tool.make_job(package, tool.find_torch(), tool.find_compiler()).flags
    assert command["arguments"] == [tool.find_compiler(), *flags, "-c", str(source)]


def test_a_module_is_built_once_and_again_when_a_source_changes(tool, package):
    built = tool.build(package)
    assert built == package / "src" / "flambeau_tiny" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    spec = importlib.util.spec_from_file_location("flambeau_tiny._C", built)
    module = importlib.util.module_from_spec(spec)
    assert module.__doc__ == str(torch.__version__)
    first = built.stat().st_mtime_ns
    assert tool.build(package) == built
    assert built.stat().st_mtime_ns == first
    source = package / "csrc" / "module.cpp"
    source.write_text(source.read_text() + "// changed\n")
    tool.build(package)
    assert built.stat().st_mtime_ns != first


@pytest.mark.parametrize("together", [False, True])
def test_a_module_of_several_files(tool, package, together, capfd):
    """In any number of groups it is the same module."""
    (package / "csrc" / "module.cpp").write_text(
        "#include <Python.h>\n"
        "const char* words();\n"
        'static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, 0, nullptr};\n'
        "PyMODINIT_FUNC PyInit__C() { definition.m_doc = words(); return PyModuleDef_Init(&definition); }\n"
    )
    (package / "csrc" / "words.cpp").write_text('const char* words() { return "of another file"; }\n')
    built = tool.build(package, package / f"several{together}.so", together=together)
    spec = importlib.util.spec_from_file_location("flambeau_tiny._C", built)
    assert importlib.util.module_from_spec(spec).__doc__ == "of another file"
    assert capfd.readouterr().out.count("compiling") == (min(tool.cores(), 2) if together else 2)


def test_groups_are_of_about_the_same_size(tool, tmp_path):
    for name, size in (("a", 9), ("b", 5), ("c", 4), ("d", 1)):
        (tmp_path / name).write_text("x" * size)
    sources = [tmp_path / name for name in "abcd"]
    assert tool.grouped(sources, 2) == [[tmp_path / "a", tmp_path / "d"], [tmp_path / "b", tmp_path / "c"]]
    assert tool.grouped(sources, 9) == [[source] for source in sources]
    assert tool.grouped(sources, 1) == [sources]


def test_errors_name_the_cause(tool, package, monkeypatch):
    (package / "csrc" / "module.cpp").write_text("int broken = ;\n")
    with pytest.raises(tool.BuildError, match="broken"):
        tool.build(package)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(tool.BuildError, match="no-such-compiler is not on the path"):
        tool.build(package)


def test_a_package_without_sources_has_nothing_to_build(tool, package):
    (package / "csrc" / "module.cpp").unlink()
    assert tool.build(package) is None
