"""Programs as torch.compile's documentation shows them, with the name replaced, do what is documented."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import flambeau
from flambeau import backends

from .facts import Fact, facts
from .names import NAMES, renamed

FACTS = facts()


def _parameter(fact: Fact) -> object:
    marks = [pytest.mark.falls_back(*fact.falls_back)] if fact.falls_back else [pytest.mark.judges_itself]
    return pytest.param(fact, id=fact.name, marks=marks)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What programs set is put back: variables, logs, stances, names of backends."""
    monkeypatch.setattr(backends, "_REGISTRY", dict(backends._REGISTRY))
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
    flambeau.compiler.set_logs()
    flambeau.compiler.set_stance("default")
    flambeau.compiler.counters.clear()


@pytest.mark.parametrize("fact", [_parameter(fact) for fact in FACTS])
def test_documented(fact: Fact, tmp_path: Path) -> None:
    """The program itself says what has to hold."""
    fact.run(tmp_path)


@pytest.mark.compiles(graphs=0)
def test_sixty_of_twenty_topics() -> None:
    """No two of the same name, and some of each topic."""
    assert len({fact.name for fact in FACTS}) == len(FACTS) >= 60
    topics = [fact.topic for fact in FACTS]
    assert len(set(topics)) == 20 and min(topics.count(topic) for topic in topics) >= 2


@pytest.mark.compiles(graphs=0)
def test_names_are_replaced_whole() -> None:
    """The longest name counts, and nothing inside of another word is touched."""
    text = "torch.compile(f); torch.compiler.reset(); torch._dynamo.explain(f); my_torch.compile; TORCH_LOGS_OUT; torch.compilex"
    assert renamed(text) == (
        "flambeau.compile(f); flambeau.compiler.reset(); flambeau.explain(f); my_torch.compile; TORCH_LOGS_OUT; torch.compilex"
    )
    guide = (Path(__file__).parents[2] / "docs/guide/migration.md").read_text()
    assert not [name for name in NAMES if f"`{name}" not in guide]
