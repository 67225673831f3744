"""Products as kernels of our own on a GPU: results, gradients, pointers that are not aligned, precision that changes, measurement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(params=["tf32", "ieee"])
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    """How float32 products may round."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = request.param
    yield request.param
    torch.backends.cuda.matmul.fp32_precision = before


def r(*sizes: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def close(found: Tensor, wanted: Tensor, coarse: bool) -> None:
    """Relative to the whole: single elements round where they are summed."""
    error = (found.double() - wanted.double()).norm() / wanted.double().norm()
    assert found.isfinite().all() and error < (1e-2 if coarse else 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_head_of_odd_size(dtype: torch.dtype, precision: str) -> None:
    """Forward and backward of a last layer whose columns are no multiple of what the library is fast at."""
    x, w = r(2048, 512, dtype=dtype), r(30011, 512, dtype=dtype)
    t = torch.randint(0, 30011, (2048,), device="cuda")

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x, w).float() * 0.1, t)

    results = []
    for function in (loss, flambeau.compile(loss)):
        parts = [v.detach().clone().requires_grad_() for v in (x, w)]
        value = function(*parts)
        value.backward()
        results.append((value.detach(), *(part.grad for part in parts)))
    for found, wanted in zip(results[1], results[0], strict=True):
        close(found, wanted, dtype is not torch.float32 or precision == "tf32")


def test_a_pointer_that_is_not_aligned() -> None:
    """The same program is called with operands that begin anywhere."""
    w = r(30011, 512, dtype=torch.bfloat16)
    compiled = flambeau.compile(lambda x, w: F.linear(x, w).relu())
    for offset in (0, 1, 8):
        x = r(2048 * 512 + 8, dtype=torch.bfloat16)[offset : offset + 2048 * 512].view(2048, 512)
        close(compiled(x, w), F.linear(x, w).relu(), True)


def test_another_precision_is_another_program() -> None:
    """TF32 that is allowed when a function is compiled is not used when it is forbidden later."""
    before = torch.backends.cuda.matmul.fp32_precision
    x, w = r(2048, 512, dtype=torch.float32), r(30011, 512, dtype=torch.float32)
    exact = F.linear(x.double(), w.double())
    compiled = flambeau.compile(F.linear)
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        close(compiled(x, w), exact, True)
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        close(compiled(x, w), exact, False)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.parametrize("mode", ["max-autotune-no-cudagraphs", "max-autotune"])
def test_measured_products(mode: str) -> None:
    """Whatever is chosen gives eager's results, again and again."""
    x, w, b = r(1024, 1024, dtype=torch.bfloat16), r(2048, 1024, dtype=torch.bfloat16), r(2048, dtype=torch.bfloat16)

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.linear(x, w, b))

    compiled = flambeau.compile(layer, mode=mode)
    for _ in range(4):
        close(compiled(x, w, b), layer(x, w, b), True)
