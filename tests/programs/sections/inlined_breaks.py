"""Something that no graph holds, inside of calls, blocks and loops: how many graphs are left."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "breaks inside inlined calls"


@program(SECTION)
def print_at_the_end() -> Made:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        print("done")
        return y

    return f, [(torch.randn(3),), (torch.randn(3),)]


@program(SECTION)
def print_in_the_middle() -> Made:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        print("shape", tuple(y.shape))
        return y.cos()

    return f, [(torch.randn(3),)]


@program(SECTION)
def print_of_a_tensor() -> Made:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        print("y =", y)
        return y + 1

    return f, [(torch.arange(3.0),)]


@program(SECTION)
def print_in_a_callee() -> Made:
    def helper(x: Tensor) -> Tensor:
        y = x.sin()
        print("in the helper")
        return y.cos()

    return lambda x: helper(x * 2) + 1, [(torch.randn(3),)]


@program(SECTION)
def print_three_calls_deep() -> Made:
    def a(x: Tensor) -> Tensor:
        return b(x + 1) * 2

    def b(x: Tensor) -> Tensor:
        return c(x.sin()).cos()

    def c(x: Tensor) -> Tensor:
        y = x * 3
        print("deep")
        return y - 1

    return lambda x: a(x).sum(), [(torch.randn(3),)]


@program(SECTION)
def print_in_a_submodule() -> Made:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            print("noisy")
            return x.relu()

    return nn.Sequential(nn.Linear(3, 3), Noisy(), nn.Linear(3, 2)), [(torch.randn(2, 3),)]


@program(SECTION)
def print_in_every_layer() -> Made:
    class Layer(nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.linear, self.number = nn.Linear(3, 3), number

        def forward(self, x: Tensor) -> Tensor:
            print("layer", self.number)
            return torch.tanh(self.linear(x))

    return nn.Sequential(*(Layer(i) for i in range(3))), [(torch.randn(2, 3),)]


@program(SECTION)
def print_in_a_for_loop() -> Made:
    def f(x: Tensor) -> Tensor:
        for i in range(3):
            x = x + i
            print("round", i)
        return x * 2

    return f, [(torch.randn(3),)]


@program(SECTION)
def print_in_a_loop_of_a_callee() -> Made:
    def helper(xs: list[Tensor]) -> Tensor:
        total = torch.zeros(3)
        for x in xs:
            total = total + x.sin()
            print("one more")
        return total

    return lambda xs: helper(xs) * 2, [([torch.randn(3), torch.randn(3)],)]


@program(SECTION)
def print_in_a_while_loop() -> Made:
    def f(x: Tensor, n: int) -> Tensor:
        while n > 0:
            x = x * 1.5
            print("left", n)
            n -= 1
        return x + 1

    return f, [(torch.randn(3), 2)]


@program(SECTION)
def print_in_no_grad() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x.sin()
            print("inside")
            z = y.cos()
        return z * x

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def print_in_a_callee_in_autocast() -> Made:
    layer = nn.Linear(3, 3)

    def helper(x: Tensor) -> Tensor:
        y = layer(x)
        print("low precision")
        return layer(y)

    def f(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return helper(x) * 2

    return f, [(torch.randn(2, 3),)]


@program(SECTION)
def print_in_try_and_finally() -> Made:
    def f(x: Tensor, log: list[str]) -> Tensor:
        try:
            y = x.sin()
            print("trying")
            return y.cos()
        finally:
            log.append("finished")

    return f, [(torch.randn(3), [])]


@program(SECTION)
def print_in_an_except_handler() -> Made:
    def f(x: Tensor, table: dict[str, int]) -> Tensor:
        try:
            k = table["missing"]
        except KeyError as error:
            print("no key", error)
            k = 1
        return x * k + 1

    return f, [(torch.randn(3), {"a": 2})]


@program(SECTION)
def print_in_a_list_comprehension() -> Made:
    def noisy(x: Tensor) -> Tensor:
        print("element")
        return x.sin()

    return lambda xs: sum([noisy(x) for x in xs]), [([torch.randn(3), torch.randn(3)],)]


@program(SECTION)
def print_in_a_generator() -> Made:
    def parts(x: Tensor) -> Iterator[Tensor]:
        for i in range(3):
            print("part", i)
            yield x * i

    return lambda x: torch.stack(list(parts(x))).sum(0), [(torch.randn(3),)]


@program(SECTION)
def print_in_a_context_manager() -> Made:
    @contextlib.contextmanager
    def announced(name: str) -> Iterator[None]:
        print("enter", name)
        yield
        print("leave", name)

    def f(x: Tensor) -> Tensor:
        with announced("block"):
            y = x.sin()
        return y.cos()

    return f, [(torch.randn(3),)]


@program(SECTION)
def print_in_a_branch() -> Made:
    def helper(x: Tensor, verbose: bool) -> Tensor:
        if verbose:
            print("mean", round(float(x.mean()), 3))
        return x - 1

    return lambda x, v: helper(x * 2, v) + 1, [(torch.ones(3), False), (torch.ones(3), True)]


@program(SECTION)
def print_in_a_forward_hook() -> Made:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, out: print("hook", tuple(out.shape)))
    return model, [(torch.randn(2, 3),)]


@program(SECTION)
def print_under_a_decorator() -> Made:
    def logged(function):
        def wrapper(*args: Tensor) -> Tensor:
            print("calling", function.__name__)
            out = function(*args)
            print("called", function.__name__)
            return out

        return wrapper

    @logged
    def scaled(x: Tensor) -> Tensor:
        return x.sin() * 2

    return lambda x: scaled(x) + scaled(x + 1), [(torch.randn(3),)]


@program(SECTION)
def print_guarded_by_is_compiling() -> Made:
    def f(x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            x.sum()
        return x.sin()

    return f, [(torch.randn(3),)]


@program(SECTION)
def logging_of_a_step() -> Made:
    logger = logging.getLogger("flambeau.programs")

    def f(x: Tensor, step: int) -> Tensor:
        y = x * 2
        logger.debug("step %d", step)
        return y + step

    return f, [(torch.randn(3), 1), (torch.randn(3), 2)]


@program(SECTION)
def warning_in_a_callee() -> Made:
    def checked(x: Tensor) -> Tensor:
        if x.shape[0] > 2:
            warnings.warn("long input", stacklevel=2)
        return x * 2

    return lambda x: checked(x + 1).sum(), [(torch.randn(3),)]


@program(SECTION)
def timing_of_a_block() -> Made:
    def f(x: Tensor, times: list[bool]) -> Tensor:
        start = time.perf_counter()
        y = (x @ x).relu()
        times.append(time.perf_counter() >= start)
        return y + 1

    return f, [(torch.randn(3, 3), [])]


@program(SECTION)
def disabled_function_in_the_middle() -> Made:
    @torch.compiler.disable
    def untouched(x: Tensor) -> Tensor:
        return x.flip(0)

    def helper(x: Tensor) -> Tensor:
        return untouched(x.sin()) * 2

    return lambda x: helper(x) + 1, [(torch.randn(3),)]


@program(SECTION)
def item_in_a_callee_under_with() -> Made:
    def scale_of(x: Tensor) -> float:
        return x.abs().max().item() or 1.0

    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x / scale_of(x)
        return y * 127

    return f, [(torch.randn(4),)]


@program(SECTION)
def file_read_in_a_callee() -> Made:
    def setting() -> int:
        with open("/proc/self/stat") as lines:
            return int(bool(lines.read()))

    def helper(x: Tensor) -> Tensor:
        return x.sin() * (setting() + 1)

    return lambda x: helper(x + 1).cos(), [(torch.randn(3),)]
