"""NumPy in a compiled program: functions of constants and sizes, arrays as arguments and results, methods, dtypes, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "NumPy"


@program(SECTION)
def numpy_of_constants() -> Made:
    return lambda x: x * np.sqrt(2.0) + np.pi + np.log(3), [(torch.randn(3),)]


@program(SECTION)
def numpy_of_a_size() -> Made:
    return lambda x: x / np.sqrt(x.shape[-1]), [(torch.randn(2, 4),), (torch.randn(2, 9),), (torch.randn(2, 16),)]


@program(SECTION)
def numpy_prod_of_a_shape() -> Made:
    return lambda x: x.reshape(int(np.prod(x.shape))) + 1, [(torch.randn(2, 3),), (torch.randn(4, 3),)]


@program(SECTION)
def numpy_array_as_an_argument() -> Made:
    return lambda a: np.sin(a) + a * 2, [(np.arange(4.0),), (np.ones(4),)]


@program(SECTION)
def numpy_array_and_tensor() -> Made:
    def f(x: Tensor, a: np.ndarray) -> Tensor:
        return x + torch.from_numpy(a * 2)

    return f, [(torch.randn(3, dtype=torch.float64), np.arange(3.0))]


@program(SECTION)
def tensor_to_numpy_and_back() -> Made:
    def f(x: Tensor) -> Tensor:
        a = x.numpy()
        return torch.as_tensor(np.maximum(a, 0).sum(axis=0)) * 2

    return f, [(torch.randn(3, 4),)]


@program(SECTION)
def tensor_to_numpy_as_a_result() -> Made:
    return lambda x: (x * 2).sum(0).numpy(), [(torch.randn(3, 2),)]


@program(SECTION)
def detached_numpy_for_logging() -> Made:
    layer = nn.Linear(3, 2)

    def f(x: Tensor) -> tuple[Tensor, np.ndarray]:
        out = layer(x)
        return out, out.detach().cpu().numpy()

    return f, [(torch.randn(4, 3),)], layer


@program(SECTION)
def numpy_methods() -> Made:
    def f(a: np.ndarray) -> tuple[np.ndarray, Any]:
        b = a.reshape(2, -1).T.copy()
        return b.astype(np.float32).clip(0, 3), b.mean()

    return f, [(np.arange(6.0),)]


@program(SECTION)
def numpy_dtype_promotion() -> Made:
    def f(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return a + 1, a * 1.5, a + b, a / 2

    return f, [(np.arange(3, dtype=np.int32), np.ones(3, dtype=np.float32))]


@program(SECTION)
def numpy_constant_table() -> Made:
    table = np.linspace(0, 1, 5).astype(np.float32)
    return lambda x: x * torch.from_numpy(table), [(torch.randn(5),)]


@program(SECTION)
def numpy_angles_from_sizes() -> Made:
    def f(x: Tensor) -> Tensor:
        angles = np.arange(x.shape[1]) / np.power(100.0, np.arange(x.shape[1]) / x.shape[1])
        return x + torch.tensor(np.sin(angles), dtype=torch.float32)

    return f, [(torch.randn(2, 4),), (torch.randn(2, 6),)]


@program(SECTION)
def numpy_scalar_argument() -> Made:
    return lambda x, s: x * s, [(torch.ones(3), np.float32(2.5)), (torch.ones(3), np.float32(1.5))]


@program(SECTION)
def numpy_integer_index() -> Made:
    return lambda x, i: x[i] + 1, [(torch.randn(4), np.int64(2)), (torch.randn(4), np.int64(0))]


@program(SECTION)
def numpy_random_from_the_seed() -> Made:
    return lambda x: x + torch.from_numpy(np.random.rand(3)), [(torch.zeros(3, dtype=torch.float64),)] * 2


@program(SECTION)
def numpy_generator() -> Made:
    rng = np.random.default_rng(0)
    return lambda x: x * float(rng.uniform(0.5, 1.5)), [(torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def numpy_random_choice_of_a_layer() -> Made:
    layers = [nn.Linear(3, 3), nn.Identity()]

    def f(x: Tensor) -> Tensor:
        return layers[np.random.randint(2)](x) * 2

    return f, [(torch.randn(2, 3),), (torch.randn(2, 3),)]


@program(SECTION)
def numpy_linalg() -> Made:
    return lambda a: np.linalg.norm(a @ a.T, axis=1), [(np.arange(6.0).reshape(2, 3),)]


@program(SECTION)
def numpy_where_and_masks() -> Made:
    def f(a: np.ndarray) -> np.ndarray:
        return np.where(a > 1, a, -a) + (a > 2)

    return f, [(np.arange(4.0),)]


@program(SECTION)
def numpy_written_in_place() -> Made:
    def f(a: np.ndarray) -> np.ndarray:
        a[0] = 5
        a += 1
        return a * 2

    return f, [(np.zeros(3),)]


@program(SECTION)
def numpy_einsum_and_stack() -> Made:
    def f(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.stack([np.einsum("ij,jk->ik", a, b), a @ b]).sum(0)

    return f, [(np.eye(2), np.arange(4.0).reshape(2, 2))]


@program(SECTION)
def numpy_vectorized_kernel() -> Made:
    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        d = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)
        return np.exp(-d / 2)

    return f, [(np.random.rand(3, 2), np.random.rand(4, 2)), (np.random.rand(5, 2), np.random.rand(4, 2))]


@program(SECTION)
def numpy_interpolation_of_a_schedule() -> Made:
    def f(x: Tensor, step: int) -> Tensor:
        return x * float(np.interp(step, [0, 10, 20], [0.0, 1.0, 0.1]))

    return f, [(torch.ones(3), 5), (torch.ones(3), 15)]


@program(SECTION)
def numpy_isscalar_and_isnan() -> Made:
    def f(x: Tensor, k: float) -> Tensor:
        return x * k if np.isscalar(k) and not np.isnan(k) else x

    return f, [(torch.ones(3), 2.0), (torch.ones(3), float("nan"))]


@program(SECTION)
def numpy_function_wrapped_by_torch() -> Made:
    def raw(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sum(a[:, None] * b[None], axis=1)

    @torch.compiler.wrap_numpy
    def f(x: Tensor, y: Tensor) -> Tensor:
        return raw(x, y)

    return f, [(torch.randn(3, requires_grad=False), torch.randn(3))]
