"""Calls that repeat are compiled once: which are found, which are left, and that results, gradients and random numbers are those of eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import flambeau
from flambeau.repeats import outline
from flambeau_capture import make_region

INVOKE = torch.ops.higher_order.invoke_subgraph


class Layer(nn.Module):
    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Stack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        for layer in self.layers:
            x = layer(x)
        return x.cos()


def captured(function: object, *inputs: object) -> fx.GraphModule:
    """The one graph of a function."""
    graphs: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, _inputs: list[object]) -> object:
        graphs.append(gm)
        return gm

    make_region(function, keep, fullgraph=True)(*inputs)
    (graph,) = graphs
    return graph


def calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.target is INVOKE]


def stack(count: int, **more: float) -> Stack:
    torch.manual_seed(0)
    return Stack([Layer(**more) for _ in range(count)])


def leaf() -> Tensor:
    """An input that requires a gradient, as what a layer gives does."""
    return torch.randn(2, 8, requires_grad=True)


def test_layers_that_are_alike_share_one_body() -> None:
    """The graph that was captured stays as it is."""
    gm = captured(stack(3), leaf())
    before = str(gm.graph)
    made = outline(gm, 3)
    assert made is not None and str(gm.graph) == before
    found = calls(made.graph)
    assert [node.args[1] for node in found] == ["repeated_0"] * 3 and len({node.args[0] for node in found}) == 1
    assert len([n for n in made.graph.graph.nodes if n.op == "call_function" and n.target is not INVOKE]) == 3
    (repeat,) = made.repeats
    assert (repeat.name, repeat.calls) == ("Layer", 3) and str(repeat).startswith("3 calls of Layer (")
    torch.testing.assert_close(
        made.graph.get_submodule("repeated_0")(*(torch.ones(node.meta["val"].shape) for node in found[0].args[2:])),
        (layer_of_ones(torch.ones(2, 8)),),
    )


def layer_of_ones(x: Tensor) -> Tensor:
    """What a layer whose parameters are ones makes of `x`."""
    layer = Layer()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1)
        return layer(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.project(x).split(8, -1)
        return x + torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Masked(nn.Module):
    """Attention layers under a causal mask; `padding` takes places of the input out as well, `change` comes between the mask and the layers."""

    def __init__(self, change: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.change = nn.ModuleList(Attention() for _ in range(3)), change

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        places = torch.arange(x.shape[-2])
        mask = places[:, None] >= places[None, :]
        if padding is not None:
            mask = mask & padding
        if self.change == "write":
            mask[-1] = False
            mask[-1, 0] = True
        if self.change == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                for layer in self.layers:
                    x = layer(x, mask)
            return x
        for layer in self.layers:
            x = layer(x, mask)
        return x + mask.sum() if self.change == "show" else x


def names(gm: fx.GraphModule) -> set[str]:
    return {getattr(node.target, "__name__", str(node.target)) for node in gm.graph.nodes if node.op.startswith("call")}


@pytest.mark.parametrize("dynamic", [False, True])
def test_bodies_compute_the_masks_that_follow_from_sizes(dynamic: bool) -> None:
    """Nothing of them is left outside, so that a body knows what its mask is."""
    model, x = Masked(), torch.randn(2, 5, 8, requires_grad=True)
    if dynamic:
        flambeau.compiler.mark_dynamic(x, 1)
    made = outline(captured(model, x), 3)
    assert made is not None and "arange" not in names(made.graph)
    assert {"arange", "ge"} <= names(made.graph.get_submodule("repeated_0"))
    run = flambeau.compile(model, fullgraph=True, dynamic=dynamic, options={"repeats_outlined": 3})
    for size in (5, 7) if dynamic else (5,):
        x = torch.randn(2, size, 8)
        torch.testing.assert_close(gradients(model, run, x), gradients(model, model, x))


@pytest.mark.parametrize("case", ["padding", "write", "autocast"])
def test_bodies_are_given_other_masks(case: str) -> None:
    """Those of an input, those that somebody writes to, and those before a change of settings."""
    model = Masked("" if case == "padding" else case)
    given = (
        torch.randn(2, 5, 8, requires_grad=True),
        *([torch.ones(5, dtype=torch.bool)] if case == "padding" else []),
    )
    made = outline(captured(model, *given), 3)
    assert made is not None and "arange" in names(made.graph)
    assert "arange" not in names(made.graph.get_submodule("repeated_0"))
    run = flambeau.compile(model, fullgraph=True, options={"repeats_outlined": 3})
    torch.testing.assert_close(run(*given), model(*given), rtol=2e-2, atol=2e-2)


def test_bodies_on_a_gpu_compute_masks_of_what_inputs_say_of_keys() -> None:
    """Of truth values for each key; a mask that is given, and numbers that are added, are not computed."""
    x, padding = torch.randn(2, 5, 8, requires_grad=True), torch.ones(5, dtype=torch.bool)
    for given, inside in ((padding, True), (padding.expand(5, 5), False), (padding.float(), False)):
        gm = captured(Masked(), x, padding)
        with FakeTensorMode():
            val = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device="cuda")
        (place,) = (
            node for node in gm.graph.nodes if node.op == "placeholder" and node.meta["val"].dtype is torch.bool
        )
        place.meta["val"] = val
        made = outline(gm, 3)
        assert made is not None and ("arange" in names(made.graph)) is not inside
        assert ("arange" in names(made.graph.get_submodule("repeated_0"))) is inside


def test_a_mask_that_others_read_stays_outside_as_well() -> None:
    model, x = Masked("show"), torch.randn(2, 5, 8, requires_grad=True)
    made = outline(captured(model, x), 3)
    assert made is not None and "arange" in names(made.graph)
    assert "arange" in names(made.graph.get_submodule("repeated_0"))
    torch.testing.assert_close(flambeau.compile(model, fullgraph=True, options={"repeats_outlined": 3})(x), model(x))


def test_a_mask_that_a_body_makes_is_given_to_others() -> None:
    """It is made of a size that is known inside of that body alone."""

    @torch.compiler.nested_compile_region
    def triangle(count: Tensor) -> Tensor:
        places = torch.arange(count.shape[0] + 1)[1:]
        return torch.arange(places.shape[0])[None, :] < places[:, None]

    layers = nn.ModuleList(Attention() for _ in range(3))

    def function(x: Tensor) -> Tensor:
        mask = triangle(x[0])
        for layer in layers:
            x = layer(x, mask)
        return x + triangle(x[0]).sum()

    x = torch.randn(2, 5, 8, requires_grad=True)
    flambeau.compiler.mark_dynamic(x, 1)
    made = outline(captured(function, x), 3)
    assert made is not None and {repeat.name for repeat in made.repeats} >= {"Attention"}
    run = flambeau.compile(function, fullgraph=True, dynamic=True, options={"repeats_outlined": 3})
    for size in (5, 7):
        x = torch.randn(2, size, 8, requires_grad=True)
        torch.testing.assert_close(run(x), function(x))


def test_too_few_calls_stay() -> None:
    gm = captured(stack(3), leaf())
    assert outline(gm, 4) is None and outline(gm, 0) is None


def test_layers_of_two_kinds_have_a_body_each() -> None:
    torch.manual_seed(0)
    layers = [
        Layer(),
        *(nn.Sequential(Layer(), nn.Tanh(), nn.Linear(8, 8), nn.ReLU()) for _ in range(3)),
        Layer(),
        Layer(),
    ]
    made = outline(captured(Stack(layers), leaf()), 3)
    assert made is not None
    assert {(repeat.name, repeat.calls) for repeat in made.repeats} == {("Layer", 3), ("Sequential", 3)}


def test_layers_inside_of_a_module_that_is_called_once() -> None:
    made = outline(captured(Stack([stack(3)]), leaf()), 3)
    assert made is not None and len(calls(made.graph)) == 3


@pytest.mark.parametrize("other", ["shape", "constant", "gradient"])
def test_what_differs_has_no_body_in_common(other: str) -> None:
    """A layer of another shape, with another number, or without gradients."""

    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor, self.linear = factor, nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return (self.linear(x) * self.factor).tanh().sin()

    if other == "shape":
        layers: list[nn.Module] = [Layer(8), nn.Linear(8, 4), Layer(4)]
    elif other == "constant":
        layers = [Scaled(1.0), Scaled(2.0)]
    else:
        layers = [Scaled(1.0), Scaled(1.0)]
        layers[1].requires_grad_(False)
    assert outline(captured(Stack(layers), leaf()), 2) is None


def writing(x: Tensor) -> Tensor:
    x.add_(1)
    return (x * 2).sin().cos()


def viewing(x: Tensor) -> Tensor:
    (x + 1).sin().cos()
    return x[:].view(-1)


def switching(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x.sin().cos()
    return (x * y).sin()


def convolving(x: Tensor) -> Tensor:
    return torch.nn.functional.conv1d(x[None, None], torch.ones(1, 1, 1))[0, 0].sin().cos().tan()


def sharing(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.sin().cos().exp()
    return y[:3], y[3:]


@pytest.mark.parametrize("body", [writing, viewing, switching, convolving, sharing])
def test_regions_that_are_more_than_a_call_of_a_body(body: object) -> None:
    """They write to what they are given, give it back, change settings, or give results that share memory."""
    region = torch.compiler.nested_compile_region(body)

    def function(x: Tensor) -> list[object]:
        x = x * 1
        return [region(x), region(x), x]

    x = torch.randn(6, requires_grad=True)
    gm = captured(function, x)
    made = outline(gm, 0)
    assert made is None or body is writing  # a write to what is no input is refused by a later stage
    run = flambeau.compile(function, fullgraph=True)
    torch.testing.assert_close(run(x), function(x))


def test_checkpointed_layers_stay() -> None:
    from torch.utils.checkpoint import checkpoint

    layers = [Layer() for _ in range(3)]

    def function(x: Tensor) -> Tensor:
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

    assert outline(captured(function, torch.randn(2, 8, requires_grad=True)), 2) is None


def test_marked_regions_share_a_body_from_the_second_call_on() -> None:
    @torch.compiler.nested_compile_region
    def gate(x: Tensor, y: Tensor) -> Tensor:
        return (torch.sigmoid(x) * y).sin() + 1

    def function(x: Tensor) -> Tensor:
        return gate(x, x + 1) + gate(x * 2, x)

    made = outline(captured(function, torch.randn(4)), 0)
    assert made is not None and [str(r) for r in made.repeats] == [
        "2 calls of nested_compile_region (4 operations each)"
    ]


def gradients(model: nn.Module, run: object, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = run(x)
    out.square().sum().backward()
    found = [out.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]
    assert all(tensor is not None for tensor in found)
    model.zero_grad()
    return found


def test_results_and_gradients_are_eagers_and_the_reuse_is_reported() -> None:
    model = stack(9)
    x = torch.randn(3, 8)
    explanation = flambeau.explain(copy.deepcopy(model))(x.clone().requires_grad_())
    assert [(repeat.name, repeat.calls) for repeat in explanation.repeats] == [("Layer", 9)]
    assert "compiled once: 9 calls of Layer" in str(explanation)
    torch.testing.assert_close(gradients(model, flambeau.compile(model, fullgraph=True), x), gradients(model, model, x))
    with torch.no_grad():
        torch.testing.assert_close(flambeau.compile(model, fullgraph=True)(x), model(x))


def test_the_option_switches_it_off() -> None:
    explanation = flambeau.explain(stack(9), options={"repeats_outlined": 0})(torch.randn(3, 8))
    assert explanation.repeats == ()


class Caching(Layer):
    """Gives the keys that it made besides, as a layer with a cache does."""

    def forward(self, x: Tensor, keys: list[Tensor]) -> Tensor:
        keys.append(self.up(x).sqrt())
        return super().forward(x)


@pytest.mark.parametrize("shown", ["last", "keys", "both", "one key"])
def test_layers_with_several_results(shown: str) -> None:
    """A gradient comes of some of them; where there is none of a key, nothing is computed from zeros: that of a root at 0 would be nan."""
    torch.manual_seed(0)
    layers = nn.ModuleList([Caching() for _ in range(9)])
    for layer in layers:
        nn.init.zeros_(layer.up.weight)
        nn.init.zeros_(layer.up.bias)
    nn.init.ones_(layers[2].up.bias)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        keys: list[Tensor] = []
        for layer in layers:
            x = layer(x, keys)
        return (x, *keys)

    explanation = flambeau.explain(function)(torch.randn(3, 8).requires_grad_())
    assert [(repeat.name, repeat.calls) for repeat in explanation.repeats] == [("Caching", 9)]
    found = []
    for run in (flambeau.compile(function, fullgraph=True), function):
        x = torch.linspace(-1, 1, 24).view(3, 8).requires_grad_()
        last, *keys = run(x)
        ends = {"last": [last], "keys": keys, "both": [last, *keys], "one key": [keys[2]]}[shown]
        leaves = [x, *layers.parameters()]
        found.append(torch.autograd.grad(sum(end.sum() for end in ends), leaves, allow_unused=True))
    ours, theirs = found
    assert [grad is None for grad in ours] == [grad is None for grad in theirs]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    assert (shown in ("last", "one key")) == all(grad is None or bool(grad.isfinite().all()) for grad in ours)


def test_dynamic_sizes() -> None:
    model = stack(9)
    run = flambeau.compile(model, fullgraph=True, dynamic=True)
    for size in (3, 5):
        x = torch.randn(size, 8)
        torch.testing.assert_close(gradients(model, run, x), gradients(model, model, x))


def test_dropout_draws_as_in_eager() -> None:
    """In the order of the calls, from the same generator."""
    model = stack(9, dropout=0.5)
    run, x = flambeau.compile(model, fullgraph=True), torch.randn(3, 8)
    torch.manual_seed(3)
    found = gradients(model, run, x)
    after = torch.rand(1)
    torch.manual_seed(3)
    torch.testing.assert_close(found, gradients(model, model, x))
    torch.testing.assert_close(after, torch.rand(1), rtol=0, atol=0)


def test_a_second_derivative() -> None:
    """It runs the graph as it was captured."""
    model = stack(9)
    run = flambeau.compile(model, fullgraph=True)

    def penalty(function: object) -> Tensor:
        x = torch.ones(2, 8, requires_grad=True)
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    torch.testing.assert_close(penalty(run), penalty(model))


def test_layers_that_count_batches_run_as_they_are() -> None:
    """What a call writes stays outside of a body."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(9)]
    model = Stack(layers)
    x = torch.randn(16, 8)
    assert outline(captured(copy.deepcopy(model), x.clone().requires_grad_()), 2) is None
    found = [copy.deepcopy(model) for _ in range(2)]
    for least, one in zip((2, 0), found, strict=True):
        flambeau.compile(one, fullgraph=True, options={"repeats_outlined": least})(x)
    torch.testing.assert_close(found[0].state_dict(), found[1].state_dict(), rtol=0, atol=0)
    assert found[0].layers[0][1].num_batches_tracked == 1


def test_layers_of_elementwise_operations_are_fused_instead() -> None:
    layers = [nn.Sequential(nn.Tanh(), nn.ELU(), nn.Softplus(), nn.Sigmoid()) for _ in range(3)]
    assert outline(captured(Stack(layers), leaf()), 2) is None


def test_another_process_reads_it_back() -> None:
    """The cache has the graph under the key of what was compiled."""
    model, x = stack(9), torch.randn(3, 8)
    for _ in range(2):
        flambeau.compiler.reset()
        explanation = flambeau.explain(copy.deepcopy(model))(x)
        torch.testing.assert_close(explanation.result, model(x))
    assert all(program.cached for program in explanation.programs) and len(explanation.repeats) == 1


def test_paths_in_a_body_have_a_star_where_its_calls_differ() -> None:
    """The body is that of all layers; what is outside keeps its own paths."""
    outlined = outline(captured(stack(4), leaf()), 3)
    assert outlined is not None
    (body,) = (module for name, module in outlined.graph.named_children() if isinstance(module, fx.GraphModule))
    paths = {node.meta.get("module") for node in body.graph.nodes if node.op.startswith("call")}
    assert {"layers.*", "layers.*.norm", "layers.*.up", "layers.*.down"} <= paths
