"""What calls of compiled functions do, changed while the program runs."""

from __future__ import annotations

import torch
from tests.documented.facts import documented
from torch._dynamo.testing import CompileCounter


def told(x):
    return x + 1 if torch.compiler.is_compiling() else x - 1


@documented("`force_eager`, as a decorator, in a `with` block and as a plain call, ignores what was compiled")
def three_ways() -> None:
    compiled = torch.compile(told, backend="eager")
    zeros = torch.zeros(2)
    assert compiled(zeros).tolist() == [1, 1]

    @torch.compiler.set_stance("force_eager")
    def outside(x):
        return compiled(x)

    assert outside(zeros).tolist() == [-1, -1]
    assert compiled(zeros).tolist() == [1, 1]
    with torch.compiler.set_stance("force_eager"):
        assert compiled(zeros).tolist() == [-1, -1]
    torch.compiler.set_stance("force_eager")
    assert compiled(zeros).tolist() == [-1, -1]
    torch.compiler.set_stance("default")
    assert compiled(zeros).tolist() == [1, 1]


@documented("`eager_on_recompile` uses what is compiled, and runs in eager what would have to be compiled")
def eager_for_what_is_new() -> None:
    compiled = torch.compile(told, backend="eager")
    compiled(torch.zeros(2))
    with torch.compiler.set_stance("eager_on_recompile"):
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
        assert compiled(torch.zeros(3)).tolist() == [-1, -1, -1]


@documented("`fail_on_recompile` raises for what would have to be compiled")
def error_for_what_is_new() -> None:
    compiled = torch.compile(told, backend="eager")
    compiled(torch.zeros(2))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
        try:
            compiled(torch.zeros(3))
        except RuntimeError as error:
            assert "compile" in str(error)
        else:
            raise AssertionError("no error")


@documented("`eager_then_compile`: the first call runs in eager, and the second knows which sizes change")
def eager_first() -> None:
    counter = CompileCounter()
    compiled = torch.compile(told, backend=counter)
    with torch.compiler.set_stance("eager_then_compile"):
        assert compiled(torch.zeros(2)).tolist() == [-1, -1] and counter.frame_count == 0
        for size in (3, 4, 5):
            assert compiled(torch.zeros(size)).tolist() == [1] * size
    assert counter.frame_count == 1


@documented("`force_backend` compiles with another backend than the one of the compile call")
def another_backend() -> None:
    given, forced = CompileCounter(), CompileCounter()
    compiled = torch.compile(told, backend=given)
    with torch.compiler.set_stance("default", force_backend=forced):
        compiled(torch.zeros(2))
    assert (given.frame_count, forced.frame_count) == (0, 1)
