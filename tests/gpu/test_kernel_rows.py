"""Kernels whose shape depends on the sizes: rows kept in registers, looped, of odd length, looked up, split reductions, two tiles.

Every result is held against eager's in float64: no further from it than eager's own float32 result by much.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

Shapes = list[tuple[int, ...]]
ROWS: Shapes = [(300, 8192), (70, 50257), (33, 20000), (5, 300_001), (2000, 77)]
CASES: dict[str, tuple[Callable[[Tensor], Tensor], Shapes]] = {
    "softmax": (lambda x: x.softmax(-1), ROWS),
    "log_softmax": (lambda x: x.log_softmax(-1), ROWS),
    "logsumexp": (lambda x: x.logsumexp(-1), ROWS),
    "layer_norm": (lambda x: F.layer_norm(x, (x.shape[-1],)), ROWS),
    "variance": (lambda x: x.var(-1), ROWS),
    "largest": (lambda x: x.amax(-1) + x.argmax(-1), ROWS),
    "rows": (lambda x: (x * x).sum(-1), ROWS),
    "running": (lambda x: x.cumsum(-1), [(40, 8192), (9, 50257)]),
    "columns": (lambda x: x.abs().sum(0), [(20000, 64), (4096, 1000), (100_000, 7), (333, 50)]),
    "everything": (lambda x: x.abs().mean(), [(1 << 22,), (1_000_003,), (17,)]),
    "odd": (lambda x: x * 2 + 1, [(1_000_003,), (65537,)]),
    "transposed": (lambda x: (x.t() + 1).contiguous(), [(1000, 2048), (333, 777)]),
    "mirrored": (lambda x: x + x.t(), [(1024, 1024), (777, 777)]),
    "group_norm": (lambda x: F.group_norm(x, 4), [(8, 16, 48, 48), (4, 8, 64, 64)]),
    "across": (lambda x: F.layer_norm(x.transpose(1, 2), (x.shape[1],)), [(4, 768, 300), (3, 100, 77)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_as_near_as_eager(name: str, dtype: torch.dtype) -> None:
    """Each size has a kernel of its own."""
    function, shapes = CASES[name]
    compiled = flambeau.compile(function, dynamic=False, options={"recompile_limit": 64})
    for shape in shapes:
        x = torch.randn(shape, device="cuda", dtype=dtype) * 3 + 1
        exact, eager, ours = function(x.double()), function(x), compiled(x)
        assert ours.dtype is eager.dtype and ours.shape == eager.shape
        scale = exact.abs().max().item() + 1e-30
        error, allowed = ((t.double() - exact).abs().max().item() / scale for t in (ours, eager))
        assert error <= 3 * allowed + 2e-6, f"{name} {shape}: {error:.2e} away, eager {allowed:.2e}"


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "columns", "odd", "rows"])
def test_changing_sizes(name: str) -> None:
    """One kernel for sizes that change."""
    function, shapes = CASES[name]
    compiled = flambeau.compile(function, dynamic=True)
    for shape in shapes:
        x = torch.randn(shape, device="cuda")
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "width", "dtype"),
    [(10000, 512, torch.float32), (9999, 1500, torch.float32), (20000, 2048, torch.bfloat16)],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_of_a_table_larger_than_the_cache_keeps(rows: int, width: int, dtype: torch.dtype, dynamic: bool) -> None:
    """Every row of the results is written, whichever half of the table it comes from; negative numbers count from the end."""

    def function(ids: Tensor, table: Tensor, position: Tensor) -> Tensor:
        return F.layer_norm(table[ids] + position, (width,))

    compiled = flambeau.compile(function, dynamic=dynamic)
    table, position = (torch.randn(n, width, device="cuda", dtype=dtype) for n in (rows, 250))
    for batch in (256, 251):
        ids = torch.randint(-rows, rows, (batch, 250), device="cuda")
        expected, ours = function(ids, table, position), compiled(ids, table, position)
        torch.testing.assert_close(ours, expected, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5)
