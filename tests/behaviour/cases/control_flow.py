"""Loops, branches, match, try/with, and what happens where a graph breaks inside of them."""

# ruff: noqa: B018, F821 (the odd ways of writing are what is tested)

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .table import case


@case()
def match_statement(x: Tensor) -> Any:
    out = []
    for item in ([1, 2], {"k": 3}, "text", (4,), 5, None):
        match item:
            case [a, b]:
                out.append(x * a + b)
            case {"k": value}:
                out.append(x + value)
            case str() as text if len(text) > 3:
                out.append(x - len(text))
            case (single,):
                out.append(x * single)
            case 5 | 6:
                out.append(x / 5)
            case _:
                out.append(-x)
    return out


@case()
def loop_else_continue_break(x: Tensor) -> Any:
    for i in range(5):
        if i == 1:
            continue
        if i == 3:
            break
        x = x + i
    else:
        x = x * 100
    while x.dim() < 4:
        x = x[None]
    else:
        x = x * 2
    return x


@case()
def try_finally_return(x: Tensor) -> Any:
    log = []

    def run(fail: bool) -> Any:
        try:
            if fail:
                raise KeyError("k")
            return x + 1
        except KeyError as error:
            return x - len(error.args)
        finally:
            log.append(fail)

    return run(True), run(False), log


@case(graphs=1, breaks=("data-dependent-branch",))
def branch_on_data_then_return(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 0:
        return y
    return -y


@case(graphs=2, breaks=("data-dependent-branch",))
def branch_on_data_then_go_on(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y.relu()


@case(graphs=1, breaks=("data-dependent-value",))
def item_in_the_middle(x: Tensor) -> Any:
    total = (x * 2).sum().item()
    return x + total, round(total, 3)


@case(graphs=2, breaks=("input-output",))
def break_in_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
        print("inside")
        z = y + 1
        flag = torch.is_grad_enabled()
    return z, flag, torch.is_grad_enabled()


@case(graphs=2, breaks=("input-output",))
def break_in_try(x: Tensor) -> Any:
    try:
        y = x * 2
        print("inside")
        raise ValueError("after")
    except ValueError as error:
        return y + 1, str(error)


@case(graphs=2, breaks=("input-output",))
def break_in_own_context(x: Tensor) -> Any:
    with contextlib.suppress(KeyError):
        x = x + 1
        print("inside")
        x = x * 3
        raise KeyError
    return x


def _layer(x: Tensor) -> Tensor:
    return (x * 2).relu()


@case(graphs=3, breaks=("input-output",))
def break_in_a_loop(x: Tensor) -> Tensor:
    for i in range(3):
        x = _layer(x) + i
        print("round", i)
        x = x - 1
    return x.sin()


@case(graphs=2, breaks=("data-dependent-branch",))
def while_on_data(x: Tensor) -> Tensor:
    x = x.abs()
    while x.sum() < 100:
        x = _layer(x)
    return x + 1


@case(graphs=None, breaks=("input-output",))
def break_in_a_comprehension(x: Tensor) -> Any:
    y = x + 1
    made = [_shown(y, i) for i in range(2)]
    return made[0] + made[1]


def _shown(x: Tensor, i: int) -> Tensor:
    y = x * i
    print("shown")
    return y


@case(graphs=2, breaks=("input-output",))
def break_with_values_on_the_stack(x: Tensor) -> Any:
    return [x + 1, x * 2, print("here"), {"k": x - 1}], (x, (x, 3))


@case(graphs=2, breaks=("input-output",))
def break_with_a_closure_alive(x: Tensor) -> Any:
    count = 1

    def more(y: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return y * count

    y = more(x)
    print("here")
    return more(y), count


@case(graphs=None, breaks=("input-output", "unsupported-operation"))
def break_with_iterators_alive(x: Tensor) -> Any:
    numbers = iter([1, 2, 3])
    first = next(numbers)
    pairs = zip([x, x + 1], range(2))
    y = x * first
    print("here")
    return y, list(numbers), [a * b for a, b in pairs]


@case(graphs=0, breaks=("uncaught-exception",))
def assertion_fails(x: Tensor) -> Any:
    assert x.shape[0] == 100, f"rows: {x.shape[0]}"
    return x


@case(graphs=1, breaks=("operator-error",))
def operator_error_is_eager_s(x: Tensor) -> Any:
    y = x + 1
    return y @ y


@case(factory=True, graphs=1)
def global_written() -> Callable[[Tensor], Any]:
    namespace: dict[str, Any] = {"count": 0}
    exec("def run(x):\n    global count\n    count += 1\n    return x + count", namespace)
    run: Callable[[Tensor], Any] = namespace["run"]
    return run


@case()
def asks_whether_it_is_compiled(x: Tensor) -> Any:
    return x + (0 if torch.jit.is_scripting() else 1)


@case()
def conditional_expression_on_none(x: Tensor, y: Any = None) -> Any:
    y = x if y is None else y
    return y + (1 if y is not None and y.requires_grad else 2)


@case(graphs=1)
def del_and_redefine(x: Tensor) -> Any:
    y = x + 1
    del y
    try:
        y
    except UnboundLocalError:
        y = x + 2
    return y


@case(graphs=2, breaks=("input-output",))
def break_in_autocast(x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        print("inside")
        z = x @ x.T
    return y.dtype, z.dtype, x @ x.T, torch.is_autocast_enabled("cpu")


@case(graphs=2, breaks=("input-output",))
def break_in_nested_autocast_and_no_grad(x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            y = x @ x.T
            print("inside")
            z = y @ y
        w = x @ x.T
    return y, z, w, torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()


@case(graphs=2, breaks=("input-output",), factory=True)
def break_in_an_autocast_from_outside() -> Callable[[Tensor], Any]:
    context = torch.autocast("cpu", dtype=torch.bfloat16)

    def run(x: Tensor) -> Any:
        with context:
            y = x @ x.T
            print("inside")
            z = x @ x.T
        with context:
            w = y @ y.T
        return z, w, x @ x.T, torch.is_autocast_enabled("cpu")

    return run


@case(graphs=2, breaks=("input-output",))
def exception_leaves_an_autocast_after_a_break(x: Tensor) -> Any:
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
            print("inside")
            raise KeyError
    except KeyError:
        pass
    return y, x @ x.T


@case(graphs=2, breaks=("input-output",))
def break_in_a_profiler_range(x: Tensor) -> Any:
    with torch.autograd.profiler.record_function("range"):
        y = x + 1
        print("inside")
        return y * 2


@case(graphs=None, breaks=("input-output", "unsupported-operation"))
def list_grows_while_its_iterator_lives(x: Tensor) -> Any:
    items = [x, x + 1]
    rest = iter(items)
    next(rest)
    print("here")
    items.append(x + 5)
    return [item * 1 for item in rest]


@case(graphs=2, arguments=lambda: (torch.arange(6.0), torch.tensor([1, 9])))
def handler_catches_what_a_graph_raises(x: Tensor, index: Tensor) -> Any:
    caught = 0

    def pick(v: Tensor) -> Tensor:
        nonlocal caught
        try:
            return v.take(index) * 2
        except (IndexError, RuntimeError):
            caught += 1
            return v[:2]

    return pick(x + 1), caught


@case(graphs=1, arguments=lambda: (torch.arange(6.0), torch.tensor([1, 9]), []))
def finally_runs_when_a_graph_raises(x: Tensor, index: Tensor, seen: list[int]) -> Any:
    try:
        return x.take(index)
    finally:
        seen.append(1)
