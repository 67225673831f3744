"""Programs as torch.compile's documentation shows them, with the name replaced, do what is documented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import flambeau
from tests.witness import Witness

from .facts import Fact, facts, largest_difference
from .names import NAMES, renamed

FACTS = facts()


def _parameter(fact: Fact) -> object:
    marks = [pytest.mark.falls_back(*fact.falls_back)] if fact.falls_back else []
    marks += [pytest.mark.judges_itself] if fact.judges_itself else []
    return pytest.param(fact, id=fact.name, marks=marks)


@pytest.fixture(autouse=True)
def surroundings(own_surroundings: None) -> Iterator[None]:
    """Logs, stances and counters are put back too."""
    yield
    flambeau.compiler.set_logs()
    flambeau.compiler.set_stance("default")
    flambeau.compiler.counters.clear()


@pytest.mark.parametrize("fact", [_parameter(fact) for fact in FACTS])
def test_documented(fact: Fact, tmp_path: Path, witness: Witness) -> None:
    """The program itself says what has to hold; where that is what eager gives, too, something was compiled."""
    fact.run(tmp_path)
    assert witness.graphs or fact.judges_itself


@pytest.mark.compiles(graphs=0)
def test_sixty_of_twenty_topics() -> None:
    """No two of the same name, and some of each topic."""
    assert len({fact.name for fact in FACTS}) == len(FACTS) >= 60
    topics = [fact.topic for fact in FACTS]
    assert len(set(topics)) == 20 and min(topics.count(topic) for topic in topics) >= 2


@pytest.mark.compiles(graphs=0)
def test_another_shape_or_dtype_is_no_small_difference() -> None:
    """Where subtracting would make one of the two the other's."""
    x = torch.ones(3)
    assert largest_difference(x, x) == 0
    for other in (torch.ones(1), torch.ones(2, 3), x.double()):
        with pytest.raises(AssertionError):
            largest_difference(x, other)


@pytest.mark.compiles(graphs=0)
def test_names_are_replaced_whole() -> None:
    """The longest name counts, and nothing inside of another word is touched."""
    text = "torch.compile(f); torch.compiler.reset(); torch._dynamo.explain(f); my_torch.compile; TORCH_LOGS_OUT; torch.compilex"
    assert renamed(text) == (
        "flambeau.compile(f); flambeau.compiler.reset(); flambeau.explain(f); my_torch.compile; TORCH_LOGS_OUT; torch.compilex"
    )
    guide = (Path(__file__).parents[2] / "docs/guide/migration.md").read_text()
    assert not [name for name in NAMES if f"`{name}" not in guide]
