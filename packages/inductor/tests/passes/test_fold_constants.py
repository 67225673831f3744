"""A graph in two: what follows from frozen inputs, and the rest; together they give what the graph gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tracing import traced, traced_on_cuda

import flambeau_runtime
from flambeau_inductor import compile_frozen
from flambeau_inductor.passes.fold_constants import Folded, fold
from flambeau_inductor.rewrite.constants import freeze
from flambeau_runtime import linear, processor

aten = torch.ops.aten
W, V, X = torch.randn(6, 4), torch.randn(4), torch.randn(3, 4)


def folded(function: Callable[..., Any], *inputs: torch.Tensor, frozen: tuple[int, ...] = (0, 1)) -> Folded | None:
    """Of a graph of `W`, `V` and `X`, or of others."""
    gm = traced(function, *(inputs or (W, V, X)))
    freeze(gm, frozen)
    return fold(gm)


def both(parts: Folded, *inputs: torch.Tensor) -> Any:
    """Folding, then the program."""
    values = parts.folding(*[inputs[place] for place in parts.watched])
    return parts.main(*[inputs[place] for place in parts.kept], *values)


CUT = {
    "a value": (lambda w, v, x: x @ w.exp().t(), (0,), (1, 2), 1),
    "of two, one kept": (lambda w, v, x: (x @ (w * v).t()) * v.sum() + v[0], (0, 1), (1, 2), 2),
    "what nothing frozen is in": (lambda w, v, x: (x + torch.arange(4)) @ (w + torch.arange(4)).t(), (0,), (1, 2), 1),
    "a view behind it": (lambda w, v, x: x @ w.exp().t()[:, 1:], (0,), (1, 2), 1),
    "what a result is, and its value": (lambda w, v, x: (w.exp(), w.exp().sin() + x[0, 0]), (0,), (0, 1, 2), 1),
}


@pytest.mark.parametrize("name", CUT)
def test_what_is_folded(name: str) -> None:
    function, watched, kept, values = CUT[name]
    parts = folded(function)
    assert parts is not None
    assert set(parts.watched) == set(watched) and set(parts.kept) <= set(kept)
    assert len(parts.folding.graph.output_node().args[0]) == values
    torch.testing.assert_close(both(parts, W, V, X), function(W, V, X))


LEFT = {
    "results are the caller's": lambda w, v, x: (w.exp(), (w + 1).view(4, 6), x * 2),
    "views": lambda w, v, x: x @ w.t(),
    "random numbers": lambda w, v, x: x + torch.rand_like(v),
    "much larger than what it is made of": lambda w, v, x: x.sum() + (v[0].expand(1024, 1024) + 1),
    "what is not frozen": lambda w, v, x: x.exp() + 1,
    "nothing": lambda w, v, x: x + torch.arange(4),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_each_call(name: str) -> None:
    assert folded(LEFT[name]) is None


def test_unfrozen_inputs_are_kept_though_unused() -> None:
    """The caller gives them by place."""
    parts = folded(lambda w, v, x: w.exp() * v.exp(), frozen=(0,))
    assert parts is not None and parts.kept == (1, 2)


@pytest.mark.parametrize(
    ("executor", "maker", "product"),
    [
        ("native", "GenuineIntel", "mkl::_mkl_linear"),
        ("python", "AuthenticAMD", "mkldnn::_linear_pointwise"),
        ("native", "HygonGenuine", "flambeau::packed_linear"),
    ],
)
def test_compiled_programs_pass_packed_weights(
    executor: str, maker: str, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of products and convolutions: opaque tensors go from one program to the other, and those that our kernel reads."""
    monkeypatch.setattr(linear, "has_kernel", lambda: maker == "HygonGenuine")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(processor, "maker", lambda: maker)
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx512f"}))
    image = torch.randn(2, 32, 32, 32).to(memory_format=torch.channels_last)
    kernel, bias = torch.randn(48, 32, 3, 3), torch.randn(48)
    matrix, rows = torch.randn(512, 512), torch.randn(16, 512)

    def function(kernel: Any, bias: Any, matrix: Any, image: Any, rows: Any) -> Any:
        h = aten.convolution(image, kernel, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return h * bias.view(48, 1, 1).exp() - 1, rows @ matrix

    given = [kernel, bias, matrix, image, rows]
    gm = traced(function, *given)
    made = compile_frozen(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")], (0, 1, 2))
    assert made.folding is not None
    text = made.program.text()
    assert "mkldnn::_convolution_pointwise" in text and product in text and "call mkl::_mkl_reorder" not in text
    folding, program = (flambeau_runtime.load(part, executor=executor) for part in (made.folding, made.program))
    values = folding(*[given[place] for place in made.watched])
    got = program(*[given[place] for place in made.kept], *values)
    torch.testing.assert_close(list(got), list(function(*given)), rtol=1e-3, atol=1e-3)
    again = flambeau_runtime.Artifact.from_bytes(made.folding.to_bytes())
    assert again.digest == made.folding.digest


def test_nothing_to_fold_is_one_program() -> None:
    """It takes all inputs."""
    gm = traced(lambda w, x: x + w, W, W)
    made = compile_frozen(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")], (0,))
    assert (made.folding, made.watched, made.kept) == (None, (), ())


def test_a_gpu_program_with_a_batch_norm() -> None:
    """Its folding is library calls, and no kernel of the program scales by channel."""
    shapes = [(8, 4, 3, 3), (8,), (8,), (8,), (8,), (2, 4, 16, 16)]

    def function(w: Any, scale: Any, shift: Any, mean: Any, variance: Any, x: Any) -> Any:
        y = torch.nn.functional.conv2d(x, w, padding=1)
        return torch.nn.functional.batch_norm(y, mean, variance, scale, shift).relu()

    gm = traced_on_cuda(function, *(torch.randn(shape) for shape in shapes))
    inputs = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    made = compile_frozen(gm, inputs, tuple(range(5)))
    assert made.folding is not None and not made.folding.kernels
    (kernel,) = [k for k in made.program.kernels if "relu" in str(k.meta)]
    assert "sqrt" not in str(kernel.meta) and "mul" not in kernel.name
