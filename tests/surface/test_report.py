"""Traces and the page that is made of them, as a user asks for them: in the environment, by options, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import flambeau
from flambeau.cli import main
from flambeau.trace import read_trace

from .rows import calls


def halved(x: torch.Tensor) -> torch.Tensor:
    """Two operations that become one kernel."""
    return torch.tanh(x) / 2


def functions_of(folder: Path) -> list[str]:
    """What the trace in a folder says was compiled."""
    return [record["function"] for _, record in read_trace(folder).of("frame_begin")]


@calls("tools", "report")
@calls("environment", "TRACE")
def test_a_folder_in_the_environment_becomes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names the function, its line and the stages."""
    monkeypatch.setenv("FLAMBEAU_TRACE", str(tmp_path))
    flambeau.compile(halved)(torch.randn(4))
    assert functions_of(tmp_path) == ["halved"]
    page = tmp_path / "page.html"
    result = CliRunner().invoke(main, ["report", str(tmp_path), "-o", str(page)], catch_exceptions=False)
    assert result.exit_code == 0 and result.output == f"{page}\n"
    text = page.read_text()
    assert "halved" in text and "return torch.tanh(x) / 2" in text and 'id="timeline"' in text


@calls("options", "trace.enabled", "trace.debug_dir")
def test_options_trace_one_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the folder that is named, or one in the working directory; other regions are not traced."""
    monkeypatch.chdir(tmp_path)
    flambeau.compile(halved, options={"trace.enabled": True})(torch.randn(4))
    flambeau.compile(halved)(torch.randn(4))
    assert functions_of(tmp_path / "flambeau_trace") == ["halved"]
    flambeau.compile(halved, options={"trace.debug_dir": str(tmp_path / "named")})(torch.randn(4))
    assert functions_of(tmp_path / "named") == ["halved"]


@calls("options", "trace.graph_diagram")
def test_what_was_fused_is_drawn(tmp_path: Path) -> None:
    """A picture of each program stands beside the trace where it is asked for, and only there."""
    folders = tmp_path / "with", tmp_path / "without"
    for folder, draws in zip(folders, (True, False), strict=True):
        options = {"trace.debug_dir": str(folder), "trace.graph_diagram": draws, "fx_graph_cache": False}
        flambeau.compile(halved, options=options)(torch.randn(4))
    (picture,) = folders[0].glob("*.svg")
    assert picture.read_text().startswith("<svg") and not list(folders[1].glob("*.svg"))
