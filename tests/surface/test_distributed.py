"""Models under DistributedDataParallel, in a group of one process: what is compiled follows the wrapper's buckets of gradients."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import flambeau
from flambeau import log
from flambeau.backends import aot_autograd
from flambeau.compiler import config
from flambeau.errors import InvalidOption
from tests.comparison import assert_same
from tests.groups import group_of_one

from .rows import calls


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    with group_of_one(tmp_path):
        yield


class Told:
    """What happens in a backward, in its order: the backward of a graph, and a bucket that is full."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def backend(self) -> Any:
        """A backend that tells of backwards."""

        def backward(gm: Any, inputs: Any) -> Callable[..., Any]:
            def run(*args: Any) -> Any:
                self.events.append("backward")
                return gm(*args)

            return run

        return aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=backward)

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """What the wrapper calls for a bucket."""
        self.events.append("bucket")
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def layers() -> nn.Module:
    """Of which two fill a bucket; some write in place, some draw random numbers."""
    torch.manual_seed(0)
    each = (
        lambda: nn.Linear(64, 64),
        lambda: nn.BatchNorm1d(64),
        lambda: nn.ReLU(inplace=True),
        lambda: nn.Dropout(0.1),
    )
    return nn.Sequential(*(make() for _ in range(4) for make in each))


def wrapped(model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model, bucket_cap_mb=0.03)


def steps(model: nn.Module, run: Callable[..., Any]) -> list[Any]:
    """Losses, gradients and running statistics of three steps."""
    kept: list[Any] = []
    for seed in range(3):
        torch.manual_seed(seed)
        model.zero_grad()
        loss = run(torch.randn(5, 64)).square().mean()
        loss.backward()
        kept += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        kept += [buffer.clone() for buffer in model.buffers()]
    return kept


@calls("settings", "optimize_ddp")
def test_buckets_are_reduced_while_the_backward_goes_on() -> None:
    """A graph is cut where a bucket is full, and not where that is switched off; the numbers are those of the wrapper in eager."""
    plain = layers()
    eager = wrapped(copy.deepcopy(plain))
    expected = steps(eager, eager)
    for setting, is_cut in ((True, True), (False, False), ("no_optimization", False), ("ddp_optimizer", True)):
        told = Told()
        model = wrapped(copy.deepcopy(plain))
        model.register_comm_hook(told, lambda told, bucket: told.reduce(bucket))
        with config.patch(optimize_ddp=setting):
            compiled = flambeau.compile(model, backend=told.backend())
        assert_same(steps(model, compiled), expected, rtol=1e-4, atol=1e-5)
        backwards = [place for place, event in enumerate(told.events) if event == "backward"]
        assert len(backwards) == (6 if is_cut else 3)
        if is_cut:
            assert "bucket" in told.events[backwards[-2] : backwards[-1]]
    with pytest.raises(InvalidOption, match="Python"), config.patch(optimize_ddp="python_reducer"):
        pass


@calls("logs", "ddp_graphs")
def test_the_log_of_parts() -> None:
    """It tells how many there are; a small model stays whole."""
    stream = io.StringIO()
    log.configure(log.parse("ddp_graphs"), stream)
    try:
        model = wrapped(layers())
        flambeau.compile(model, backend="eager")(torch.randn(5, 64))
        assert "parts=2" in stream.getvalue()
        stream.truncate(0)
        small = DistributedDataParallel(layers())
        flambeau.compile(small, backend="eager")(torch.randn(5, 64))
        assert "parts" not in stream.getvalue()
    finally:
        log.configure(log.parse(""), None)
