"""The model of products: which tiles fit, what is aligned, which sizes the library is slow for."""

from __future__ import annotations

import pytest
import torch
from attrs import evolve

from flambeau_inductor.autotune.tiles import (
    Problem,
    candidates,
    finished_seconds,
    followed_seconds,
    library_seconds,
    seconds,
)
from flambeau_inductor.codegen.triton.templates.gemm import resident, shared_bytes
from flambeau_inductor.devices import H200
from flambeau_inductor.ir.layout import Ref


def problem(m, n, k, dtype=torch.bfloat16, *, transposed=True, row=None, batch=1):
    """A linear layer: (m, k) times a weight of (n, k), or of (k, n) where it is not ``transposed``."""
    device, row = torch.device("cuda"), row or k
    left = Ref("x", (batch, m, k), (m * row, row, 1), 0, dtype, device)
    right = Ref("w", (batch, k, n), (n * k, 1, k) if transposed else (n * k, n, 1), 0, dtype, device)
    return Problem(left, right, n)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(1, 4096, 4096), (16, 64, 48), (4096, 50257, 768), (100, 100, 17)])
def test_tiles_fit_the_device_and_come_by_time(sizes, dtype):
    given = problem(*sizes, dtype)
    found = candidates(given, H200)
    assert found
    assert all(shared_bytes(tile, dtype) <= H200.shared for tile in found if tile.rows >= 16)
    times = [seconds(given, tile, H200) for tile in found]
    assert times == sorted(times)
    assert all(tile.rows < 2 * max(sizes[0], 16) for tile in found)


def test_programs_run_beside_each_other_where_fewer_stages_let_them():
    """And results of 16 bits, which take less room on their way to memory, leave room for one more stage."""
    found = candidates(problem(4096, 4096, 4096), H200)
    stages = {
        tile.num_stages: resident(tile, torch.bfloat16, H200)
        for tile in found
        if (tile.rows, tile.columns, tile.num_warps) == (128, 128, 4)
    }
    assert stages == {4: 1, 3: 2}
    deepest = [
        max(
            tile.num_stages
            for tile in candidates(evolve(problem(4096, 4096, 4096), stored=size), H200)
            if tile.columns == 256 and tile.rows == 128
        )
        for size in (4, 2)
    ]
    assert deepest == [3, 4]


@pytest.mark.parametrize(
    ("given", "aligned"),
    [
        (problem(4096, 4096, 4096), True),
        (problem(4096, 50257, 768), False),
        (problem(4096, 768, 50257, transposed=False), False),
        (problem(4096, 768, 50257, transposed=False, row=50264), False),
        (problem(4096, 768, 4096, transposed=False, row=4104), True),
        (problem(64, 64, 64, torch.float32, row=65), False),
    ],
)
def test_what_the_library_has_fast_kernels_for(given, aligned):
    assert given.is_aligned is aligned


def test_the_model_prefers_the_library_where_it_is_fast():
    for sizes in ((4096, 4096, 4096), (512, 4096, 4096), (2048, 3072, 768)):
        given = problem(*sizes)
        assert library_seconds(given, H200) < 1.1 * seconds(given, candidates(given, H200)[0], H200)


@pytest.mark.parametrize(("dtype", "part"), [(torch.bfloat16, 0.2), (torch.float32, 0.7)])
def test_the_model_knows_where_it_is_slow(dtype, part):
    # Measured on an H200 (1,024 rows): 0.14 of 0.85 ms for 16 bits, 0.44 of 0.63 ms for TF32, whose operands are rounded first.
    given = problem(4096, 50257, 768, dtype)
    assert seconds(given, candidates(given, H200)[0], H200) < part * library_seconds(given, H200)


@pytest.mark.parametrize(
    ("sizes", "work", "read", "ours", "theirs"),
    [
        ((4096, 4096, 4096), 14, 0, 189, 198),
        ((16384, 4096, 4096), 5, 2, 728, 789),
        ((1024, 14336, 4096), 14, 0, 170, 176),
        ((2048, 5120, 5120), 5, 2, 154, 158),
        ((2048, 4096, 2048), 14, 0, 55, 60),
        ((4096, 3072, 768), 23, 0, 46, 47),
        ((12608, 3072, 768), 5, 2, 115, 147),
        ((1536, 4096, 4096), 14, 0, 80, 80),
        ((5000, 4096, 4096), 23, 0, 238, 234),
    ],
)
def test_what_a_large_product_takes_with_what_follows_it(sizes, work, read, ours, theirs):
    # Measured on an H200 (us, bfloat16): SiLU, GELU or a residual behind it.
    given = problem(*sizes)
    tiles = candidates(evolve(given, stored=2), H200)
    assert min(finished_seconds(given, tile, work, read, H200) for tile in tiles) == pytest.approx(
        ours * 1e-6, rel=0.07
    )
    assert followed_seconds(given, read, H200) == pytest.approx(theirs * 1e-6, rel=0.07)


def test_rounding_takes_half_of_the_speed():
    # Measured on an H200: 0.71 ms, the library 0.34.
    given = problem(4096, 4096, 4096, torch.float32)
    assert 1.9 < seconds(given, candidates(given, H200)[0], H200) / library_seconds(given, H200) < 2.4


def test_float32_across_the_terms_is_slow():
    along, across = (problem(4096, 768, 4096, torch.float32, transposed=flag) for flag in (True, False))
    tile = candidates(along, H200)[0]
    assert seconds(across, tile, H200) > 2 * seconds(along, tile, H200)


def test_few_rows_read_the_right_operand_alone():
    found = candidates(problem(1, 4096, 4096), H200)
    assert found[0].rows == 1 and {tile.rows for tile in found} == {1, 16}
    # Where rows of the right operand run along the columns, units for matrices do it.
    assert {tile.rows for tile in candidates(problem(1, 4096, 4096, transposed=False), H200)} == {16}


def test_float32_that_must_not_be_rounded_is_multiplied_without_units_for_matrices():
    given = problem(2, 4096, 4096, torch.float32)
    assert {tile.rows for tile in candidates(given, H200, exact=True)} == {2}
    assert candidates(problem(16, 4096, 4096, torch.float32), H200, exact=True) == []


@pytest.mark.parametrize(
    ("sizes", "parts"), [((768, 768, 65536), True), ((4096, 4096, 4096), False), ((64, 64, 50), False)]
)
def test_terms_come_in_parts_where_results_are_few(sizes, parts):
    given = problem(*sizes, transposed=False)
    found = candidates(given, H200)
    assert (found[0].parts > 1) is parts
    assert all(sizes[2] % tile.parts == 0 and sizes[2] // tile.parts * 2 % 16 == 0 for tile in found if tile.parts > 1)


def test_batches_are_not_cut():
    assert all(tile.parts == 1 for tile in candidates(problem(64, 64, 8192, batch=2), H200))


def test_tiles_on_different_multiprocessors_do_not_share_one():
    """Where there are fewer tiles than multiprocessors, those of which two would fit on one take no longer for that."""
    given = problem(256, 4096, 4096)
    (tile,) = (tile for tile in candidates(given, H200) if (tile.rows, tile.columns, tile.parts) == (64, 128, 1))
    assert resident(tile, torch.bfloat16, H200) == 2
    assert seconds(given, tile, H200) < 1.05 * seconds(problem(64, 4096, 4096), tile, H200)
