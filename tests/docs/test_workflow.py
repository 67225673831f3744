"""The hosted workflow runs the versions and packages that the sessions know."""

from __future__ import annotations

import ast
from typing import Any

import yaml

from .pages import ROOT


def _constants() -> dict[str, Any]:
    """The tables at the top of `noxfile.py`, which cannot be imported where nox is not installed."""
    found = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def test_workflow_runs_every_corner_and_package() -> None:
    """What is supported is what is run."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    known = _constants()
    corners = [(corner["python"], corner["torch"]) for corner in jobs["matrix"]["strategy"]["matrix"]["include"]]
    assert corners == known["MATRIX"]
    assert set(jobs["packages"]["strategy"]["matrix"]["package"]) == set(known["PACKAGES"])
    assert any(step.get("run") == ".ci/run" for step in jobs["required"]["steps"])
