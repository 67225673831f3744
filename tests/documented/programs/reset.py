"""Forgetting what was compiled."""

from __future__ import annotations

import torch
from tests.documented.facts import documented
from torch._dynamo.testing import CompileCounter


@documented("`torch.compiler.reset()` drops what was compiled: the next call compiles again")
def compiled_anew() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x: x * 2, backend=counter)
    for _ in range(2):
        double(torch.ones(2))
    assert counter.frame_count == 1
    torch.compiler.reset()
    double(torch.ones(2))
    assert counter.frame_count == 2


@documented("between experiments: after `torch._dynamo.reset()` the same function compiles under other arguments")
def other_arguments() -> None:
    def formula(x):
        return torch.tanh(x)

    first, second = CompileCounter(), CompileCounter()
    torch.compile(formula, backend=first)(torch.ones(2))
    torch._dynamo.reset()
    torch.compile(formula, backend=second, dynamic=True)(torch.ones(2))
    assert (first.frame_count, second.frame_count) == (1, 1)


@documented("a reset also forgets which sizes change")
def sizes_are_numbers_again() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x: x * 2, backend=counter)
    for size in (3, 4, 5):
        double(torch.ones(size))
    assert counter.frame_count == 2
    torch._dynamo.reset()
    for size in (6, 7):
        double(torch.ones(size))
    assert counter.frame_count == 4
