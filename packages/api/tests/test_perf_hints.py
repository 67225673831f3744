"""Missed optimisations: which graphs and programs are told of."""

from __future__ import annotations

import io
from collections.abc import Iterator

import attrs
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import flambeau
from flambeau import log, perf_hints


@pytest.fixture
def told() -> Iterator[io.StringIO]:
    """What is logged."""
    stream = io.StringIO()
    log.configure(log.parse("perf_hints"), stream)
    yield stream
    log.configure(log.LogSettings())


def product(dtype: torch.dtype, device: str, inner: int) -> fx.Graph:
    """A graph of one product."""
    graph = fx.Graph()
    with FakeTensorMode():
        operands = []
        for name, shape in (("left", (64, inner)), ("right", (inner, 64))):
            node = graph.placeholder(name)
            node.meta["val"] = torch.empty(shape, dtype=dtype, device=device)
            operands.append(node)
    result = graph.call_function(torch.ops.aten.mm.default, tuple(operands))
    result.meta["stack"] = (("model.py", 7, "forward"),)
    graph.output(result)
    return graph


@pytest.mark.parametrize(
    ("dtype", "device", "inner", "shown"),
    [
        (torch.bfloat16, "cuda", 65, True),
        (torch.bfloat16, "cuda", 64, False),
        (torch.float32, "cuda", 65, False),
        (torch.bfloat16, "cpu", 65, False),
    ],
)
def test_products_that_tensor_cores_cannot_read(
    told: io.StringIO, dtype: torch.dtype, device: str, inner: int, shown: bool
) -> None:
    """In 16 bits, on a GPU, with rows of no whole 16 bytes."""
    perf_hints.tell_of_graph(product(dtype, device, inner))
    assert ("unaligned_product" in told.getvalue()) is shown
    if shown:
        assert (
            "sizes=[[64, 65]]" in told.getvalue()
            and "multiples of 8" in told.getvalue()
            and "model.py:7" in told.getvalue()
        )


def chain(x: torch.Tensor) -> torch.Tensor:
    """Reductions that depend on each other: a kernel each."""
    for dim in (0, 1) * 6:
        x = x.softmax(dim)
    return x


def test_many_launches_of_little_work(told: io.StringIO) -> None:
    """On a GPU, without a CUDA graph."""
    artifact = flambeau.explain(chain, options={"force_disable_caches": True})(torch.randn(8, 8)).programs[0].artifact
    on_gpu = attrs.evolve(artifact, program=attrs.evolve(artifact.program, devices=("cuda",)))
    for given, graphed, shown in ((artifact, False, False), (on_gpu, True, False), (on_gpu, False, True)):
        told.truncate(0)
        perf_hints.tell_of_program("forward", given, graphed=graphed)
        assert ("tiny_kernels" in told.getvalue()) is shown


def test_programs_of_calls_alone(told: io.StringIO) -> None:
    """Nothing was fused: which calls there are."""
    options = {"force_disable_caches": True, "fallback_by_default": True}
    artifact = flambeau.explain(chain, options=options)(torch.randn(8, 8)).programs[0].artifact
    perf_hints.tell_of_program("forward", artifact, graphed=False)
    assert "nothing_fused" in told.getvalue() and "softmax" in told.getvalue()
