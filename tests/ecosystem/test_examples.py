"""Each example gives what eager gives, in as few graphs as are known to be possible, and compiles nothing in its later steps."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from benchmarks.ecosystem import EXAMPLES, as_it_is, difference

import flambeau
from flambeau.accounting import counters

#: Example -> its graphs: in all, or those that there are after each step. A detector asks in many places how many boxes there are, which the data says.
GRAPHS: dict[str, int | list[int]] = {
    "generation": 2,
    "trainer": 1,
    "diffusion": 1,
    "vision_training": 2,
    "lora_training": 1,
    "quantized": 2,
    "accelerated": 1,
    "lightning_training": 1,
    "detection": [34, 35, 35],
}
#: Example -> why frames of it run in plain Python.
FALLS_BACK = {"detection": ("a number that comes from a tensor is needed",)}


def marked(name: str) -> Any:
    """The example, with the marks that it needs."""
    missing = [library for library in EXAMPLES[name] if find_spec(library) is None]
    if missing:
        return pytest.param(name, marks=pytest.mark.skip(f"{missing[0]} is not installed: nox -s ecosystem"))
    return pytest.param(name, marks=[pytest.mark.falls_back(*reasons)] if (reasons := FALLS_BACK.get(name)) else [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(map(marked, EXAMPLES)))
def test_as_in_eager(name: str) -> None:
    """Three steps of it."""
    example = importlib.import_module(f"examples.ecosystem.{name}")
    torch.manual_seed(0)
    expected = example.make(as_it_is)
    before = counters["stats"]["unique_graphs"]
    step = example.make(flambeau.compile)
    made = []
    for _ in range(3):
        assert not difference(step(), expected())
        made.append(counters["stats"]["unique_graphs"] - before)
    wanted = GRAPHS[name]
    assert made == (wanted if isinstance(wanted, list) else [wanted] * 3)
