"""What options make of small programs: compiled beside eager, or for a GPU on fakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import flambeau
import flambeau_inductor
from flambeau.options import resolve
from flambeau.records import ProgramRecord
from flambeau.stages import resolve_stages
from tests.comparison import assert_same


def program(function: Callable[..., Any], *inputs: Any, **options: Any) -> ProgramRecord:
    """The forward that is compiled under these options, after its result was compared with eager's."""
    explanation = flambeau.explain(function, measure=False, options=options)(*inputs)
    assert_same(explanation.result, function(*inputs), rtol=1e-4, atol=1e-5)
    return explanation.programs[0]


def count(record: ProgramRecord, kind: type) -> int:
    return sum(isinstance(instruction, kind) for instruction in record.artifact.program.instructions)


def on_cuda(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    """The artifact for a GPU, compiled on fakes: no GPU is needed."""
    table = {op: rule for op, rule in flambeau_inductor.decompositions().items() if rule is not None}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs]
    with mode:
        gm = make_fx(function, decomposition_table=table, _allow_non_fake_inputs=True)(*fakes)
    return flambeau_inductor.compile_graph(gm, fakes, resolve_stages(resolve(None, options)).inductor)


def entries(artifact: Any) -> list[str]:
    return [kernel.entry for kernel in artifact.kernels]


def meta(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*sizes, dtype=dtype, device="meta")
