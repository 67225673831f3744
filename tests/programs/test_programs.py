"""A fixed slice of the programs under flambeau beside eager, in this process; `nox -s programs` runs all of them under all compilers.

`expected.json` says for every program how many graphs its first call needs, whether `fullgraph=True` accepts it, and for the few that are
not as in eager what they are; `python -m tests.programs table --expected` writes it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from .observe import observe, one_graph, verdict
from .registry import all_programs

_EVERY = 5
_PROGRAMS = all_programs()
_EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


@pytest.fixture(autouse=True)
def no_process_group() -> Iterator[None]:
    """Programs of distributed tensors make a group of this process."""
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.judges_itself
@pytest.mark.parametrize("name", list(_PROGRAMS)[::_EVERY])
def test_a_program_is_right_and_needs_no_more_graphs(name: str) -> None:
    expected = _EXPECTED["programs"][name]
    if expected.get("verdict") == "crashed":
        pytest.skip("it ends its process")
    eager = observe(_PROGRAMS[name], "eager")
    if eager["status"] == "not run":
        pytest.skip(eager["why"])
    assert any("raised" in call for call in eager["calls"]) == _PROGRAMS[name].raises, (
        "raises in eager and does not say so"
    )
    seen = observe(_PROGRAMS[name], "flambeau", fullgraph=expected["one graph"])
    found, what = verdict(seen, eager)
    assert found == expected.get("verdict", "equal"), (
        f"{what} (where it is right now, take its verdict out of expected.json)"
    )
    if _same_versions():
        assert min(1, expected["flambeau"]) <= seen["graphs"] <= expected["flambeau"], seen["breaks"]
        assert one_graph(seen, eager) >= expected["one graph"], seen["fullgraph"]


def _same_versions() -> bool:
    """Other torches and Pythons break elsewhere."""
    here = (torch.__version__, platform.python_version())
    kept = (_EXPECTED["torch"], _EXPECTED["python"])
    return [each.split(".")[:2] for each in here] == [each.split(".")[:2] for each in kept]


def test_every_program_has_an_expectation() -> None:
    assert list(_EXPECTED["programs"]) == sorted(_PROGRAMS)
