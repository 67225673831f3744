"""CUDA graphs without a GPU: programs on the CPU are "recorded" by the recorder of the runtime's own tests, which replays by running again.

In: a patch, for as long as it is to hold. Out: what was recorded and decided meanwhile (`record_on_the_cpu`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from flambeau_runtime import graphs
from flambeau_runtime.graphs import GraphDecision

_FAKE = Path(__file__).parents[2] / "packages" / "runtime" / "tests" / "graphs" / "fake.py"


class Seen:
    """What was recorded and decided."""

    def __init__(self) -> None:
        self.recorders: list[Any] = []
        self.decisions: list[GraphDecision] = []

    def count(self, name: str) -> int:
        """A number of all recorders together."""
        return sum(getattr(recorder, name) for recorder in self.recorders)


def record_on_the_cpu(patch: pytest.MonkeyPatch) -> Seen:
    """Have regions with CUDA graphs record CPU programs."""
    seen, load = Seen(), graphs.load_graphed

    def load_graphed(artifact: Any, *, report: Any, **options: Any) -> Any:
        seen.recorders.append(_fake_recorder())

        def tell(decision: GraphDecision) -> None:
            seen.decisions.append(decision)
            report(decision)

        return load(artifact, report=tell, recorder=seen.recorders[-1], **options)

    patch.setattr(graphs, "load_graphed", load_graphed)
    return seen


def _fake_recorder() -> Any:
    spec = importlib.util.spec_from_file_location("flambeau_fake_recorder", _FAKE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FakeRecorder()
