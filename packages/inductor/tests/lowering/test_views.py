"""Views become index maps, and windows where memory is there already."""

import pytest
import torch

from flambeau_inductor.context import CompileContext
from flambeau_inductor.errors import UnsupportedGraphError
from flambeau_inductor.expr import ONE, ZERO, Int, Symbol, SymbolTable, as_expr, substitute
from flambeau_inductor.ir.layout import Layout, Ref
from flambeau_inductor.ir.loops import Pointwise
from flambeau_inductor.lowering.builder import Builder
from flambeau_inductor.lowering.values import TensorValue
from flambeau_inductor.lowering.views import reshaped

from .conftest import lower_and_run

X = torch.arange(2 * 6 * 4, dtype=torch.float32).reshape(2, 6, 4)

VIEWS = {
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "view": lambda x: x.view(4, 3, 4),
    "merge": lambda x: x.view(-1),
    "split_dim": lambda x: x.view(2, 2, 3, 2, 2),
    "expand": lambda x: x[:, :1].expand(2, 6, 4),
    "slice": lambda x: x[:, 1:5:2],
    "negative_slice": lambda x: x[:, -3:-1],
    "select": lambda x: x[1, -2],
    "unsqueeze": lambda x: x.unsqueeze(1).squeeze(1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "split": lambda x: x.split([1, 2, 3], 1)[2],
    "chunk": lambda x: x.chunk(3, 1)[1],
    "unbind": lambda x: x.unbind(1)[4],
    "split_of_permuted": lambda x: x.permute(2, 0, 1).view(2, 2, 2, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (4, 1), 5),
}
COPIES = {
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "roll_flat": lambda x: x.roll(5),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "reshape_copy": lambda x: x.transpose(0, 1).reshape(12, 4),
    "pad": lambda x: torch.constant_pad_nd(x, (1, 2, -1, 0), 7.0),
    "cat": lambda x: torch.cat([x, x[:, :2], x + 1], 1),
    "stack": lambda x: torch.stack([x, x * 2], 1),
    "tril": lambda x: x.tril(-1) + x.triu(1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_an_input_needs_no_operation(check, name):
    """An output that is a view stays a view: same strides, no copy."""
    lowered = check(VIEWS[name], X)
    assert not lowered.graph.operations
    assert all(isinstance(out, Ref) and out.buffer == "x_1" for out in lowered.graph.outputs)


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_views_inside_loops(check, name):
    """A view of a lazy value is one loop over the right elements."""
    view = {**VIEWS, **COPIES}[name]
    if name == "as_strided":
        check(lambda x: view(x) * 2, X)
    else:
        check(lambda x: view(x + 1) * 2, X)


def test_a_chain_of_views_is_one_loop(check):
    """Nothing between is stored."""
    lowered = check(lambda x: (x * 2).permute(2, 1, 0).reshape(4, 12).flip(1)[1:3].relu(), X)
    assert [type(o) for o in lowered.graph.operations] == [Pointwise]


def test_library_calls_take_windows(check):
    """A transposed operand is handed over as it lies."""
    lowered = check(lambda a, b: a @ b.t(), torch.randn(3, 4), torch.randn(5, 4), library=["mm.default"])
    assert len(lowered.graph.operations) == 1


def test_dimensions_of_one_have_the_strides_that_eager_gives_them():
    """Between dimensions that lie apart in memory and whose sizes nothing is known about: a library call sees them."""
    n = Symbol("n", 0, 9)
    base = Ref("x", (n, Int(3)), (ONE, n), ZERO, torch.float32, torch.device("cpu"))
    view = reshaped(TensorValue.of_ref(base), (ONE, n, ONE, Int(3), ONE)).known_ref()
    eager = torch.empty_strided((5, 3), (1, 5)).unsqueeze(1).unsqueeze(0).unsqueeze(-1)
    assert [int(substitute(stride, {n: 5})) for stride in view.strides] == list(eager.stride())


def test_channels_last_results_keep_their_layout(check):
    """The strides of eager's result are the strides of ours."""
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: (x + 1, (x * 2).contiguous(), x.relu().clone()), x)


def test_views_of_complex_tensors_are_windows(check):
    """No kernel can hold them, and none is needed: the product is the only call, and nothing is copied."""
    rows, columns = torch.randn(3, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64)
    check(lambda a, b: a.unsqueeze(1) * b.expand(2, 4)[1:].mT.permute(1, 0), rows, columns, library=["mul.Tensor"])
    check(lambda a: torch.ops.aten._unsafe_view(a.expand(2, 3), [2, 1, 3]) + 1, rows, library=["add.Tensor"])


def test_a_copy_with_repeated_elements_holds_each_once():
    """Strides of zero are kept, and no element is written twice."""
    builder = Builder(CompileContext(), SymbolTable())
    source = builder.new_buffer(Layout.contiguous((4, 3), torch.complex64, torch.device("cpu")))
    found = builder.copy(TensorValue.of_ref(Ref.whole(source)), (ZERO, ONE))
    assert (found.sizes, found.strides) == ((as_expr(4), as_expr(3)), (ZERO, ONE))
    made = builder.buffers[builder.buffers[found.buffer].storage].layout
    assert made.sizes == (ONE, as_expr(3))


def test_results_are_not_planned_in_shared_memory():
    """A call that answers in other strides than its fake could not be copied there."""
    builder = Builder(CompileContext(), SymbolTable())
    planned = builder._out_buffer(torch.empty(3, dtype=torch.complex64).expand(4, 3))
    assert planned.layout.strides == (as_expr(3), ONE)


def test_strides_of_what_loops_lay_otherwise():
    """All of it is copied as eager has it; of a part, what lies around it in eager is not known."""
    x = torch.arange(21).view(3, 7).t()

    def seen(x, part):
        return torch.as_strided(torch.index_put(x, (torch.zeros_like(x[:1, 0]),), x[1] * 1)[:part], (4,), (1,)) + 1

    assert torch.equal(lower_and_run(lambda x: seen(x, 7), x).outputs[0], seen(x, 7))
    with pytest.raises(UnsupportedGraphError, match="a part of what lies otherwise"):
        lower_and_run(lambda x: seen(x, 2), x)
