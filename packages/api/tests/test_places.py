"""A cached graph tells the lines and modules of the program that reads it, not of the one that it was compiled for."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import flambeau
from flambeau.accounting import counters

X = torch.linspace(-1, 1, 12).reshape(3, 4)
LAYER = """\
def forward(self, x):
    h = torch.relu(self.{name}(x))
    return h.softmax(-1)
"""


def layer_in(file: Path, source: str, name: str) -> nn.Module:
    """A layer whose `forward` stands in `file`, with a product called `name`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = textwrap.dedent(source).format(name=name)
    file.write_text(text)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, str(file), "exec"), scope)
    layer = type("Layer", (nn.Module,), {"forward": scope["forward"]})()
    layer.add_module(name, nn.Linear(4, 4))
    return layer


def told(layer: nn.Module) -> tuple[set[str], set[str], int]:
    """The lines and modules that kernels and calls tell, and how many graphs came from the cache."""
    flambeau.compiler.reset()
    before = counters["inductor"]["fxgraph_cache_hit"]
    steps = flambeau.explain(layer)(X).kernels
    lines = {line.partition(" in ")[0] for step in steps for line in step.user_lines}
    return lines, {m for step in steps for m in step.modules}, counters["inductor"]["fxgraph_cache_hit"] - before


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))


def test_a_copy_of_a_program_tells_its_own_lines(tmp_path: Path) -> None:
    """Another file, three lines further down, another name of the module: one compilation, each its own places."""
    first, second = tmp_path / "first" / "model.py", tmp_path / "second" / "model.py"
    assert told(layer_in(first, LAYER, "inner")) == ({f"{first}:2", f"{first}:3"}, {"inner"}, 0)
    assert told(layer_in(second, "\n\n\n" + LAYER, "other")) == ({f"{second}:5", f"{second}:6"}, {"other"}, 1)


def test_operations_of_one_line_are_not_those_of_two(tmp_path: Path) -> None:
    """Which operations share a line is part of the key: what one line tells could not be told apart."""
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    one = "def forward(self, x):\n    return torch.relu(self.{name}(x)).softmax(-1)\n"
    told(layer_in(first, LAYER, "inner"))
    assert told(layer_in(second, one, "inner")) == ({f"{second}:2"}, {"inner"}, 0)
