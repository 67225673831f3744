"""Support headers of C++ units: each stands alone, and a unit has those that its kernels call something of."""

from __future__ import annotations

import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from flambeau_inductor.codegen.cpp import support, unit
from flambeau_inductor.codegen.kernel import GeneratedKernel
from flambeau_inductor.expr import Int
from flambeau_runtime.build import find_toolchain

FOLDER = Path(unit.__file__).parent / "include"
HEADERS = sorted(path.stem for path in FOLDER.glob("*.hpp"))


def saying(body: str) -> GeneratedKernel:
    """A kernel with this text; what else it has does not matter here."""
    return GeneratedKernel("kernel", body, (), (), (), "", Int(1), 1)


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
    everything = support([saying(f"fb::{min(unit.defined(name) - {'NAME'})}();") for name in unit.OPTIONAL])
    for name in HEADERS:
        assert unit.header(name).splitlines()[-3] in everything, name


def test_a_unit_has_only_the_headers_that_it_calls() -> None:
    """Transposes and special functions cost the compiler time; a kernel that says neither has neither."""
    plain = support([saying("fb::load<W>(p, t);")])
    assert "turn_rows" not in plain and "digamma" not in plain
    turned = support([saying("fb::turn<W>(p, 1, n, m, q, 1);")])
    assert "turn_rows" in turned and "digamma" not in turned


def test_all_overloads_of_a_name_stand_in_one_header() -> None:
    """Else a unit could have an overload for lanes and miss the one for a single value."""
    for one, other in combinations(unit.OPTIONAL, 2):
        assert not unit.defined(one) & unit.defined(other)
    for name in unit.OPTIONAL:
        for other in set(HEADERS) - set(unit.OPTIONAL):
            assert not unit.defined(name) & unit.defined(other)
