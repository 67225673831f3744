"""A position out of range raises as in eager, whatever becomes of what is read there; and what the graph has written to its inputs by then, and
no more, stays written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from ..sweeps.backends import backend_of

pytestmark = pytest.mark.judges_itself


def written_over(v: Tensor) -> Tensor:
    v = v * 1
    v[:1] = 5
    v[1:] = 5
    return v


READS = {
    "padded away": lambda x, i: F.pad(x[i], (-2, 1)),
    "to the power of zero": lambda x, i: x[i].pow(0),
    "filled": lambda x, i: x[i].masked_fill(torch.ones_like(x[i]).bool(), 2),
    "written over": lambda x, i: written_over(x[i]),
    "cut": lambda x, i: x.index_select(0, i)[1:] * 2,
    "a row of an embedding": lambda x, i: F.embedding(i, x.view(-1, 1))[0] * 2,
    "gathered": lambda x, i: x.gather(0, i).pow(0),
    "scattered": lambda x, i: x.scatter(0, i, 1.0).pow(0),
    "put": lambda x, i: written_over(x.index_put((i,), x[0])),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0)[:1] * 2,
    "one element": lambda x, i: x[None][i * (i > 2)],
    "expanded": lambda x, i: x[:, None].expand(8, 1).gather(1, (i * (i > 2))[:, None]),
}
WRITES = {
    "added to a dead sum": lambda x, i: (x.index_add(0, i, torch.ones(8)).pow(0), x.add_(1))[0],
    "before a read": lambda x, i: (x.add_(1), x[i])[1],
    "by position": lambda x, i: x.index_add_(0, i, torch.ones(8)),
    "before a write by position": lambda x, i: (x.mul_(2), x.scatter_(0, i, 5.0))[1],
    "around it": lambda x, i: (x.mul_(2), x.index_copy_(0, i + 0, x * 1), x.add_(3))[1],
    "of computed positions": lambda x, i: (x.mul_(2), x[(i.float() @ torch.eye(8)).long()], x.add_(3))[1],
    "before a library call": lambda x, i: (x.mul_(2), F.embedding_bag(i[None], x.view(-1, 1) * 1), x.add_(3))[1],
    "before a division": lambda x, i: (x.mul_(2), i // (i - 11)),
}
GIVEN = [[0, 1, 2, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0], [0, 0, 11, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 9]]


def outcome(function: Callable[..., Any], positions: list[int]) -> tuple[Any, list[float]]:
    """What is returned, or the type of what is raised; and what was written."""
    x = torch.arange(8.0) + 1
    result: Any
    try:
        result = function(x, torch.tensor(positions))
    except Exception as error:  # of any kind: that is what is compared
        result = type(error)
    return torch.utils._pytree.tree_map_only(Tensor, Tensor.tolist, result), x.tolist()


def compare(program: Callable[..., Any], backend: str, dynamic: bool) -> None:
    recorder = Recorder()
    compiled = compile_recorded(program, recorder, backend=backend_of(backend, recorder), dynamic=dynamic)
    for positions in GIVEN:
        assert outcome(compiled, positions) == outcome(program, positions)
    assert not recorder.eager_graphs


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_positions_out_of_range(name: str, dynamic: bool) -> None:
    """At the first place, in the middle, and at the last one."""
    compare({**READS, **WRITES}[name], "lowered", dynamic)


@pytest.mark.parametrize("name", ["written over", "before a read", "around it", "before a division"])
def test_kernels_check_positions(name: str) -> None:
    """Checks stay, and stay first, when loops become kernels."""
    compare({**READS, **WRITES}[name], "inductor", False)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_all_kernels_check_positions(name: str, dynamic: bool) -> None:
    """All of them."""
    compare({**READS, **WRITES}[name], "inductor", dynamic)
