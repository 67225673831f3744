"""Control flow operators over sequences: `scan` and `associative_scan`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan

from ..registry import Made, program

SECTION = "control flow operators"


@program(SECTION)
def scan_of_a_running_sum() -> Made:
    def f(xs: Tensor) -> tuple[Tensor, Tensor]:
        return scan(lambda c, x: (c + x, (c + x).clone()), torch.zeros(3), xs)

    return f, [(torch.randn(5, 3),), (torch.randn(7, 3),)]


@program(SECTION)
def scan_of_an_rnn() -> Made:
    class Rnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wx, self.wh = nn.Linear(3, 4), nn.Linear(4, 4)

        def forward(self, xs: Tensor) -> Tensor:
            def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                new = torch.tanh(self.wx(x) + self.wh(h))
                return new, new.clone()

            return scan(step, torch.zeros(xs.shape[1], 4), xs)[1]

    return Rnn(), [(torch.randn(5, 2, 3),)]


@program(SECTION)
def scan_with_gradients() -> Made:
    def f(init: Tensor, xs: Tensor) -> Tensor:
        last, outs = scan(lambda c, x: (c * x, (c + x).sin()), init, xs)
        return last.sum() + outs.sum()

    return f, [(torch.rand(3, requires_grad=True), torch.rand(4, 3, requires_grad=True))]


@program(SECTION)
def scan_in_reverse() -> Made:
    def f(rewards: Tensor) -> Tensor:
        def step(c: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
            value = r + 0.9 * c
            return value, value.clone()

        return scan(step, torch.zeros(2), rewards, reverse=True)[1]

    return f, [(torch.rand(6, 2),)]


@program(SECTION)
def scan_along_another_dimension() -> Made:
    def f(xs: Tensor) -> tuple[Tensor, Tensor]:
        return scan(lambda c, x: (torch.maximum(c, x), c - x), torch.zeros(4), xs, dim=1)

    return f, [(torch.randn(4, 6),)]


@program(SECTION)
def scan_with_pytree_state() -> Made:
    def f(xs: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        def step(state: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            mean = state["mean"] + (x - state["mean"]) / (state["n"] + 1)
            return {"n": state["n"] + 1, "mean": mean}, mean * 1.0

        return scan(step, {"n": torch.zeros(()), "mean": torch.zeros(2)}, xs)

    return f, [(torch.randn(4, 2),)]


@program(SECTION)
def scan_over_several_inputs() -> Made:
    def f(xs: Tensor, gates: Tensor) -> Tensor:
        def step(h: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            x, g = inputs
            new = g * h + (1 - g) * x
            return new, new.clone()

        return scan(step, torch.zeros(3), (xs, gates.sigmoid()))[1]

    return f, [(torch.randn(5, 3), torch.randn(5, 3))]


@program(SECTION)
def scan_of_an_lstm_cell() -> Made:
    cell = nn.LSTMCell(3, 4)

    def f(xs: Tensor) -> Tensor:
        def step(state: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = cell(x, state)
            return (h, c), h.clone()

        return scan(step, (torch.zeros(2, 4), torch.zeros(2, 4)), xs)[1]

    return f, [(torch.randn(4, 2, 3),)], cell


@program(SECTION)
def associative_scan_as_cumsum() -> Made:
    def f(xs: Tensor) -> Tensor:
        return associative_scan(lambda a, b: a + b, xs, 0, combine_mode="generic")

    return f, [(torch.randn(5, 3),), (torch.randn(8, 3),)]


@program(SECTION)
def associative_scan_of_a_linear_recurrence() -> Made:
    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    def f(decay: Tensor, x: Tensor) -> Tensor:
        return associative_scan(combine, (decay, x), dim=0, combine_mode="generic")[1]

    return f, [(torch.rand(6, 2), torch.randn(6, 2))]


@program(SECTION)
def associative_scan_reversed_along_time() -> Made:
    def f(xs: Tensor) -> Tensor:
        return associative_scan(torch.maximum, xs, 1, reverse=True, combine_mode="generic")

    return f, [(torch.randn(3, 6),)]


@program(SECTION)
def associative_scan_with_gradients() -> Made:
    def f(xs: Tensor) -> Tensor:
        return associative_scan(lambda a, b: a * b, xs, 0, combine_mode="generic")

    return f, [(torch.rand(4, 2, requires_grad=True),)]


@program(SECTION)
def associative_scan_over_a_dict() -> Made:
    def combine(a: dict[str, Tensor], b: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": a["sum"] + b["sum"], "max": torch.maximum(a["max"], b["max"])}

    def f(x: Tensor) -> dict[str, Tensor]:
        return associative_scan(combine, {"sum": x, "max": x * 2}, 0, combine_mode="generic")

    return f, [(torch.randn(4, 3),)]


@program(SECTION)
def scan_followed_by_cond() -> Made:
    def f(xs: Tensor) -> Tensor:
        last, outs = scan(lambda c, x: (c + x, c * x), torch.zeros(2), xs)
        return torch.cond(last.sum() > 0, lambda o: o.sum(0), lambda o: o.mean(0), (outs,))

    return f, [(torch.rand(4, 2),), (-torch.rand(4, 2),)]
