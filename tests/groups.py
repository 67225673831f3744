"""Groups of processes that compute together.

In: a folder in which they meet. Out: this process as a group of one (`group_of_one`), or a script that two run (`run_ranks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist

from .scripts import run_together

RANK = """
import datetime, sys, torch, torch.distributed as dist, flambeau
rank, communication = int(sys.argv[1]), sys.argv[3]
if communication == "nccl":
    torch.cuda.set_device(rank)
# A rank that waits for one that does not come is an error within the time of a test.
dist.init_process_group(
    communication, init_method="file://" + sys.argv[2], rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60)
)
{script}
dist.barrier()
dist.destroy_process_group()
"""


@contextlib.contextmanager
def group_of_one(folder: Path) -> Iterator[None]:
    """A group of this process alone, as long as the context lasts."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def run_ranks(script: str, folder: Path, *, communication: str = "gloo", **variables: object) -> None:
    """Run a script as both ranks of a group, each of which has `rank` and `dist`; one that fails is an error with its messages.

    Args:
        communication: the backend of the group; with `nccl` each rank has a GPU of its own.
    """
    path = folder / "rank.py"
    path.write_text(RANK.replace("{script}", script))
    lines = [(rank, folder / "store", communication) for rank in range(2)]
    failed = [
        f"rank {rank}:\n{done.output}"
        for rank, done in enumerate(run_together(path, lines, folder=folder, GLOO_SOCKET_IFNAME="lo", **variables))
        if done.status
    ]
    assert not failed, "\n".join(failed)
