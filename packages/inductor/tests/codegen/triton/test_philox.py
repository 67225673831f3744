"""The random stream inside Triton kernels equals its reference, given as values and as device addresses."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import harness  # noqa: E402

from flambeau_inductor.ir import scalar as sc  # noqa: E402
from flambeau_inductor.ir.kernel import KernelBody, Store  # noqa: E402
from flambeau_inductor.ir.loops import make_axes  # noqa: E402
from flambeau_inductor.lowering.philox import Deal, uniform  # noqa: E402
from flambeau_runtime.triton_kernels import compile_kernels  # noqa: E402

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
