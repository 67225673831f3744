"""When sizes are numbers and when they are symbols."""

from __future__ import annotations

import torch
from tests.documented.facts import documented
from torch._dynamo.testing import CompileCounter


@documented(
    "by default a size is a number until another one comes: the second compile makes it symbolic, and there is no third"
)
def sizes_that_change() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x: x * 2, backend=counter)
    for size in (3, 4, 5, 6):
        assert double(torch.ones(size)).tolist() == [2] * size
    assert counter.frame_count == 2


@documented("`dynamic=True` compiles once for all sizes, `dynamic=False` once for each")
def dynamic_or_not() -> None:
    for dynamic, compiles in ((True, 1), (False, 3)):
        counter = CompileCounter()
        double = torch.compile(lambda x: x * 2, backend=counter, dynamic=dynamic)
        for size in (3, 4, 5):
            double(torch.ones(size))
        assert counter.frame_count == compiles


@documented("`mark_dynamic` makes a dimension symbolic from the first call on")
def marked_dynamic() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x: x * 2, backend=counter)
    for size in (3, 4, 5):
        x = torch.ones(size, 4)
        torch._dynamo.mark_dynamic(x, 0)
        double(x)
    assert counter.frame_count == 1


@documented("`mark_dynamic` of a dimension that the program makes a number is an error; `maybe_mark_dynamic` is none")
def marked_but_constant() -> None:
    def formula(x):
        return x * 2 if x.shape[0] == 5 else x

    x = torch.ones(5, 4)
    torch._dynamo.mark_dynamic(x, 0)
    try:
        torch.compile(formula, backend="eager")(x)
    except Exception as error:
        assert "dynamic" in str(error)
    else:
        raise AssertionError("no error")
    y = torch.ones(5, 4)
    torch._dynamo.maybe_mark_dynamic(y, 0)
    assert torch.compile(formula, backend="eager")(y).sum() == 40


@documented("`mark_static` keeps a dimension a number under `dynamic=True`")
def marked_static() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x: x * 2, backend=counter, dynamic=True)
    for size in (3, 4, 5):
        x = torch.ones(size)
        torch._dynamo.mark_static(x, 0)
        double(x)
    assert counter.frame_count == 3


@documented("sizes 0 and 1 are always numbers: they are compiled apart from all others")
def zero_and_one() -> None:
    counter = CompileCounter()
    double = torch.compile(lambda x: x * 2, backend=counter, dynamic=True)
    for size, compiles in ((4, 1), (7, 1), (1, 2), (0, 3), (9, 3)):
        double(torch.ones(size))
        assert counter.frame_count == compiles, size
