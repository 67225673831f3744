"""Whole programs on the CPU: ATen graphs through lowering, fusion, C++ and the executor, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tracing import lowered, traced

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_loops
from flambeau_inductor.program import BuiltProgram
from flambeau_runtime import load

TOLERANCE = {
    torch.bfloat16: (2e-2, 1e-2),
    torch.float16: (2e-3, 1e-3),
    torch.float64: (1e-7, 1e-9),
    torch.float32: (2e-5, 2e-5),
}


def build(
    function: Callable[..., Any], args: tuple[Any, ...], *, symbolic: bool = False, fuse: bool = True
) -> BuiltProgram:
    graph = lowered(traced(function, *args, mode="symbolic" if symbolic else "fake"))
    return compile_loops(graph, CompileContext(Config(fuse=fuse)))


def run(built: BuiltProgram, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return load(built.artifact, constants=built.constants)(*args)


def check(function: Callable[..., Any], *args: Any, kernels: int | None = None, symbolic: bool = False) -> BuiltProgram:
    built = build(function, args, symbolic=symbolic)
    wanted = function(*args)
    for got, want in zip(run(built, args), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, check_stride=want.numel() > 1)
    if kernels is not None:
        assert len(built.artifact.kernels) == kernels
    return built


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


R = torch.randn


@pytest.mark.parametrize("size", [0, 1, 5, 16, 17, 63, 130])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_rows_of_every_length(rows: int, size: int) -> None:
    """Row and column reductions, their uses in the same kernel, and pointwise tails."""

    def f(x: torch.Tensor) -> Any:
        return (
            x.sum(-1),
            x.sum(0),
            x - x.sum(-1, keepdim=True),
            (x * 2).exp(),
            x.double().sum(),
            x.to(torch.bfloat16) + 1,
        )

    check(f, R(rows, size))


@pytest.mark.parametrize("shape", [(1, 7), (5, 16), (3, 100), (64, 33)])
def test_max_min_arg_any_all_prod(shape: tuple[int, int]) -> None:
    """Every kind of reduction over each dimension, NaN included."""
    x = R(*shape)
    x[0, 3] = float("nan")

    def f(x: torch.Tensor) -> Any:
        kinds = [x.amax(d) for d in (0, 1)] + [x.amin(d) for d in (0, 1)] + [x.argmax(d) for d in (0, 1)]
        kinds += [x.argmin(d) for d in (0, 1)] + [(x > 0).any(d) for d in (0, 1)] + [(x > 0).all(d) for d in (0, 1)]
        return (*kinds, x.prod(1), x.argmax(), (x * 100).to(torch.int64).clamp(-5, 5).sum(0))

    check(f, x)


def test_softmax_is_one_kernel() -> None:
    """Maximum, sum and quotient share a kernel."""
    check(lambda x: torch.softmax(x * 3, -1), R(9, 77), kernels=1)


def test_layer_norm_with_residual_is_one_kernel() -> None:
    """Residual, statistics and affine map share a kernel."""
    check(lambda x, r, w, b: F.layer_norm(x + r, (65,), w, b), R(9, 65), R(9, 65), R(65), R(65), kernels=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_norms_and_activations(dtype: torch.dtype) -> None:
    """Half types round where eager rounds."""
    x, w = R(6, 130).to(dtype), R(130).to(dtype)
    check(lambda x, w: (F.gelu(x * w) + x, F.silu(x) * w, torch.softmax(x, -1), F.layer_norm(x, (130,), w, w)), x, w)


def test_cross_entropy() -> None:
    """Forward of the loss, with ignored targets."""
    target = torch.randint(0, 77, (40,))
    target[::7] = -100
    check(lambda x, t: F.cross_entropy(x, t), R(40, 77), target)


def test_large_reductions_are_split() -> None:
    """A reduction to one number uses two kernels, with the same result."""
    built = check(lambda x: x.exp().sum(), R(100, 1000), kernels=2)
    assert built.artifact.kernels[0].meta["mode"] == "rows"


def test_transposes_and_views() -> None:
    """Accesses along different axes, merged and split axes."""
    check(lambda x, y: x.t() + y, R(70, 45), R(45, 70))
    check(lambda x: x.permute(0, 2, 3, 1).contiguous(), R(2, 17, 9, 5))
    check(lambda x: (x.view(4, 5, 6, 8).transpose(1, 2) + 1).reshape(24, 40).softmax(-1), R(20, 48))
    check(lambda x: x.flip(1)[:, ::3] * 2, R(10, 41))


def test_joins_pads_and_masks() -> None:
    """Reads that hold for some indices only."""
    check(lambda x, y: torch.cat([x, y * 2], 1).relu(), R(5, 40), R(5, 50))
    check(lambda x, y: torch.cat([x, y * 2], 0).relu(), R(5, 40), R(7, 40))
    check(lambda x: F.pad(x, (1, 2, 3, 4)) * 2, R(10, 40))
    mask = torch.rand(4, 1, 33) > 0.5
    check(lambda x, m: F.softmax(x.masked_fill(m, -1e9), -1), R(4, 33, 33), mask, kernels=1)


def test_indices_from_memory() -> None:
    """Embedding, gather, negative indices, scatter and index_add with collisions."""
    index = torch.randint(0, 10, (50,))
    check(lambda w, i: F.layer_norm(F.embedding(i, w), (48,)), R(100, 48), torch.randint(0, 100, (4, 9)))
    check(lambda x, i: x.gather(1, i) * 2, R(10, 40), torch.randint(0, 40, (10, 7)))
    check(lambda x, i, j: x[i, j] + 1, R(10, 40), torch.tensor([-1, 3, 9]), torch.tensor([0, 39, -40]))
    check(lambda x, i, s: x.index_add(0, i, s), R(10, 40), index, R(50, 40))
    check(lambda x, i, s: x.index_add(0, i, s), R(10), index, R(50))
    check(
        lambda x, i, s: x.scatter(1, i, s),
        R(10, 40),
        torch.stack([torch.randperm(40)[:20] for _ in range(10)]),
        R(10, 20),
    )


@pytest.mark.parametrize("bad", [10, -11])
def test_index_out_of_range_raises(bad: int) -> None:
    """An index outside raises IndexError and reads nothing outside."""
    args = (R(10, 40), torch.tensor([0, bad, 3]))
    built = build(lambda x, i: x[i] * 2, args[:1] + (torch.tensor([0, 1, 3]),))
    with pytest.raises(IndexError, match="out of range"):
        run(built, args)


def test_scans() -> None:
    """Running sums along the last and the first axis."""
    check(lambda x: (x.cumsum(-1), x.cumsum(0), torch.cumsum(x.to(torch.int64), 1)), R(17, 45))


def test_dtype_mixtures() -> None:
    """Values of different widths in one kernel."""
    args = R(6, 35), R(6, 35).double(), torch.randint(-9, 9, (6, 35)), torch.rand(6, 35) > 0.5, R(6, 35).half()
    check(lambda a, b, c, m, h: ((a * b + c).sum(-1), torch.where(m, a, c), (c > 0) & m, h * 2 + a, c // 4 % 3), *args)


def test_symbolic_sizes_serve_other_sizes() -> None:
    """One artifact runs for sizes it was not traced with."""

    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.softmax(x * w, -1), (x + 1).sum(0), x.reshape(-1) * 2

    first = (R(12, 35), R(35))
    built = build(f, first, symbolic=True)
    runner = load(built.artifact, constants=built.constants)
    for rows, columns in ((12, 35), (3, 64), (50, 7), (2, 300)):
        args = (R(rows, columns), R(columns))
        sizes = _symbolic_arguments(built, args)
        for got, want in zip(runner(*sizes), f(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


def _symbolic_arguments(built: BuiltProgram, args: tuple[Any, ...]) -> tuple[Any, ...]:
    assert len(built.artifact.program.inputs) == len(args)
    return args


def test_intermediates_share_memory() -> None:
    """A chain through library calls allocates no more than eager keeps alive."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = F.relu(x @ w) + 1
        return x

    built = check(f, R(8, 8), R(8, 8))
    assert sum(type(i).__name__ == "Alloc" for i in built.artifact.program.instructions) == 0


def test_in_place_updates_of_inputs() -> None:
    """A trailing copy into an input is written there."""

    def f(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        new = x * 0.9 + g
        x.copy_(new)
        return new.sum()

    x, g = R(300), R(300)
    wanted = x * 0.9 + g
    built = build(f, (x.clone(), g))
    (total,) = run(built, (x, g))
    torch.testing.assert_close(x, wanted)
    torch.testing.assert_close(total, wanted.sum(), rtol=1e-5, atol=1e-5)


def test_equal_kernels_share_one_function() -> None:
    """Layers of one shape are compiled once."""

    def f(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.gelu(x @ a) @ b)

    built = check(f, R(8, 16), R(16, 16), R(16, 16))
    assert len({kernel.entry for kernel in built.artifact.kernels}) == 1


def test_a_scatter_into_a_copy_of_a_dying_library_result() -> None:
    """The copy takes the library result's memory, and the scatter has to write there."""
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    index, rows = torch.tensor([1, 3]), torch.randn(2, 3)
    check(lambda x, w, i, r: torch.mm(x, w).index_add(0, i, r) * 2, x, w, index, rows)
    check(lambda x, w, i, r: torch.mm(x, w).mul(2).index_add(0, i, r), x, w, index, rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((3, 20001), 1), ((20001, 3), 0), ((2, 3001, 9), 1)])
def test_long_scans_equal_eager_s_to_the_bit(dtype: torch.dtype, shape: tuple[int, ...], dim: int) -> None:
    """Along rows and along columns: float32 is accumulated in double precision, half types in float32."""

    def scans(x: torch.Tensor) -> Any:
        return x.cumsum(dim), (1 + x * 0.01).cumprod(dim)

    x = R(shape).to(dtype)
    for ours, eager in zip(run(build(scans, (x,)), (x,)), scans(x), strict=True):
        assert torch.equal(ours, eager)
