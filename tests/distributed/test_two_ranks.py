"""Programs of two ranks with different data, compiled beside eager (`programs`): no rank waits for ever, and results are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.groups import run_ranks

from .programs import SUBJECTS

# The programs run, and are held to what they compile, in the processes of the ranks.
pytestmark = pytest.mark.compiles(graphs=0)
SCRIPT = """
from tests.distributed.programs import run_programs
run_programs({subject!r}, rank, device={device!r}, backend={backend!r}, slow={slow})
"""


def run(subject: str, folder: Path, *, device: str = "cpu", backend: str = "inductor", slow: bool = False) -> None:
    script = SCRIPT.format(subject=subject, device=device, backend=backend, slow=slow)
    run_ranks(script, folder, communication="nccl" if device == "cuda" else "gloo")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_programs(subject: str, tmp_path: Path) -> None:
    """Without kernels: their graphs, and the backwards of these."""
    run(subject, tmp_path, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_all_programs(subject: str, tmp_path: Path) -> None:
    """With kernels."""
    run(subject, tmp_path, slow=True)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_all_programs_on_two_gpus(subject: str, tmp_path: Path) -> None:
    """The same on a GPU for each rank."""
    run(subject, tmp_path, device="cuda", slow=True)
