"""How many threads a kernel on the CPU is divided among."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from flambeau_runtime import Store, load
from flambeau_runtime import artifact as a

N = 1000
SOURCE = r"""
#include <cstdint>
extern "C" int64_t slices(void* const* b, const int64_t* s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) static_cast<int64_t*>(b[0])[i] = begin;
  return 0;
}
"""


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def slices(store: Store, threads: int | None, executor: str = "native", extent: int = N, grain: int = 10) -> list[int]:
    """The sizes of the slices that the kernel was called with."""
    instructions = [a.Alloc(0, (extent,), (1,), torch.int64), a.Launch(0, (0,), (), extent, grain)]
    nested = a.Program(instructions, 1, 0, [], [a.OutputSpec("tensor", 0)])
    outer = a.Program([a.Subprogram("cond", (nested, nested), (True,), (0,))], 1, 0, [], [a.OutputSpec("tensor", 0)])
    library, kernel = a.Library("slices", "cpp", SOURCE), a.Kernel("slices", 0, "slices", 1)
    runs = [
        load(a.Artifact(p, [library], [kernel]), store=store, executor=executor, threads=threads)()
        for p in (nested, outer)
    ]
    found = [sorted(begins.unique(return_counts=True)[1].tolist()) for (begins,) in runs]
    assert found[0] == found[1]
    return found[0]


def test_by_default_as_many_as_torch_uses(store: Store) -> None:
    assert 1 < len(slices(store, None)) <= 4


@pytest.mark.parametrize("executor", ["native", "python"])
def test_one_thread_runs_the_kernel_in_one_piece(store: Store, executor: str) -> None:
    assert slices(store, 1, executor) == [N]


def test_at_most_so_many_slices(store: Store) -> None:
    """The grain grows to the extent divided by the number, rounded up; torch's own number is a limit still."""
    assert slices(store, 2) == [500, 500]
    assert slices(store, 3) == [332, 334, 334]
    assert len(slices(store, 100)) <= 4
    assert slices(store, 2, grain=N) == [N]


def test_a_number_of_threads_is_positive(store: Store) -> None:
    with pytest.raises(ValueError, match="threads must be at least 1"):
        slices(store, 0)
