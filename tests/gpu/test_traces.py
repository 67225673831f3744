"""What a trace tells of programs on a GPU: each kernel and library call with its seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import flambeau
from flambeau.trace import read_trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_kernels_are_measured(tmp_path: Path) -> None:
    """Forward and backward; nothing went wrong while the trace was written, and the current device is what it was."""
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).cuda()
    compiled = flambeau.compile(model, options={"trace.enabled": True, "trace.debug_dir": str(tmp_path)})
    before = torch.cuda.current_device()
    compiled(torch.randn(32, 64, device="cuda")).square().mean().backward()
    assert torch.cuda.current_device() == before
    (process,) = read_trace(tmp_path).processes
    assert [record for record in process.of("log") if record["event"] == "trace failed"] == []
    programs = {record["program"]: record["kernels"] for record in process.of("kernels")}
    assert set(programs) == {"forward", "backward"}
    for rows in programs.values():
        assert {"kernel", "library call"} <= {row["kind"] for row in rows}
        assert {row["device"] for row in rows} == {"cuda"}
        assert [(row["name"], row["note"]) for row in rows if not row["seconds"]] == []
    (limits,) = (record for record in process.of("device") if record["device"] == "cuda")
    assert limits["bandwidth"] > 1e9
