"""Programs whose library calls return otherwise than fake tensors say: results and gradients of eager, or eager itself with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

pytestmark = pytest.mark.judges_itself


def trained(function: Callable[..., Any], parameters: list[Tensor], x: Tensor) -> list[Tensor | None]:
    """Results and gradients of one step."""
    for parameter in parameters:
        parameter.grad = None
    x = x.detach().clone().requires_grad_(x.requires_grad)
    torch.manual_seed(0)
    results = [r for r in torch.utils._pytree.tree_leaves(function(x)) if isinstance(r, Tensor)]
    sum(r.float().pow(2).sum() for r in results if r.requires_grad).backward()  # type: ignore[union-attr]
    return [*(r.detach() for r in results), *(p.grad for p in parameters), x.grad]


def compare(function: Any, x: Tensor, backend: str, reason: str = "") -> None:
    """One training step, compiled and in eager; `reason` is why the graph runs in eager, if it does."""
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    recorder = Recorder()
    expected = trained(function, parameters, x)
    found = trained(compile_recorded(function, recorder, backend=backend, dynamic=False), parameters, x)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours.is_quantized == theirs.is_quantized
    assert recorder.graphs
    if backend == "inductor":  # the other keeps no count
        assert bool(recorder.eager_graphs) == bool(reason)
    assert all(reason in why for why in recorder.eager_graphs)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}, {"proj_size": 2}])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_train(kind: type[nn.Module], options: dict[str, Any], backend: str) -> None:
    if "proj_size" in options and kind is not nn.LSTM:
        pytest.skip("only an LSTM has projections")
    compare(kind(4, 5, **options), torch.randn(3, 2, 4, requires_grad=True), backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_train(mode: str, dtype: torch.dtype, backend: str) -> None:
    def program(table: Tensor) -> Tensor:
        return F.embedding_bag(torch.tensor([0, 1, 2, 1]), table, torch.tensor([0, 2]), mode=mode)

    compare(program, torch.randn(4, 3).to(dtype).requires_grad_(), backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_quantised_tensors_are_left_to_eager(backend: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), x * 2

    recorder = Recorder()
    x = torch.randn(5)
    ours, theirs = compile_recorded(program, recorder, backend=backend, dynamic=False)(x), program(x)
    assert ours[0].is_quantized
    assert torch.equal(ours[0].int_repr(), theirs[0].int_repr())
    assert torch.equal(ours[1], theirs[1])
    assert any("quantize_per_tensor" in found.reason for found in recorder.breaks)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("overlapping", [lambda x: [x, x], lambda x: [x[:3], x[1:]], lambda x: [x, x.t()]])
def test_list_ops_write_one_tensor_after_the_other(overlapping: Callable[[Tensor], list[Tensor]], backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        own = x * 1
        torch._foreach_mul_(overlapping(own), 2.0)
        torch._foreach_add_(overlapping(own), 1.0)
        return own * x

    compare(program, torch.randn(4, 4, requires_grad=True), backend, "memory")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_list_ops_on_parts_that_lie_apart_are_compiled(backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        own = x * 1
        torch._foreach_mul_([own[:2], own[2:]], 2.0)
        return own * x

    compare(program, torch.randn(4, 4, requires_grad=True), backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_bags_whose_indices_and_offsets_are_of_two_types(backend: str) -> None:
    def program(table: Tensor) -> Tensor:
        return F.embedding_bag(torch.tensor([0, 1, 2, 1]), table, torch.tensor([0, 2], dtype=torch.int32), mode="mean")

    compare(program, torch.randn(4, 3).requires_grad_(), backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_sparse_gradient_of_a_result_without_one(backend: str) -> None:
    def program(table: Tensor) -> tuple[Tensor, Tensor]:
        wide = table.double()
        return wide.sum(), F.embedding(torch.tensor([0, 1]), wide, sparse=True)

    table, other = (torch.ones(4, 3).requires_grad_() for _ in range(2))
    recorder = Recorder()
    compile_recorded(program, recorder, backend=backend, dynamic=False)(table)[0].backward()
    program(other)[0].backward()
    assert torch.equal(table.grad, other.grad)
    if backend == "inductor":
        assert recorder.eager_graphs and all("sparse" in why for why in recorder.eager_graphs)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_strides_of_moments_of_no_elements(backend: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return *torch.var_mean(x, 1, keepdim=True), x.var(1, keepdim=True), x.std(1, keepdim=True)

    recorder = Recorder()
    x = torch.empty(3, 2, 0)
    found = compile_recorded(program, recorder, backend=backend, dynamic=False)(x)
    assert [part.stride() for part in found] == [part.stride() for part in program(x)]
    assert recorder.graphs and not recorder.eager_graphs
