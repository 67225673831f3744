"""The random stream inside Triton kernels equals its reference, given as values and as device addresses."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import harness

from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import KernelBody, Reduce, Store
from flambeau_inductor.ir.loops import make_axes
from flambeau_inductor.lowering.philox import Deal, uniform
from flambeau_runtime.triton_kernels import compile_kernels
from flambeau_runtime.workers.triton_task import interpreter_loaded

WORDS = ("seed", "offset", "base")


def body_of(deal: Deal, out: torch.Tensor) -> KernelBody:
    """Every element's draw, stored."""
    axes = make_axes((deal.numel,))
    place = [sc.index_value(part) for part in deal.place(axes[0].symbol)]
    value = sc.op("philox_uniform", *(sc.parameter(w, torch.int64) for w in WORDS), *place)
    return harness.make_body({"out": out}, axes, (), [Store("out", axes[0].symbol, value)], WORDS)


@pytest.mark.parametrize("vector", [1, 4, 8])
@pytest.mark.parametrize("captured", [False, True])
def test_draws_equal_the_reference(vector: int, captured: bool) -> None:
    """A large seed, an offset beyond 32 bits, more than one round of the grid."""
    seed, offset, base = 0x9EED_0000_0000_0007 - 2**64, 2**34 + 8, 16
    deal = Deal.of(5000 * vector, 1024, vector)
    out = torch.empty(deal.numel)
    if captured and interpreter_loaded() is False:
        pytest.skip("this process holds Triton's compiler; the one that interprets for it cannot read its addresses")
    held = torch.tensor([seed]), torch.tensor([offset])
    values: dict[object, float] = dict(zip(WORDS, (seed, offset + base, -1)))
    if captured:
        values = dict(zip(WORDS, (held[0].data_ptr(), held[1].data_ptr(), base)))
    harness.run(body_of(deal, out), {"out": out}, values)
    torch.testing.assert_close(out, uniform(deal, seed, offset + base, torch.arange(deal.numel)), rtol=0, atol=0)


def test_compiles_for_a_gpu() -> None:
    """Triton's compiler takes it for sm_90."""
    (cubin,) = compile_kernels([harness.request(body_of(Deal.of(100000, 1024, 4), torch.empty(100000)))])
    assert cubin.binary


@pytest.mark.parametrize(("rows", "columns", "shared"), [(6, 512, True), (6, 40000, False), (7, 301, False)])
def test_rows(rows: int, columns: int, shared: bool) -> None:
    """Next to a reduction: blocks of whole rows, a loop over long ones (whose blocks start anywhere), rows of odd length."""
    seed, offset = 77, 12
    deal = Deal.of(rows * columns, 1024, 4 if columns % 4 == 0 else 1)
    outer, inner = make_axes((rows,)), make_axes((columns,), "r")
    element = outer[0].symbol * columns + inner[0].symbol
    place = [sc.index_value(part) for part in deal.place(element)]
    value = sc.op("philox_uniform", *(sc.parameter(w, torch.int64) for w in WORDS), *place)
    total = Reduce("total", "sum", value, torch.float32)
    statements = [
        total,
        Store("out", element, value, "inner"),
        Store("sums", outer[0].symbol, sc.reduced("total", torch.float32), "outer"),
    ]
    tensors = {"out": torch.empty(rows * columns), "sums": torch.empty(rows)}
    body = harness.make_body(tensors, outer, inner, statements, WORDS)
    source = harness.run(body, tensors, dict(zip(WORDS, (seed, offset, -1))))
    assert ("philox_neighbours" in source) == shared
    wanted = uniform(deal, seed, offset, torch.arange(deal.numel))
    torch.testing.assert_close(tensors["out"], wanted, rtol=0, atol=0)
    torch.testing.assert_close(tensors["sums"], wanted.view(rows, columns).sum(1))


def test_neighbours_share_a_draw() -> None:
    """In a block over all elements, where a thread of eager's kernel takes neighbours; not where it takes every so many-th."""
    for vector, shared in ((4, True), (8, True), (1, False)):
        source = harness.request(body_of(Deal.of(8192, 1024, vector), torch.empty(8192))).source
        assert ("philox_neighbours" in source) == shared
