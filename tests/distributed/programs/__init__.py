"""Programs that two ranks run together, as they are and compiled: one module a subject.

In: a function under `@program`, which gets a `Here`: the rank, its device, and what compiles. Out: `run_programs`, which a script of each rank calls: every
program twice, first with a `compile` that does nothing, and an error that names all whose results differ on this rank, that compiled less than
they say or that ran something in eager. `test_two_ranks.py` starts the ranks, `tests/witness.py` watches what is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from attrs import field, frozen
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

import flambeau
from flambeau import torch_backend
from tests.comparison import assert_same
from tests.witness import watch

Compile = Callable[..., Any]
SUBJECTS = ("data_parallel", "sharded", "tensor_parallel", "collectives")


@frozen
class Here:
    """Where a program runs.

    Attributes:
        rank: 0 or 1.
        device: of this rank: `cpu`, or a GPU of its own.
        compile: `flambeau.compile` with the backend that is tested, or what returns its argument.
        is_compiled: whether it is the former.
    """

    rank: int
    device: torch.device
    compile: Compile
    is_compiled: bool

    def made(self, make: Callable[[], nn.Module]) -> nn.Module:
        """A model with the same weights on both ranks."""
        torch.manual_seed(0)
        return make().to(self.device)

    def data(self, step: int, *sizes: int, same: bool = False) -> Tensor:
        """Random numbers, others on each rank and at each step."""
        generator = torch.Generator().manual_seed(1000 * step + (0 if same else self.rank))
        return torch.randn(*sizes, generator=generator).to(self.device)


def compile_in_place(here: Here, *modules: nn.Module) -> None:
    """`Module.compile`: torch.compile captures for our backend."""
    if here.is_compiled:
        for module in modules:
            module.compile(backend=torch_backend.flambeau)


@contextlib.contextmanager
def told_of_torch(here: Here) -> Iterator[None]:
    """In it at least one graph comes to that backend, which the witness does not watch."""
    graphs: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        inner = torch_backend.compile_stack
        patch.setattr(torch_backend, "compile_stack", lambda gm, *rest: graphs.append(gm) or inner(gm, *rest))
        yield
    assert bool(graphs) == here.is_compiled


@frozen
class Program:
    """One program and what it must compile.

    Attributes:
        run: it.
        graphs: how many graphs at least.
        falls_back: parts of the reasons for which something in it runs in eager.
        rtol: how near the results are.
        devices: where it can run.
        is_slow: it is left out of the quick run.
    """

    run: Callable[[Here], Any]
    graphs: int
    falls_back: tuple[str, ...]
    rtol: float
    devices: tuple[str, ...]
    is_slow: bool
    name: str = field(default="")


_PROGRAMS: dict[str, dict[str, Program]] = {}


def program(
    *,
    graphs: int = 1,
    falls_back: Sequence[str] = (),
    rtol: float = 1e-4,
    devices: Sequence[str] = ("cpu", "cuda"),
    slow: bool = False,
    name: str = "",
) -> Callable[[Callable[[Here], Any]], Callable[[Here], Any]]:
    """Register a program under the subject of its module; see `Program`."""

    def register(run: Callable[[Here], Any]) -> Callable[[Here], Any]:
        own = name or run.__name__
        of_subject = _PROGRAMS.setdefault(run.__module__.rpartition(".")[2], {})
        assert own not in of_subject
        of_subject[own] = Program(run, graphs, tuple(falls_back), rtol, tuple(devices), slow, own)
        return run

    return register


def programs_of(subject: str) -> dict[str, Program]:
    """All of a subject, by name."""
    importlib.import_module(f"{__name__}.{subject}")
    return _PROGRAMS[subject]


def plain(value: Any) -> Any:
    """A result without what is not compared leaf by leaf: a distributed tensor as its placements and its local part; copies, as programs go on. What eager
    gives while it is on its way is waited for in a graph."""
    if isinstance(value, AsyncCollectiveTensor):
        value = value.trigger_wait()
    if isinstance(value, DTensor):
        return str(value.placements), tuple(value.shape), value.requires_grad, value.to_local().detach().clone()
    return value.detach().clone() if isinstance(value, Tensor) else value


def run_programs(subject: str, rank: int, *, device: str, backend: str, slow: bool = False, only: str = "") -> None:
    """Run the programs of a subject on this rank, each compared with its run in eager.

    Args:
        device: `cpu` or `cuda`.
        backend: what compiles.
        slow: also those that are marked so.
        only: part of the names of those that are run.
    """
    here = torch.device("cuda", rank) if device == "cuda" else torch.device("cpu")
    faults = []
    chosen = [
        p for p in programs_of(subject).values() if device in p.devices and (slow or not p.is_slow) and only in p.name
    ]
    assert chosen
    for each in chosen:
        faults += [f"{each.name}: {fault}" for fault in _faults(each, rank, here, backend)]
        dist.barrier()
    assert not faults, f"{len(faults)} on rank {rank}:\n" + "\n".join(faults)


def _faults(each: Program, rank: int, device: torch.device, backend: str) -> list[str]:
    """What is wrong with one program. An exception of the program itself ends the rank: the other waits for it."""
    expected = _results(each, Here(rank, device, _as_it_is, False))
    with pytest.MonkeyPatch.context() as patch:
        seen = watch(patch)
        compile = functools.partial(flambeau.compile, backend=backend)
        found = _results(each, Here(rank, device, compile, True))
    flambeau.compiler.reset()
    faults = [f"ran in eager: {why}" for why in seen.in_eager if not any(part in why for part in each.falls_back)]
    faults += [f"nothing ran in eager for: {part}" for part in each.falls_back if part not in "\n".join(seen.in_eager)]
    if seen.graphs < each.graphs:
        faults.append(f"{seen.graphs} graphs, not {each.graphs}")
    try:
        assert_same(found, expected, rtol=each.rtol, atol=each.rtol / 10)
    except AssertionError as error:
        faults.append(str(error))
    return faults


def _as_it_is(function: Any, **options: Any) -> Any:
    return function


def _results(each: Program, here: Here) -> Any:
    torch.manual_seed(here.rank)
    try:
        return pytree.tree_map(plain, each.run(here))
    except Exception as error:
        error.add_note(f"in {each.name}, {'compiled' if here.is_compiled else 'in eager'}, on rank {here.rank}")
        raise


def trained(
    here: Here, model: nn.Module, run: Callable[..., Any], *, steps: int = 3, sizes: Sequence[int] = (6, 16)
) -> list[Any]:
    """Losses of some steps of SGD with other data on each rank, then weights, gradients of the last step and buffers."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept: list[Any] = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = run(here.data(step, *sizes)).exp().mean()
        loss.backward()
        kept.append(plain(loss))
        optimizer.step()
    return kept + values(model)


def values(model: nn.Module) -> list[Any]:
    """Weights, gradients and buffers."""
    found = [*model.parameters(), *(p.grad for p in model.parameters()), *model.buffers()]
    return [plain(t) for t in found]
