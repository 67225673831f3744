"""What the GPU tests share: a share of them for each of several processes, and torch's precision flags put back.

`FLAMBEAU_SHARD=2/8` keeps the second eighth of the tests of this folder: eight processes at once share one GPU well, because
most of a test is compilation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from .precision import restore, tf32, use_tf32

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the tests of the other shards; tests of other folders stay."""
    shard = os.environ.get("FLAMBEAU_SHARD")
    if shard is None:
        return
    index, count = map(int, shard.split("/"))
    mine = [item for item in items if HERE in item.path.parents]
    dropped = {id(item) for number, item in enumerate(mine) if number % count != index % count}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in dropped])
    items[:] = [item for item in items if id(item) not in dropped]


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """float32 means float32, unless a test says otherwise; a fault of the device stops the run at the test that caused it."""
    before = tf32()
    use_tf32(False)
    yield
    restore(before)
    if torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            pytest.exit(f"no CUDA call works after {request.node.nodeid}: {error}", returncode=1)
        torch.cuda.empty_cache()
