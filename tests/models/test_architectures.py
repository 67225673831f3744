"""A slice of the architectures of transformers, made small, captured as one graph and as in eager; `nox -s architectures` runs all, and those of timm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tools.capture_sweep import table
from tools.capture_sweep.architecture import Architecture, NotTiny, Ready
from tools.capture_sweep.observe import MODES, observe
from tools.capture_sweep.registry import all_architectures
from torch import nn

#: A decoder that returns its cache, one with experts, a state-space model, encoders with decoders of text and of sound, pictures, two towers.
_SLICE = ("gpt2", "mixtral", "mamba", "t5", "whisper", "vit", "clip")


@pytest.mark.judges_itself
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", _SLICE)
def test_as_in_eager_in_one_graph(kind: str, mode: str) -> None:
    record = observe(all_architectures()[f"transformers/{kind}"], mode, "flambeau", "aot_eager")
    assert record["status"] == "ran", record
    assert record["verdict"] == "equal", record["what"]
    assert table.is_one_graph(record), record["breaks"]
    assert not record["in_eager"]


class _Model(nn.Module):
    """Adds `told` where it is told that it is compiled."""

    def __init__(self, told: float) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.told = told

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        return {"y": y + self.told if torch.compiler.is_compiling() else y}


def _architecture(model: Any) -> Architecture:
    return Architecture("tests/model", "tests", lambda: Ready(model(), {"x": torch.randn(2, 3)}, {}))


@pytest.mark.judges_itself
@pytest.mark.parametrize("mode", MODES)
def test_what_differs_is_told(mode: str) -> None:
    equal, told = (
        observe(_architecture(lambda told=told: _Model(told)), mode, "flambeau", "eager") for told in (0.0, 1.0)
    )
    assert (equal["verdict"], equal["graphs"], "as" in equal) == ("equal", 1, False)
    assert told["verdict"] == "equal"
    assert "is_compiling" in told["as"]

    def refuses() -> nn.Module:
        raise NotTiny("too large")

    assert observe(_architecture(refuses), mode, "flambeau", "eager") == {"status": "not made", "why": "too large"}


@pytest.mark.compiles(graphs=0)
def test_the_page(tmp_path: Path) -> None:
    """Each list holds what belongs there; what could not be made counts nowhere."""
    ran = {"status": "ran", "verdict": "equal", "what": "", "graphs": 1, "breaks": []}
    ours = {
        "transformers/whole inference": ran,
        "transformers/wide training": {**ran, "as": "eager in float64", "what": "apart"},
        "timm/broken inference": {**ran, "graphs": 3, "breaks": ["a | reason"]},
        "timm/bad training": {**ran, "verdict": "wrong", "what": "apart by 1"},
        "timm/ended training": {"status": "crashed", "why": "the process ended with 3"},
        "timm/large training": {"status": "not made", "why": "too large"},
    }
    theirs = {"timm/broken inference": {**ran, "graphs": 4}}
    versions = {"backend": "aot_eager", "torch": "2", "python": "3", "transformers": "5", "timm": "1"}
    files = [tmp_path / "ours.json", tmp_path / "theirs.json"]
    for file, records in zip(files, (ours, theirs), strict=True):
        file.write_text(json.dumps({**versions, "architectures": records}))
    table.write(files[:1], files[1:], tmp_path / "page.md")
    lists = {part.partition("\n")[0]: part for part in (tmp_path / "page.md").read_text().split("\n## ")}
    assert "| all |  | 5 | 3 (60.0 %) | 3 (60.0 %) |" in lists["# Captured architectures"]
    assert "| `timm/broken inference` | 3 | 4 | a \\| reason |" in lists["More than one graph"]
    assert "`timm/bad training` | wrong apart by 1" in lists["Not as in eager"]
    assert "`timm/ended training` | crashed" in lists["Not as in eager"]
    assert "`transformers/wide training` | eager in float64" in lists["As eager is otherwise"]
    assert "`timm/large training`" in lists["Not run"]
    broken = [name for name, record in ours.items() if table.is_broken(record)]
    assert broken == ["timm/broken inference", "timm/bad training", "timm/ended training"]
