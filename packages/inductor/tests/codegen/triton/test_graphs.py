"""Small graphs through lowering, scheduling and Triton, run by the Python executor under the interpreter, equal eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from tracing import lowered, traced

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load
from flambeau_runtime.artifact import Artifact


def compiled(
    function: Callable[..., Any], inputs: list[torch.Tensor], dynamic: bool = False
) -> tuple[Callable[..., Any], Artifact]:
    graph = lowered(traced(function, *inputs, mode="symbolic" if dynamic else "fake"))
    built = compile_loops(graph, CompileContext(Config(cpu_backend="triton")))
    return load(built.artifact, constants=built.constants, executor="python"), built.artifact


def check(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    dynamic: bool = False,
    kernels: bool = True,
    tolerance: float | None = None,
) -> Artifact:
    """Compile, run, compare with eager."""
    run, artifact = compiled(function, list(inputs), dynamic)
    expected = function(*[t.clone() for t in inputs])
    expected = expected if isinstance(expected, tuple) else (expected,)
    given = [t.clone() for t in inputs]
    actual = run(*given)
    for a, e in zip(actual, expected, strict=True):
        extra = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(a, e, equal_nan=True, **extra)
    assert bool(artifact.kernels) == kernels
    return artifact


def gradients(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The function and its gradients with respect to every floating-point input."""

    def both(*inputs: torch.Tensor) -> Any:
        leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in inputs]
        with torch.enable_grad():
            out = function(*leaves)
            grads = torch.autograd.grad(out.sum(), [t for t in leaves if t.is_floating_point()], allow_unused=True)
        return (out.detach(), *[g for g in grads if g is not None])

    return both


def r(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


GRAPHS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "pointwise": (lambda a, b: torch.tanh(a * b) + a.sigmoid(), [r(6, 50), r(50)]),
    "gelu": (lambda a: F.gelu(a), [r(6, 50)]),
    "softmax": (lambda a: a.softmax(-1), [r(4, 3, 33)]),
    "log_softmax": (lambda a: a.log_softmax(-1), [r(5, 40)]),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, [32], w, b), [r(3, 7, 32), r(32), r(32)]),
    "group_norm": (lambda a, w, b: F.silu(F.group_norm(a, 2, w, b)), [r(3, 6, 5, 7), r(6), r(6)]),
    "rms_norm": (lambda a, w: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * w, [r(5, 24), r(24)]),
    "bfloat16": (lambda a, b: F.silu(a) * b + a, [r(5, 24, dtype=torch.bfloat16), r(5, 24, dtype=torch.bfloat16)]),
    "half_softmax": (lambda a: a.softmax(-1), [r(4, 20, dtype=torch.float16)]),
    "cat_split": (lambda a, b: torch.cat([a, b * 2], 1)[:, 3:9].contiguous(), [r(4, 5), r(4, 6)]),
    "pad": (lambda a: F.pad(a, (1, 2, 3, 0), value=0.5) + 1, [r(4, 5)]),
    "transpose": (lambda a: (a.t() + 1).contiguous(), [r(33, 40)]),
    "mean_var": (lambda a: (a.var(1), a.mean(0), a.amax(1), a.argmax(1)), [r(9, 30)]),
    "cumsum": (lambda a: a.cumsum(1), [r(4, 30)]),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, [r(10, 8), torch.tensor([[1, 9], [0, 3]])]),
    "gather": (lambda a, i: a.gather(1, i), [r(4, 9), torch.randint(0, 9, (4, 5))]),
    "index_put": (lambda a, i, v: a.index_put((i,), v, accumulate=True), [r(6, 4), torch.tensor([0, 5, 0]), r(3, 4)]),
    "where_compare": (lambda a, b: torch.where(a > b, a, b.exp()).clamp(-1, 2), [r(40), r(40)]),
    "integers": (
        lambda a, b: ((a // 3) % 7 + (b << 1)) ^ a,
        [torch.randint(-50, 50, (30,)), torch.randint(0, 50, (30,))],
    ),
    "any_all": (lambda a: ((a > 1).any(1), (a > -3).all(1), (a > 0).sum(1)), [r(5, 21)]),
    "full_sum": (lambda a: a.sum(), [r(20, 30)]),
    "broadcast_outer": (lambda a, b: a[:, None] * b[None, :] + 1, [r(20), r(30)]),
    "cross_entropy": (lambda a, t: F.cross_entropy(a, t), [r(6, 20), torch.tensor([3, 0, 19, -100, 7, 7])]),
    "mlp": (lambda x, w, b, v: F.relu(x @ w + b) @ v, [r(5, 8), r(8, 16), r(16), r(16, 4)]),
    "attention": (
        lambda q, k, v: (q @ k.transpose(-1, -2) / 4).softmax(-1) @ v,
        [r(2, 3, 6, 16), r(2, 3, 6, 16), r(2, 3, 6, 16)],
    ),
}


@pytest.mark.parametrize("name", [*GRAPHS])
def test_graph_equals_eager(name: str) -> None:
    """Forward graphs."""
    function, inputs = GRAPHS[name]
    check(function, *inputs)


@pytest.mark.parametrize(
    "name",
    [
        "gelu",
        "softmax",
        "log_softmax",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "embedding",
        "gather",
        "cross_entropy",
        "mlp",
        "attention",
    ],
)
def test_gradients_equal_eager(name: str) -> None:
    """The function together with its backward, traced as one graph."""
    function, inputs = GRAPHS[name]
    check(gradients(function), *inputs, tolerance=2e-5)


@pytest.mark.parametrize("name", ["pointwise", "softmax", "layer_norm", "transpose", "full_sum"])
def test_symbolic_sizes(name: str) -> None:
    """Sizes stay symbols: the same artifact runs for another batch."""
    function, inputs = GRAPHS[name]
    run, artifact = compiled(function, inputs, dynamic=True)
    for t in (inputs, [torch.cat([inputs[0], inputs[0]]), *inputs[1:]]):
        torch.testing.assert_close(run(*t)[0], function(*t))
    assert artifact.kernels


def test_softmax_is_one_kernel() -> None:
    """Fusion reaches the generator: one kernel, persistent."""
    artifact = check(*[GRAPHS["softmax"][0], *GRAPHS["softmax"][1]])
    assert [k.name.startswith("triton_per_fused") for k in artifact.kernels] == [True]
