"""The validator names each broken rule."""

import pytest
import torch
from attrs import evolve

from flambeau_inductor.errors import VerifyError
from flambeau_inductor.expr import Int, Symbol
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.ir.loops import Pointwise, Scatter, Template, make_axes
from flambeau_inductor.ir.text import graph_text
from flambeau_inductor.ir.verify import verify

CPU = torch.device("cpu")


def graph_of(value, dtype=torch.float32):
    """x[8] -> buf0[8] = value."""
    x = Buffer("x", Layout.contiguous((8,), dtype, CPU))
    out = Buffer("buf0", Layout.contiguous((8,), dtype, CPU))
    operation = Pointwise(out, make_axes((Int(8),)), value)
    return Graph((TensorInput(x),), (), (operation,), (Ref.whole(out),), {"x": x, "buf0": out})


I = make_axes((Int(8),))[0].symbol


def test_a_good_graph_passes_and_prints():
    """And its text is stable."""
    graph = graph_of(sc.op("add", sc.load("x", I, torch.float32), sc.constant(1.0, torch.float32)))
    verify(graph)
    assert graph_text(graph).splitlines()[1:] == [
        "  input x: f32[8; 1]",
        "  buf0: f32[8; 1] = for i0<8: (1.0:f32 + x[i0])"
        if "1.0:f32 + x" in graph_text(graph)
        else "  buf0: f32[8; 1] = for i0<8: (x[i0] + 1.0:f32)",
        "  return buf0<f32[8; 1] +0>",
    ]


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (sc.load("missing", I, torch.float32), torch.float32, "before it is written"),
        (sc.load("x", Symbol("k", bound=Int(8)), torch.float32), torch.float32, "no axis"),
        (sc.load("x", I, torch.float64), torch.float32, "dtype"),
        (sc.op("exp", sc.load("x", I, torch.bfloat16)), torch.bfloat16, "narrow type"),
        (sc.op("exp", sc.load("x", I, torch.int64)), torch.int64, "exp on"),
    ],
)
def test_broken_values_are_named(value, dtype, message):
    """Each message says what is wrong, and where: the operation is marked."""
    with pytest.raises(VerifyError, match=message) as error:
        verify(graph_of(value, dtype))
    assert "while checking\n    > buf0" in str(error.value)


def test_reading_overwritten_memory_is_refused():
    """After a write-back the old name is dead."""
    graph = graph_of(sc.load("x", I, torch.float32))
    new = Buffer("buf1", Layout.contiguous((8,), torch.float32, CPU), storage="x")
    back = Pointwise(new, make_axes((Int(8),)), sc.constant(0.0, torch.float32))
    late = evolve(graph, operations=(back, *graph.operations), buffers={**graph.buffers, "buf1": new})
    with pytest.raises(VerifyError, match="overwrote"):
        verify(late)


def test_each_buffer_is_known_and_written_once():
    """What is written has an entry, and what it overwrites exists."""
    graph = graph_of(sc.load("x", I, torch.float32))
    (operation,) = graph.operations
    with pytest.raises(VerifyError, match="buf0 is written twice"):
        verify(evolve(graph, operations=(operation, operation)))
    with pytest.raises(VerifyError, match="buf0 is not among the graph's buffers"):
        verify(evolve(graph, buffers={"x": graph.buffers["x"]}))
    early = evolve(operation.out, storage="buf9")
    with pytest.raises(VerifyError, match="buf0 overwrites buf9, which does not exist yet"):
        verify(evolve(graph, operations=(evolve(operation, out=early),), buffers={**graph.buffers, "buf0": early}))


def test_a_scatter_of_an_unknown_mode_is_refused():
    """The modes are those that both generators know."""
    graph = graph_of(sc.load("x", I, torch.float32))
    axes = make_axes((Int(8),))
    out = Buffer("buf1", Layout.contiguous((8,), torch.float32, CPU), storage="buf0")
    scatter = Scatter(out, axes, axes[0].symbol, sc.constant(0.0, torch.float32), "set")
    for mode, message in (("set", None), ("average", "unknown mode average")):
        operations = (*graph.operations, evolve(scatter, mode=mode))
        made = evolve(graph, operations=operations, outputs=(Ref.whole(out),), buffers={**graph.buffers, "buf1": out})
        if message is None:
            verify(made)
            continue
        with pytest.raises(VerifyError, match=message):
            verify(made)


def template_of(**bodies):
    """buf0[8] made from x[8] by a template with these bodies."""
    graph = graph_of(sc.load("x", I, torch.float32))
    x, out = graph.buffers["x"], graph.buffers["buf0"]
    operation = Template("kind", {"q": Ref.whole(x)}, {"out": out}, make_axes((Int(8),)), bodies, {"scale": 2.0})
    return evolve(graph, operations=(operation,))


def test_a_template_prints():
    """With the scalars that its kernel evaluates."""
    graph = template_of(score=sc.op("to_dtype", sc.reduced("score", torch.float32), dtype=torch.float64))
    verify(graph)
    line = "  out=buf0: f32[8; 1] = kind(q=x<f32[8; 1] +0>, scale=2.0) for i0<8: score: f64(%score)"
    assert line in graph_text(graph).splitlines()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (sc.load("missing", I, torch.float32), "before it is written"),
        (sc.index_value(Symbol("k", bound=Int(8))), "no axis"),
        (sc.op("exp", sc.load("x", I, torch.int64)), "dtype"),
    ],
)
def test_bodies_of_templates_keep_the_rules(body, message):
    """Those of any scalar."""
    with pytest.raises(VerifyError, match=message):
        verify(template_of(score=body))
