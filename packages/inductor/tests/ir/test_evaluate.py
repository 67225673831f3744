"""The interpreter of the loop IR: what it checks where a condition holds, and where it does not."""

from __future__ import annotations

import pytest
import torch

from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.evaluate import _write, run_graph
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.ir.loops import Pointwise, make_axes
from flambeau_inductor.ir.scalar import Scalar

CPU = torch.device("cpu")


@pytest.mark.parametrize("under", ["the condition", "none", "both"])
def test_positions_under_a_condition(under: str) -> None:
    """Only what stands under the condition alone may lie anywhere."""
    size = (Int(3),)
    axes = make_axes(size)
    given = Buffer("given", Layout.contiguous(size, torch.float32, CPU))
    rows = Buffer("rows", Layout.contiguous(size, torch.int64, CPU))
    out = Buffer("out", Layout.contiguous(size, torch.float32, CPU))
    position = sc.indirect(sc.load("rows", axes[0].symbol, torch.int64), Int(3), wrap=False)
    read, zero = sc.load("given", position, torch.float32), sc.constant(0, torch.float32)
    condition = sc.op("lt", sc.index_value(axes[0].symbol), sc.constant(1, torch.int64))
    values: dict[str, Scalar] = {
        "the condition": sc.masked(condition, read, zero),
        "none": sc.masked(condition, zero, read),
        "both": sc.masked(condition, sc.op("neg", read), read),
    }
    buffers = {buffer.name: buffer for buffer in (given, rows, out)}
    graph = Graph(
        (TensorInput(given), TensorInput(rows)), (), (Pointwise(out, axes, values[under]),), (Ref.whole(out),), buffers
    )
    tensors = [torch.ones(3), torch.tensor([0, 1, 9])]
    if under == "the condition":
        assert run_graph(graph, tensors)[0].tolist() == [1, 0, 0]
        return
    with pytest.raises(Exception, match="out of range"):
        run_graph(graph, tensors)


def test_a_result_that_is_an_input_is_that_very_tensor() -> None:
    """As the executor gives it: who counts its holders sees the same. A part of it is another tensor."""
    given = Buffer("given", Layout.contiguous((Int(3),), torch.float32, CPU))
    whole = Ref.whole(given)
    part = Ref("given", (Int(2),), whole.strides, whole.offset, torch.float32, CPU)
    tensor = torch.ones(3)
    same, view = run_graph(Graph((TensorInput(given),), (), (), (whole, part), {"given": given}), [tensor])
    assert same is tensor
    assert view.shape == (2,)


@pytest.mark.parametrize(("mode", "wanted"), [
    ("set", [7, 4, 2]), ("add", [14, 5, 2]), ("mul", [42, 4, 2]), ("min", [1, 1, 2]), ("max", [7, 4, 2]),
])  # fmt: skip
def test_writes_that_meet(mode: str, wanted: list[int]) -> None:
    """Two at the first place, one at the second, none at the third; the later of two wins where one is set."""
    memory = torch.tensor([1.0, 1.0, 2.0])
    _write(memory, torch.tensor([0, 1, 0]), torch.tensor([6.0, 4.0, 7.0]), mode)
    assert memory.tolist() == wanted
