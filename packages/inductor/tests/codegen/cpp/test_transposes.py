"""The tiled mode: blocks turned in registers, with tails in both directions, for every element size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from tracing import lowered, traced

from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

SIZES = (1, 3, 15, 16, 17, 31, 33, 100)
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.int64,
)  # fmt: skip


def made(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor whose elements differ."""
    values = (torch.arange(torch.Size(shape).numel()) * 37 % 251).view(shape)
    return values % 2 == 0 if dtype is torch.bool else values.to(dtype)


def compiled(f: Callable[..., Any], *args: Tensor, mode: str = "fake") -> Callable[..., tuple[Tensor, ...]]:
    """The program for such arguments, which must have a kernel in the tiled mode."""
    built = compile_loops(lowered(traced(f, *args, mode=mode)))
    assert any(kernel.meta["mode"] == "tile" for kernel in built.artifact.kernels)
    return load(built.artifact, constants=built.constants)


def equal(f: Callable[..., Any], *args: Tensor) -> None:
    """The compiled function gives what eager gives, element by element."""
    want = f(*args)
    torch.testing.assert_close(compiled(f, *args)(*args), want if isinstance(want, tuple) else (want,), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transposed_copies_of_every_dtype(dtype: torch.dtype) -> None:
    """Loads along the rows of a tile, in whole blocks and tails of all sorts."""
    equal(
        lambda *tensors: tuple(x.t().contiguous() for x in tensors),
        *(made((m, n), dtype) for m in SIZES for n in SIZES),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_a_matrix_and_its_transpose(dtype: torch.dtype) -> None:
    """A load along the lanes beside one along the rows."""
    equal(
        lambda *tensors: tuple(x ^ x.t() if dtype is torch.int64 else x + x.t() for x in tensors),
        *(made((n, n), dtype) for n in SIZES),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64], ids=str)
def test_two_results_of_different_layout(dtype: torch.dtype) -> None:
    """One of them is stored along the rows of the tile."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y.t()
        return total, total.t().contiguous()

    for m, n in ((33, 100), (100, 17), (64, 64), (130, 70)):
        equal(function, made((m, n), dtype), made((n, m), dtype))


def test_lanes_of_eight_bytes_beside_elements_of_fewer() -> None:
    """A block has as many rows as there are lanes, whatever an element takes."""
    equal(lambda x, y: (x.t().double() + y).contiguous(), made((33, 47), torch.int8), made((47, 33), torch.float64))
    equal(lambda x, y: (x.t().long() + y).contiguous(), made((33, 47), torch.float16), made((47, 33), torch.int64))


def test_batches_strides_and_broadcasts() -> None:
    """Outer axes, rows that do not lie side by side, and operands without one of the two axes."""
    equal(lambda x: (x.transpose(1, 2) * 2).contiguous(), made((3, 40, 21), torch.float32))
    equal(lambda x: x.permute(2, 1, 0).contiguous(), made((20, 35, 24), torch.float32))
    equal(lambda x, b: (x[:, 3:90].t() + b).contiguous(), made((70, 100), torch.float32), made((70,), torch.float32))
    equal(lambda x: x.to(memory_format=torch.channels_last), made((2, 19, 9, 11), torch.float32))


def test_a_transposed_part_under_a_condition() -> None:
    """What is read under a condition is read a lane at a time: outside it there is no memory."""
    equal(lambda x, y: torch.cat([x.t(), y], 1), made((33, 40), torch.float32), made((40, 20), torch.float32))
    equal(lambda x: torch.nn.functional.pad(x.t(), (3, 5, 1, 2)), made((33, 40), torch.float32))


def test_sizes_that_change() -> None:
    """The same kernel for several sizes, some of them smaller than a block."""

    def function(x: Tensor) -> Tensor:
        return (x.t() * 2).contiguous()

    run = compiled(function, made((64, 100), torch.float32), mode="symbolic")
    for m, n in ((64, 100), (100, 64), (17, 9), (5, 200), (16, 16)):
        x = made((m, n), torch.float32)
        assert torch.equal(run(x)[0], function(x))
