"""Large blocks: reused by the next call, bounded, given back."""

from __future__ import annotations

import threading

import pytest
import torch

from flambeau_runtime import artifact as a
from flambeau_runtime.memory import idle_memory_bytes, release_idle_memory, set_idle_memory_limit

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    release_idle_memory()
    yield
    set_idle_memory_limit(256 * MIB)
    release_idle_memory()


@pytest.fixture
def allocate(make):
    """``allocate(mib)`` -> a callable that returns a tensor of that many MiB."""

    def build(mib: int):
        n = mib * MIB // 4
        run = make([a.Alloc(1, (n,), (1,), torch.float32)], [], [a.OutputSpec("tensor", 1)])
        return lambda: run()[0]

    return build


def test_a_block_is_used_again(allocate) -> None:
    run = allocate(2)
    first = run()
    address = first.data_ptr()
    del first
    assert idle_memory_bytes() == 2 * MIB
    second, third = run(), run()
    assert second.data_ptr() == address != third.data_ptr()
    assert idle_memory_bytes() == 0 and release_idle_memory() == 0


def test_small_blocks_are_torchs(allocate, make) -> None:
    make([a.Alloc(1, (1000,), (1,), torch.float32)], [], [])()
    assert idle_memory_bytes() == 0


def test_idle_bytes_are_bounded(allocate) -> None:
    run = allocate(2)
    set_idle_memory_limit(5 * MIB)
    held = [run() for _ in range(5)]
    del held
    assert idle_memory_bytes() == 4 * MIB
    set_idle_memory_limit(0)
    assert idle_memory_bytes() == 0
    with pytest.raises(OverflowError):
        set_idle_memory_limit(-1)


def test_a_block_that_nobody_wants_goes_back(allocate) -> None:
    allocate(4)()
    assert idle_memory_bytes() == 4 * MIB
    other = allocate(1)
    for _ in range(100):
        other()
    assert idle_memory_bytes() == 1 * MIB


def test_blocks_survive_resizing_and_outlive_the_executor(allocate) -> None:
    tensor = allocate(2)()
    tensor.fill_(3.0)
    tensor.resize_(MIB)
    assert tensor[: MIB // 2].eq(3).all()
    del tensor
    assert idle_memory_bytes() == 2 * MIB


def test_threads_get_blocks_of_their_own(allocate) -> None:
    run, wrong = allocate(1), []

    def work(value: float) -> None:
        for _ in range(100):
            tensor = run().fill_(value)
            if not tensor.eq(value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
