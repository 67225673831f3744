"""Support headers of C++ units: each stands alone, and a unit has those that its kernels call something of."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from flambeau_inductor.codegen.cpp import ops, support, unit
from flambeau_inductor.codegen.kernel import GeneratedKernel
from flambeau_inductor.expr import Int
from flambeau_inductor.ops.table import names
from flambeau_runtime.build import find_toolchain

FOLDER = Path(unit.__file__).parent / "include"
HEADERS = sorted(path.stem for path in FOLDER.glob("*.hpp"))


#: A function, an instance of a macro that defines one, or a type.
_DEFINED = re.compile(r"\bFB [^(\n]*?(\w+)\(|\bFB_[A-Z0-9_]+\((\w+)|\bstruct (\w+)")


def defined(name: str) -> set[str]:
    """The functions and types that a header defines."""
    return {word for found in _DEFINED.findall(unit.header(name)) for word in found if word} - {"NAME"}


def calling(*functions: str) -> GeneratedKernel:
    """A kernel that calls these; what else it has does not matter here."""
    return GeneratedKernel("kernel", "", (), (), (), "", Int(1), 1, functions=frozenset(functions))


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("machine", ["native", "haswell", "x86-64"])
def test_a_header_includes_what_it_needs(name: str, machine: str) -> None:
    """It compiles with nothing before it, for wide registers, narrow ones and none."""
    toolchain = find_toolchain()
    flags = ["-std=c++20", "-w", f"-march={machine}", "-fsyntax-only", "-x", "c++"]
    done = subprocess.run([*toolchain.command, *flags, str(FOLDER / f"{name}.hpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_header_reaches_some_unit() -> None:
    """All optional headers together with those of every unit are all headers there are."""
    everything = support([calling(min(functions)) for functions in unit.OPTIONAL.values()])
    for name in HEADERS:
        assert unit.header(name).splitlines()[-3] in everything, name


def test_a_unit_has_only_the_headers_that_it_calls() -> None:
    """Transposes and special functions cost the compiler time; a kernel that calls neither has neither."""
    plain = support([calling("load")])
    assert "turn_rows" not in plain and "digamma" not in plain
    turned = support([calling("load", "turn")])
    assert "turn_rows" in turned and "digamma" not in turned


def test_what_kernels_call_stands_in_the_header_that_is_said() -> None:
    """And nowhere else: else a unit could have an overload for lanes and miss the one for a single value."""
    for name, functions in unit.OPTIONAL.items():
        assert functions <= defined(name), name
        for other in set(HEADERS) - {name}:
            assert not functions & defined(other), (name, other)


@pytest.mark.parametrize("name", sorted(set(names()) - {"philox_uniform"}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_every_function_that_an_op_calls_is_shipped(name: str, dtype: torch.dtype) -> None:
    """Those of optional headers are among the names that bring the header along."""
    called: list[str] = []

    def call(function: str, *arguments: str, of: str = "") -> str:
        called.append(function)
        return function

    if name not in ops.SPECIAL:
        ops.op_text(ops.Operation(name, ["a", "b", "c"], dtype, True, "t", call))
    # Operations on two registers come with the loads of them, whatever the kernel calls.
    headers = set(unit.OPTIONAL) - {"pairs"}
    optional = {header for header in headers for function in called if function in defined(header)}
    assert optional == {header for header, functions in unit.OPTIONAL.items() if functions & set(called)}
