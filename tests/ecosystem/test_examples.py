"""Each example gives what eager gives, in as few graphs as are known to be possible, and compiles nothing in its later steps."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest
import torch
from benchmarks.ecosystem import EXAMPLES, as_it_is, difference

import flambeau
from flambeau.accounting import counters

#: Example -> its graphs. A detector reads sizes out of tensors in many places; the classes of torchao's tensors are not traced.
GRAPHS = {
    "generation": 2,
    "trainer": 1,
    "diffusion": 1,
    "vision_training": 2,
    "lora_training": 1,
    "accelerated": 1,
    "lightning_training": 1,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [name if name in GRAPHS else pytest.param(name, marks=pytest.mark.falls_back) for name in EXAMPLES]
)
def test_as_in_eager(name: str) -> None:
    """Three steps of it."""
    for library in EXAMPLES[name]:
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: nox -s ecosystem")
    example = importlib.import_module(f"examples.ecosystem.{name}")
    torch.manual_seed(0)
    expected = example.make(as_it_is)
    before = counters["stats"]["unique_graphs"]
    step = example.make(flambeau.compile)
    made = []
    for _ in range(3):
        assert not difference(step(), expected())
        made.append(counters["stats"]["unique_graphs"] - before)
    if name in GRAPHS:
        assert made == [GRAPHS[name]] * 3
