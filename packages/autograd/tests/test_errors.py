"""Whose error is it: what a stage of ours raises is an internal error, what torch raises by itself is a refusal."""

import pytest
import torch
from lifting import compile_graph, fakes
from torch.fx import Graph, GraphModule

import flambeau_autograd.joint.build as build
import flambeau_autograd.pipeline as pipeline
from flambeau_autograd import UnsupportedGraph
from flambeau_autograd.errors import InternalError
from flambeau_autograd.functional.recorder import Recorder
from flambeau_autograd.joint.control import error_without_us
from flambeau_autograd.joint.replay import Replay


def graph_of(*calls, inputs=1):
    """Calls one after the other: (function, what stands for each argument: a place among inputs and results)."""
    graph = Graph()
    values = [graph.placeholder(f"x{i}") for i in range(inputs)]
    for function, *places in calls:
        values.append(graph.call_function(function, tuple(values[p] for p in places)))
    graph.output((values[-1],))
    return GraphModule(torch.nn.Module(), graph)


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


SQUARE = ((torch.mul, 0, 0),)


def broken(*args, **kwargs):
    raise RuntimeError("broken on purpose")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (pipeline, "build_joint"),
        (pipeline, "run_passes"),
        (pipeline, "split"),
        (build, "analyse"),
        (build, "trace_inputs"),
        (Recorder, "record"),
        (Recorder, "operands"),
        (Replay, "_call"),
    ],
)
@pytest.mark.parametrize("kind", [RuntimeError, TypeError, KeyError, NotImplementedError, AssertionError, IndexError])
def test_a_stage_that_raises_is_our_fault(monkeypatch, owner, name, kind):
    def fails(*args, **kwargs):
        raise kind("broken on purpose")

    monkeypatch.setattr(owner, name, fails)
    with pytest.raises(InternalError, match="broken on purpose") as caught:
        compile_graph(graph_of(*SQUARE), [leaf(3)])
    assert "FLAMBEAU_LOGS=graph_code" in str(caught.value)


def test_a_decomposition_that_raises_is_our_fault():
    with pytest.raises(InternalError, match="broken on purpose"):
        compile_graph(graph_of((torch.relu, 0)), [leaf(3)], decompositions={torch.ops.aten.relu: broken})


@pytest.mark.parametrize(
    ("graph", "inputs", "words"),
    [
        # The result of exp is saved for its gradient, then written.
        (graph_of((torch.exp, 0), (torch.Tensor.mul_, 1, 1), (torch.sin, 2)), [leaf(3)], "modified by an inplace"),
        (graph_of((torch.Tensor.mul_, 0, 0)), [leaf(3)], "leaf Variable"),
        (graph_of((torch.matmul, 0, 0)), [leaf(2, 3)], "mat1 and mat2|reduction dim"),
    ],
)
def test_what_torch_raises_by_itself_is_a_refusal(graph, inputs, words):
    assert error_without_us(graph, fakes(inputs)) is not None
    with pytest.raises(UnsupportedGraph, match=words):
        compile_graph(graph, inputs)


def test_the_run_without_us_finds_nothing_wrong_with_a_good_graph():
    assert error_without_us(graph_of(*SQUARE), fakes([leaf(3)])) is None


def test_the_run_without_us_leaves_the_modes_as_they_were():
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, True))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output((graph.call_function(torch.matmul, (x, x)),))
    assert error_without_us(GraphModule(torch.nn.Module(), graph), fakes([leaf(2, 3)])) is not None
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_inputs_without_a_gradient_are_nothing_wrong_either():
    graph = graph_of((torch.mul, 0, 1), inputs=2)
    assert error_without_us(graph, fakes([leaf(3), torch.ones(3)])) is None


def test_what_torch_does_not_differentiate_is_no_fault_of_ours():
    """Nor is it eager's before the backward: the graph is left to it."""

    def copied(x):
        y = torch.zeros(3)
        torch._foreach_copy_([y], [x])
        return y + 1

    with pytest.raises(UnsupportedGraph, match="derivative for _foreach_copy_"):
        compile_graph(graph_of((copied, 0)), [leaf(3)])


def test_a_write_through_a_piece_of_an_expanded_tensor():
    """Along a dimension without strides nothing can be told from where a piece begins."""

    def written(x):
        x.expand(2, 2).chunk(2)[0].select(1, 0).copy_(1)
        return x * 1

    x = torch.zeros(2)
    with pytest.raises(UnsupportedGraph, match="share one memory location"):
        compile_graph(graph_of((written, 0)), [x])


@pytest.mark.parametrize(
    ("function", "operands"),
    [
        (torch.lerp, (torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64), 0.5)),
        (torch.index_select, (torch.zeros(0, 2), 0, torch.tensor([5]))),
    ],
)
def test_what_the_kernel_refuses_is_not_decomposed(function, operands):
    """For its types, or for an index into nothing: a formula would pass, and the op raises when it runs, as in eager."""
    with pytest.raises((RuntimeError, IndexError)) as expected:
        function(*operands)
    given = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    graph = Graph()
    places = {id(tensor): graph.placeholder(f"x{i}") for i, tensor in enumerate(given)}
    result = graph.call_function(function, tuple(places.get(id(operand), operand) for operand in operands))
    graph.output((result,))
    op = getattr(torch.ops.aten, function.__name__)
    compiled = compile_graph(
        GraphModule(torch.nn.Module(), graph), given, decompositions={op: lambda x, *rest: torch.ops.aten.clone(x)}
    )
    with pytest.raises(type(expected.value)):
        compiled(*given)
