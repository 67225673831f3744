"""A hundred thousand calls leave nothing behind: no references, no memory."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import torch

from flambeau_runtime import artifact as a
from flambeau_runtime import load


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def grown(call: Any, times: int) -> int:
    """How much the process grew over ``times`` calls, after as many warm-up calls as fill the allocator's caches."""
    for _ in range(2000):
        call()
    gc.collect()
    before = resident_bytes()
    for _ in range(times):
        call()
    gc.collect()
    return resident_bytes() - before


def test_calls_do_not_grow_the_process(artifact, store) -> None:
    run = load(artifact, store=store)
    x = torch.randn(64, 4)
    references = sys.getrefcount(x), sys.getrefcount(run)
    assert grown(lambda: run(x, 64), 100_000) < 2 << 20
    assert (sys.getrefcount(x), sys.getrefcount(run)) == references


def test_failures_do_not_grow_the_process(make, tensor_input) -> None:
    run = make([a.Alloc(2, (3,), (1,), torch.float32), a.Launch(1, (0, 1, 2), (5,), 3, 64)],
               [tensor_input(0, (5,)), tensor_input(1, (3,), torch.int64)], [a.OutputSpec("tensor", 2)])  # fmt: skip
    x, index = torch.randn(5), torch.tensor([0, 9, 1])
    references = sys.getrefcount(x), sys.getrefcount(index)

    def fail() -> None:
        for value in (index, x):
            try:
                run(x, value)
            except (IndexError, TypeError):
                continue
            raise AssertionError

    assert grown(fail, 10_000) < 2 << 20
    assert (sys.getrefcount(x), sys.getrefcount(index)) == references


def test_calls_python_and_subprograms_do_not_leak(make, tensor_input) -> None:
    inner = a.Program([a.Call("aten::neg", "", (a.Reg(0),), {}, (1,))], 2, 0, [a.InputSpec("tensor", 0)],
                      [a.OutputSpec("tensor", 1)])  # fmt: skip
    run = make(
        [
            a.Call("aten::cat", "", ((a.Reg(0), a.Reg(0)),), {}, (1,)),
            a.Python("hook", (a.Reg(1), (a.Reg(0), 1)), (2,)),
            a.Subprogram("cond", (inner, inner), (True, a.Reg(2)), (3,)),
            a.Free((1,)),
        ],
        [tensor_input(0, (4,))],
        [a.OutputSpec("tensor", 3), a.OutputSpec("input", 0)],
        python_functions={"hook": lambda x, items: x + items[1]},
    )
    x = torch.randn(4)
    references = sys.getrefcount(x)
    assert grown(lambda: run(x), 10_000) < 2 << 20
    assert sys.getrefcount(x) == references
    assert torch.equal(run(x)[0], -(torch.cat([x, x]) + 1))


def test_executors_do_not_leak(artifact, store) -> None:
    x = torch.randn(2, 4)
    assert grown(lambda: load(artifact, store=store)(x, 2), 300) < 4 << 20
