"""What is not compiled."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.documented.facts import documented
from tests.scripts import run
from torch._dynamo.testing import CompileCounter


@documented(
    "a function under `torch.compiler.disable`, and what it calls, runs as it is; the graph ends before it and goes on behind it"
)
def disabled_function() -> None:
    counter = CompileCounter()
    compiling = []

    def inner(x):
        compiling.append(torch.compiler.is_compiling())
        return x + 1

    @torch.compiler.disable
    def outer(x):
        return inner(x + 2)

    @torch.compile(backend=counter)
    def step(x):
        return outer(x * 2) + 4

    assert step(torch.ones(2)).tolist() == [9, 9]
    assert compiling == [False] and counter.frame_count == 2
    step(torch.ones(2))
    assert compiling == [False, False] and counter.frame_count == 2


@documented("with `recursive=False` what the disabled function calls is compiled")
def not_recursive() -> None:
    counter = CompileCounter()

    def inner(x):
        return (x + 1).sin()

    @torch.compiler.disable(recursive=False)
    def outer(x):
        return inner(x)

    @torch.compile(backend=counter)
    def step(x):
        return outer(x)

    assert torch.equal(step(torch.ones(2)), inner(torch.ones(2)))
    assert counter.frame_count == 1 and counter.op_count == 2


@documented("`disable=True` makes the compile call do nothing", judges_itself="nothing is compiled")
def compile_that_is_off() -> None:
    counter = CompileCounter()

    @torch.compile(backend=counter, disable=True)
    def asked(x):
        return x + 1 if torch.compiler.is_compiling() else x - 1

    assert asked(torch.zeros(2)).tolist() == [-1, -1] and counter.frame_count == 0


@documented("the `reason` of `torch.compiler.disable` is told where the graph breaks")
def told_reason() -> None:
    @torch.compiler.disable(reason="talks to a server")
    def asks(x):
        return x + 1

    found = torch._dynamo.explain(lambda x: asks(x * 2) + 1)(torch.ones(2))
    assert "talks to a server" in str(found.break_reasons[0].reason)


@documented(
    "`TORCH_COMPILE_DISABLE=1` in the environment turns every compile call off", judges_itself="nothing is compiled"
)
def switched_off_in_the_environment(folder: Path) -> None:
    script = """
import torch

@torch.compile
def asked(x):
    return x + 1 if torch.compiler.is_compiling() else x - 1

print(asked(torch.zeros(1)).item())
"""
    assert run(script, folder, TORCH_COMPILE_DISABLE="1").output.split() == ["-1.0"]
