"""Programs on NumPy's arrays through the whole compiler: results, classes, views and what is written outside.

In: programs with arrays among arguments, results, constants. Out: the same as in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import flambeau

_TABLE = np.linspace(0, 1, 4).astype(np.float32)


def _features(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    d = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
    return np.exp(-d / 2), d.T, d.mean(), np.where(d > 1, d, -1).argmax(axis=1), (d > 0.5).any()


def _written(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    row = a[0]
    row += 1
    a[1:] *= 2
    return row, a, a.sum(axis=0) + b[0]


def _tables(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    angles = np.arange(a.shape[1]) / np.power(100.0, np.arange(a.shape[1]) / a.shape[1])
    return (
        torch.from_numpy(_TABLE) * 2 + torch.tensor(np.sin(angles), dtype=torch.float32),
        np.sqrt(a.shape[1]),
        a.dtype,
    )


def _promoted(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    n = (a * 10).astype(np.int32)
    return (
        n + 1,
        n * 1.5,
        n + b,
        n / 2,
        n % 3,
        a.astype("f4") * np.float32(0.1),
        np.stack([a, b[: len(a)]]).astype(np.float16),
    )


@pytest.mark.parametrize("program", [_features, _written, _tables, _promoted], ids=lambda program: program.__name__)
def test_arrays(program: Callable[..., tuple[Any, ...]]) -> None:
    compiled = flambeau.compile(program, fullgraph=True)
    for rows in (3, 3, 5):
        rng = np.random.default_rng(rows)
        a, b = rng.random((rows, 4)), rng.random((rows, 4))
        ours, theirs = (a.copy(), b.copy()), (a.copy(), b.copy())
        found, expected = compiled(*ours), program(*theirs)
        for mine, other in zip((*found, *ours), (*expected, *theirs), strict=True):
            assert type(mine) is type(other)
            if isinstance(other, np.ndarray | np.generic):
                assert (mine.dtype, mine.shape, mine.strides) == (other.dtype, other.shape, other.strides)
                np.testing.assert_allclose(mine, other, rtol=1e-3 if other.dtype.itemsize < 8 else 1e-9)
            elif isinstance(other, Tensor):
                torch.testing.assert_close(mine, other)
            else:
                assert mine == other
        if program is _written:
            assert np.shares_memory(found[0], ours[0])
            assert found[1] is ours[0]


def test_functions_of_arrays_made_functions_of_tensors() -> None:
    """Ours and torch's."""

    def raw(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total: np.ndarray = np.sum(a[:, None] * b[None], axis=1)
        return total

    x, y = torch.randn(3), torch.randn(3)
    for wrap in (flambeau.compiler.wrap_numpy, torch.compiler.wrap_numpy):
        function: Callable[..., Tensor] = wrap(raw)
        torch.testing.assert_close(flambeau.compile(function, fullgraph=True)(x, y), function(x, y))


def test_gradients_pass_by_what_is_logged() -> None:
    """The array has no history, the tensor beside it has."""
    layer = torch.nn.Linear(3, 2)

    def run(x: Tensor) -> tuple[Tensor, np.ndarray]:
        out = layer(x)
        return out, out.detach().cpu().numpy()

    out, told = flambeau.compile(run, fullgraph=True)(torch.ones(4, 3))
    out.sum().backward()
    assert type(told) is np.ndarray
    np.testing.assert_allclose(told, out.detach().numpy())
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [4, 4]
