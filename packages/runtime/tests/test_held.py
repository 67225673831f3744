"""Results of library calls in the layout that was predicted: kept, copied or refused, the same on both executors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flambeau_runtime import PredictionError, load
from flambeau_runtime import artifact as a

F32 = torch.float32


def program(call: a.Call, *steps: Any, inputs: Any = (), outputs: Any = (a.OutputSpec("tensor", 1),)) -> a.Artifact:
    return a.Artifact(a.Program([call, *steps], 4, 4, inputs, outputs))


def result_of(op: str, overload: str = "", *args: Any) -> a.Call:
    return a.Call(f"aten::{op}", overload, (a.Reg(0), *args), {}, (1,))


def any_tensor(dtype: torch.dtype | None = None) -> a.InputSpec:
    return a.InputSpec("tensor", 0, dtype)


def test_a_result_as_predicted_is_not_touched(executor: str) -> None:
    """The strides of dimensions of size one do not matter, nor do any of an empty tensor."""
    for sizes, strides, x in [
        ((2, 3), (3, 1), torch.randn(2, 3)),
        ((2, 3), (1, 2), torch.randn(3, 2).t()),
        ((2, 1), (1, 7), torch.randn(2, 1)),
        ((0, 3), (5, 5), torch.randn(0, 3)),
        ((), (), torch.tensor(1.5)),
        ((2, 3), (1, 0), torch.randn(2, 1).expand(2, 3)),
    ]:
        made = program(result_of("alias"), a.Hold(1, sizes, strides, F32, "cpu", "aten::alias"), inputs=[any_tensor()])
        (got,) = load(made, executor=executor)(x)
        assert got.data_ptr() == x.data_ptr() and got.stride() == x.stride()


def test_other_strides_become_a_copy_that_kernels_can_index(make, executor: str) -> None:
    """The library answers transposed; the kernel reads six floats in a row."""
    run = make(
        [
            a.Call("aten::t", "", (a.Reg(0),), {}, (1,)),
            a.Hold(1, (2, 3), (3, 1), F32, "cpu", "aten::t"),
            a.Alloc(2, (2, 3), (3, 1), F32),
            a.Launch(0, (1, 2), (2.0, 1.0), 6, 64),
        ],
        [any_tensor()],
        [a.OutputSpec("tensor", 1), a.OutputSpec("tensor", 2)],
        executor=executor,
    )
    x = torch.randn(3, 2)
    held, computed = run(x)
    assert held.stride() == (3, 1) and torch.equal(held, x.t()) and torch.equal(computed, x.t() * 2 + 1)


def test_a_copy_may_leave_gaps(executor: str) -> None:
    """Predicted strides need not be dense."""
    made = program(result_of("alias"), a.Hold(1, (2, 3), (4, 1), F32, "cpu", "aten::alias"), inputs=[any_tensor()])
    x = torch.randn(2, 3)
    (got,) = load(made, executor=executor)(x)
    assert got.stride() == (4, 1) and torch.equal(got, x)


def test_strides_that_share_memory_cannot_be_filled(executor: str) -> None:
    """Predicted as expanded, answered as several values: an error, no overwriting."""
    made = program(result_of("alias"), a.Hold(1, (2, 3), (0, 1), F32, "cpu", "aten::alias"), inputs=[any_tensor()])
    with pytest.raises(RuntimeError, match="single memory location"):
        load(made, executor=executor)(torch.randn(2, 3))


def test_symbolic_sizes_and_strides(executor: str) -> None:
    rows, columns = a.Scalar(0), a.Scalar(1)
    made = program(
        result_of("t"),
        a.Hold(1, (columns, rows), (rows, 1), F32, "cpu", "aten::t"),
        inputs=[any_tensor(), a.InputSpec("scalar", 0), a.InputSpec("scalar", 1)],
    )
    run = load(made, executor=executor)
    for shape in ((3, 2), (1, 4), (4, 1), (0, 5)):
        x = torch.randn(shape)
        (got,) = run(x, *shape)
        assert torch.equal(got, x.t()) and (got.is_contiguous() or x.numel() == 0)
    with pytest.raises(
        RuntimeError, match=r"aten::t returned float32 \[2, 3\] .* where float32 \[4, 3\] strides \[3, 1\]"
    ):
        run(torch.randn(3, 2), 3, 4)


@pytest.mark.parametrize("op", ["_conj", "_neg_view"])
def test_lazy_results_are_made_real(op: str, executor: str) -> None:
    """Memory that does not hold the values is nothing for a kernel to read."""
    dtype = torch.complex64 if op == "_conj" else F32
    hold = a.Hold(1, (3,), (1,), dtype, "cpu", f"aten::{op}")
    x = torch.randn(3, dtype=dtype)
    (got,) = load(program(result_of(op), hold, inputs=[any_tensor()]), executor=executor)(x)
    assert not got.is_conj() and not got.is_neg() and torch.equal(got, x.conj() if op == "_conj" else -x)


_BACKWARD = (a.Reg(0), a.Reg(0), (3,), a.Reg(2), a.Reg(2), None, None, (True, False, False))
REFUSED = {
    "size": (result_of("alias"), (4, 3), "float32 [2, 3] strides [3, 1] on cpu"),
    "rank": (result_of("sum", "dim_IntList", (0,)), (2, 3), "float32 [3] strides [1] on cpu"),
    "dtype": (result_of("gt", "Scalar", 0), (2, 3), "bool [2, 3] strides [3, 1] on cpu"),
    "device": (
        a.Call("aten::empty_like", "", (a.Reg(0),), {"device": torch.device("meta")}, (1,)),
        (2, 3),
        "float32 [2, 3] strides [3, 1] on meta",
    ),
    "layout": (result_of("to_sparse"), (2, 3), "no strided tensor"),
    "nothing": (
        a.Call("aten::native_layer_norm_backward", "", _BACKWARD, {}, (None, None, 1)),
        (2, 3),
        "no strided tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_an_error_that_names_both_layouts(name: str, executor: str) -> None:
    call, sizes, found = REFUSED[name]
    ones = a.Call("aten::ones", "", ((2, 1),), {}, (2,))
    hold = a.Hold(1, sizes, (3, 1), F32, "cpu", call.op)
    run = load(program(ones, call, hold, inputs=[any_tensor()]), executor=executor)
    with pytest.raises(PredictionError) as caught:
        run(torch.randn(2, 3))
    predicted = f"float32 {list(sizes)} strides [3, 1] on cpu"
    assert caught.value.message == f"{call.op} returned {found} where {predicted} was predicted"
    assert caught.value.operator == call.op and isinstance(caught.value, RuntimeError)
    assert caught.value.__notes__ == [f"while running instruction 2: hold t1 {predicted} from {call.op}"]


def test_one_element_on_the_cpu_stands_for_one_on_a_gpu(executor: str) -> None:
    """Library calls leave random seeds there; a tensor with a dimension is an error."""
    seed = a.Hold(1, (), (), torch.int64, "cuda", "aten::alias")
    (got,) = load(program(result_of("alias"), seed, inputs=[any_tensor()]), executor=executor)(torch.tensor(5))
    assert got.item() == 5
    vector = a.Hold(1, (1,), (1,), torch.int64, "cuda:1", "aten::alias")
    run = load(program(result_of("alias"), vector, inputs=[any_tensor()]), executor=executor)
    with pytest.raises(RuntimeError, match=r"int64 \[1\] strides \[1\] on cpu where int64 \[1\] strides \[1\] on cuda"):
        run(torch.tensor([5]))


def test_a_held_input_leaves_the_callers_tensor_alone(executor: str) -> None:
    """The register gets the copy; the tensor that was handed in keeps its layout."""
    made = program(result_of("alias"), a.Hold(0, (2, 3), (3, 1), F32), inputs=[any_tensor()],
                   outputs=[a.OutputSpec("tensor", 0)])  # fmt: skip
    x = torch.randn(3, 2).t()
    (got,) = load(made, executor=executor)(x)
    assert x.stride() == (1, 2) and got.stride() == (3, 1) and torch.equal(got, x)
