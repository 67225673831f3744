"""Cache keys of graphs: equal where the compiled result is the same, different where it is not, refused where there is none."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau.graph_key import Uncacheable, graph_key
from flambeau.options import Options
from flambeau.stages import resolve_stages


def graph(function: Any, **value_options: Any) -> fx.GraphModule:
    gm = fx.symbolic_trace(function)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            node.meta["val"] = torch.empty(2, 4, 8, 8, **value_options)
    return gm


def key(function: Any, **value_options: Any) -> dict[str, str]:
    return graph_key(graph(function, **value_options), Options(), resolve_stages(Options()))


def test_equal_graphs_have_equal_keys() -> None:
    """Names of nodes and inputs do not matter."""
    assert key(lambda x: torch.relu(x) + 1) == key(lambda other: torch.relu(other) + 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: torch.relu(x) + 2,
        lambda x: torch.relu(x) + 1.0,
        lambda x: torch.sigmoid(x) + 1,
        lambda x: 1 + torch.relu(x),
    ],
)
def test_different_graphs_have_different_keys(other: Any) -> None:
    """Constants with their types, functions, and the order of arguments count."""
    assert key(lambda x: torch.relu(x) + 1) != key(other)


def on_gpu(function: Any, ordinal: int) -> dict[str, str]:
    with FakeTensorMode():
        return key(function, device=f"cuda:{ordinal}")


two_gpus = pytest.mark.skipif(
    torch.cuda.device_count() == 1, reason="a fake on a second GPU needs one, where there is any"
)


@two_gpus
@pytest.mark.parametrize(
    "function", [lambda x: torch.relu(x), lambda x: x + torch.ones(8, device=x.device), lambda x: x.to("cpu")]
)
def test_any_gpu_has_the_same_key(function: Any) -> None:
    """One program serves every device that its input may be on."""
    assert on_gpu(function, 0) == on_gpu(function, 1)


@two_gpus
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to("cuda:0"),
        lambda x: x.cuda(0),
        lambda x: x.to(0),
        lambda x: x.new_ones(8, device=torch.device("cuda:0")),
    ],
)
def test_named_gpus_count(function: Any) -> None:
    """Where the program names a device, it matters whether the input is there."""
    assert on_gpu(function, 0) != on_gpu(function, 1)


def test_a_submodule_has_no_key() -> None:
    """What it holds is not looked into."""
    made = graph(lambda x: x + 1)
    made.add_module("inner", torch.nn.ReLU())
    call = next(node for node in made.graph.nodes if node.op == "call_function")
    call.op, call.target, call.args = "call_module", "inner", call.args[:1]
    with pytest.raises(Uncacheable, match="submodule inner"):
        graph_key(made, Options(), resolve_stages(Options()))


def with_body(function: Any, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    made = graph(lambda x: x + 1)
    body = fx.symbolic_trace(function)
    body.graph.find_nodes(op="placeholder")[0].meta["val"] = torch.empty(3, dtype=dtype)
    made.add_module("body", body)
    call = next(node for node in made.graph.nodes if node.op == "call_function")
    with made.graph.inserting_before(call):
        named = made.graph.get_attr("body")
    call.target, call.args = torch.ops.higher_order.map_impl, (named, [call.args[0]], [])
    return graph_key(made, Options(), resolve_stages(Options()))


def test_bodies_are_part_of_the_key() -> None:
    """Their operations, and what they are given."""
    base = with_body(lambda x: (x * 2,))
    assert with_body(lambda other: (other * 2,)) == base
    assert with_body(lambda x: (x * 3,)) != base
    assert with_body(lambda x: (x * 2,), torch.float64) != base


def test_transforms_are_part_of_the_key() -> None:
    """Their options, what they transform, and what that reads of the graph around it; a function of the graph can be read too."""

    def transformed(function: Any, dim: int = 0) -> dict[str, str]:
        made, body = graph(lambda x: x + 1), fx.symbolic_trace(function)
        for node, value in zip(body.graph.find_nodes(op="placeholder"), (torch.sin, torch.empty(3)), strict=True):
            node.meta["val"] = value
        made.add_module("body", body)
        call = next(node for node in made.graph.nodes if node.op == "call_function")
        with made.graph.inserting_before(call):
            bound = made.graph.call_function(functools.partial, (made.graph.get_attr("body"), torch.sin))
            transform = made.graph.call_function(torch.func.vmap, (bound, dim))
        call.target, call.args = operator.call, (transform, call.args[0])
        return graph_key(made, Options(), resolve_stages(Options()))

    base = transformed(lambda f, a: f(a) * a)
    assert transformed(lambda g, b: g(b) * b) == base
    assert transformed(lambda f, a: f(a) + a) != base
    assert transformed(lambda f, a: f(a) * a, 1) != base


def test_inputs_and_state_count() -> None:
    """dtype, requires_grad, grad mode and autocast change what is compiled."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    base = key(function)
    assert key(function, dtype=torch.float64) != base
    assert key(function, requires_grad=True) != base
    with torch.no_grad():
        assert key(function) != base
    with torch.autocast("cpu"):
        assert key(function) != base
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert key(function) != base


def test_precision_counts_however_it_is_set() -> None:
    """The older switches and the newer ones; after the newer ones torch refuses to read the older."""
    base = key(lambda x: torch.relu(x))
    operators = [("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul")]
    before = [torch._C._get_fp32_precision_getter(*operator) for operator in operators]
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        legacy = key(lambda x: torch.relu(x))
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        assert len({base["state"], legacy["state"], key(lambda x: torch.relu(x))["state"]}) == 3
    finally:
        torch.set_float32_matmul_precision("highest")
        for operator, precision in zip(operators, before, strict=True):
            torch._C._set_fp32_precision_setter(*operator, precision)


def test_checkpointed_regions_count() -> None:
    """What is computed again in the backward is another program."""
    gm = graph(lambda x: torch.relu(x))
    plain = graph_key(gm, Options(), resolve_stages(Options()))
    next(node for node in gm.graph.nodes if node.op == "call_function").meta["checkpoint"] = 1
    assert graph_key(gm, Options(), resolve_stages(Options())) != plain


def test_pools_have_a_name() -> None:
    """torch makes them in a local function, which alone would have none."""
    assert "max_pool2d" in key(lambda x: torch.nn.functional.max_pool2d(x, 2))["graph"]


def test_a_local_function_has_no_key() -> None:
    """What cannot be named cannot be found again."""
    gm = graph(lambda x: torch.relu(x))

    def local(x: torch.Tensor) -> torch.Tensor:
        return x

    next(node for node in gm.graph.nodes if node.op == "call_function").target = local
    with pytest.raises(Uncacheable, match="local"):
        graph_key(gm, Options(), resolve_stages(Options()))


def test_another_function_by_the_name_of_torchs_has_no_key() -> None:
    """A module is not known of every builtin: then it has to be the very function."""

    class Builtin:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    gm, other = graph(lambda x: torch.relu(x)), Builtin()
    other.__dict__ |= {"__qualname__": "own.relu", "__module__": None}
    next(node for node in gm.graph.nodes if node.op == "call_function").target = other
    with pytest.raises(Uncacheable, match=r"own\.relu"):
        graph_key(gm, Options(), resolve_stages(Options()))
