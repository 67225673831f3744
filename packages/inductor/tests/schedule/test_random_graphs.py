"""Random graphs of pointwise ops, reductions, views and joins: the fused program equals eager, and equals the unfused one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracing import lowered, traced

from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

UNARY: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.tanh,
    torch.sigmoid,
    lambda x: x * 0.5 + 1,
    lambda x: x.abs().sqrt(),
    lambda x: torch.where(x > 0, x, -0.1 * x),
    lambda x: x.clamp(-1, 1),
]
BINARY: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    torch.add,
    torch.mul,
    torch.maximum,
    lambda a, b: a - 0.3 * b,
    lambda a, b: torch.where(a > b, a, b * 0.5),
]
ROWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: torch.softmax(x, -1),
    lambda x: x - x.amax(-1, keepdim=True),
    lambda x: x + x.sum(0),
    lambda x: x.cumsum(-1) * 0.1,
    lambda x: x / (x.var(0, keepdim=True) + 1),
]
SHAPES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.t().contiguous().t() + 1,
    lambda x: x.flip(0),
    lambda x: torch.cat([x[:, 3:], x[:, :3]], 1),
    lambda x: x.reshape(-1).reshape(x.shape[1], x.shape[0]).t(),
    lambda x: torch.nn.functional.pad(x, (1, -1)),
    lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)],
]
STEP = st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 50), st.integers(0, 50))


def _program(steps: list[tuple[int, int, int, int]]) -> Callable[..., tuple[torch.Tensor, ...]]:
    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for family, which, left, right in steps:
            a, b = values[left % len(values)], values[right % len(values)]
            if family == 0:
                values.append(UNARY[which % len(UNARY)](a))
            elif family == 1:
                values.append(BINARY[which % len(BINARY)](a, b))
            elif family == 2:
                values.append(ROWS[which % len(ROWS)](a))
            else:
                values.append(SHAPES[which % len(SHAPES)](a))
        return values[-1], values[len(values) // 2] + 1, values[-1].sum()

    return run


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=3, max_size=9), st.sampled_from([(4, 9), (17, 33), (1, 20), (40, 16)]))
def test_fused_programs_equal_eager(steps: list[tuple[int, int, int, int]], shape: tuple[int, int]) -> None:
    """Fusion, loop changes, memory sharing and C++ change nothing but rounding."""
    torch.manual_seed(len(steps))
    inputs = [torch.randn(shape), torch.randn(shape)]
    function = _program(steps)
    built = compile_loops(lowered(traced(function, *inputs)))
    for got, want in zip(load(built.artifact, constants=built.constants)(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
