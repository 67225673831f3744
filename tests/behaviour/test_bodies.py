"""Higher-order operators in graphs made by hand, through the default backend: what autograd makes of a body is what inductor and the runtime run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import create_block_mask

import flambeau
from flambeau.backends import lookup_backend
from flambeau.records import Recorder

_HOP = torch.ops.higher_order


class _Fakes(fx.Interpreter):
    """Notes the value of each node."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]


class Graph:
    """A graph whose values are noted as it grows."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.mode, self.root, self.graph = FakeTensorMode(), torch.nn.Module(), fx.Graph()
        self.inputs = [
            self._noted(self.graph.placeholder(f"x{i}"), self.mode.from_tensor(x)) for i, x in enumerate(inputs)
        ]

    def _noted(self, node: fx.Node, value: Any) -> fx.Node:
        node.meta["val"] = value
        return node

    def fake(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        with self.mode:
            return torch.empty(shape, dtype=dtype)

    def body(self, function: Callable[..., Any], *operands: Any) -> fx.Node:
        name = f"body_{len(self.root._modules)}"
        module = fx.symbolic_trace(function, {})
        fakes = [operand.meta["val"] if isinstance(operand, fx.Node) else operand for operand in operands]
        assert len(inspect.signature(function).parameters) == len(fakes)
        with self.mode:
            _Fakes(module).run(*fakes)
        setattr(self.root, name, module)
        return self.graph.get_attr(name)

    def call(self, target: Any, *args: Any, value: Any) -> fx.Node:
        return self._noted(self.graph.call_function(target, args), value)

    def items(self, node: fx.Node) -> list[fx.Node]:
        return [self.call(getitem, node, i, value=value) for i, value in enumerate(node.meta["val"])]

    def compiled(self, outputs: Sequence[fx.Node]) -> tuple[Callable[..., Any], list[str]]:
        """The compiled graph, and why it runs in eager."""
        self.graph.output(tuple(outputs))
        recorder = Recorder()
        made = lookup_backend("inductor")(
            fx.GraphModule(self.root, self.graph), [node.meta["val"] for node in self.inputs], recorder=recorder
        )

        def call(*given: Any) -> Any:
            return made(list(given)) if getattr(made, "_boxed_call", False) else made(*given)

        return call, recorder.eager_graphs


Case = tuple[list[Tensor], Callable[[Graph], list[fx.Node]], Callable[..., Any]]


def cond() -> Case:
    def build(g: Graph) -> list[fx.Node]:
        (x,) = g.inputs
        total = g.call(torch.sum, x, value=g.fake())
        positive = g.call(torch.gt, total, 0, value=g.fake(dtype=torch.bool))
        bodies = g.body(lambda x: (x.sin() * 2,), x), g.body(lambda x: (x.cos() + x,), x)
        return g.items(g.call(_HOP.cond, positive, *bodies, (x,), value=(g.fake(4, 5),)))

    return [torch.randn(4, 5)], build, lambda x: [x.sin() * 2 if x.sum() > 0 else x.cos() + x]


def while_loop() -> Case:
    def build(g: Graph) -> list[fx.Node]:
        i, x = g.inputs
        bodies = g.body(lambda i, x: i < 5, i, x), g.body(lambda i, x: (i + 1, x * 1.5 + x.sin()), i, x)
        value = (g.fake(dtype=torch.int64), g.fake(4, 5))
        return g.items(g.call(_HOP.while_loop, *bodies, (i, x), (), value=value))

    def formula(i: Tensor, x: Tensor) -> list[Tensor]:
        while i < 5:
            i, x = i + 1, x * 1.5 + x.sin()
        return [i, x]

    return [torch.tensor(0), torch.randn(4, 5)], build, formula


def scan() -> Case:
    def build(g: Graph) -> list[fx.Node]:
        h, xs, w = g.inputs
        body = g.body(lambda h, x, w: ((h @ w + x).tanh(), h * x), h, g.fake(5), w)
        return g.items(g.call(_HOP.scan, body, [h], [xs], (w,), value=(g.fake(5), g.fake(7, 5))))

    def formula(h: Tensor, xs: Tensor, w: Tensor) -> list[Tensor]:
        given = []
        for x in xs:
            given.append(h * x)
            h = (h @ w + x).tanh()
        return [h, torch.stack(given)]

    return [torch.randn(5), torch.randn(7, 5), torch.randn(5, 5)], build, formula


def map_impl() -> Case:
    def build(g: Graph) -> list[fx.Node]:
        xs, w = g.inputs
        body = g.body(lambda x, w: ((x @ w).sin(),), g.fake(5), w)
        return g.items(g.call(_HOP.map_impl, body, [xs], [w], value=(g.fake(7, 5),)))

    return [torch.randn(7, 5), torch.randn(5, 5)], build, lambda xs, w: [(xs @ w).sin()]


def associative_scan() -> Case:
    def build(g: Graph) -> list[fx.Node]:
        body = g.body(lambda a, b: (a + b,), g.fake(5), g.fake(5))
        return g.items(g.call(_HOP.associative_scan, body, [g.inputs[0]], (), value=(g.fake(7, 5),)))

    return [torch.randn(7, 5)], build, lambda xs: [xs.cumsum(0)]


def repeated_layers() -> Case:
    def build(g: Graph) -> list[fx.Node]:
        x, w = g.inputs
        layer = g.body(lambda x, w: ((x @ w).relu() + x,), x, w)
        for _ in range(6):
            (x,) = g.items(g.call(_HOP.invoke_subgraph, layer, "layer", x, w, value=(g.fake(4, 5),)))
        return [x]

    def formula(x: Tensor, w: Tensor) -> list[Tensor]:
        for _ in range(6):
            x = (x @ w).relu() + x
        return [x]

    return [torch.randn(4, 5), torch.randn(5, 5) / 10], build, formula


def flex_attention() -> Case:
    length, shape = 160, (1, 2, 160, 16)
    blocks = create_block_mask(lambda b, h, i, j: i >= j, *shape[:2], length, length, device="cpu").as_tuple()[:-1]

    def build(g: Graph) -> list[fx.Node]:
        q, k, v, *known = g.inputs
        places = [g.fake(dtype=torch.int32) for _ in range(4)]
        score = g.body(lambda s, b, h, i, j: s * 1.5 + (i - j) * 0.01, g.fake(), *places)
        mask = g.body(lambda b, h, i, j: i >= j, *places)
        rest = iter(known)
        parts = [next(rest) if isinstance(part, Tensor) else part for part in blocks]
        value = (g.fake(*shape), g.fake(*shape[:3]), g.fake(*shape[:3]))
        made = g.call(_HOP.flex_attention, q, k, v, score, (*parts, mask), 0.25, {}, (), (), value=value)
        return g.items(made)[:1]

    def formula(q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> list[Tensor]:
        i, j = torch.arange(length)[:, None], torch.arange(length)[None]
        scores = (q @ k.mT) * 0.25 * 1.5 + (i - j) * 0.01
        return [scores.masked_fill(i < j, -torch.inf).softmax(-1) @ v]

    return (
        [*(torch.randn(shape) for _ in range(3)), *(part for part in blocks if isinstance(part, Tensor))],
        build,
        formula,
    )


_CASES = [cond, while_loop, scan, map_impl, associative_scan, repeated_layers, flex_attention]


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.__name__)
def test_operators_equal_their_formulas(case: Callable[[], Case], differentiated: bool) -> None:
    """Results and gradients; no graph runs in eager."""
    torch.manual_seed(0)
    inputs, build, formula = case()
    ours, theirs = (
        [x.clone().requires_grad_(differentiated and x.is_floating_point()) for x in inputs] for _ in range(2)
    )
    g = Graph(ours)
    compiled, in_eager = g.compiled(build(g))
    assert not in_eager
    got, want = compiled(*ours), formula(*theirs)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    if not differentiated:
        return
    for results in (got, want):
        torch.autograd.backward([result.sum() for result in results if result.requires_grad])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_marked_layers_are_compiled_once(dynamic: bool) -> None:
    """The region is a method of a module; what its layers give and their gradients are eager's."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 6)

        @torch.compiler.nested_compile_region
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.relu(self.linear(x)) * x.shape[0]

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer() for _ in range(3)))
    recorder = flambeau.explain(model, dynamic=dynamic)(torch.randn(4, 6, requires_grad=True))
    assert [(repeat.name, repeat.calls) for repeat in recorder.repeats] == [("nested_compile_region", 3)]
    run = flambeau.compile(model, fullgraph=True, dynamic=dynamic)
    for size in (4, 7):
        found = []
        for call in (run, model):
            x = torch.linspace(-1, 1, size * 6).reshape(size, 6).requires_grad_()
            call(x).square().mean().backward()
            found.append([x.grad, *(parameter.grad for parameter in model.parameters())])
            model.zero_grad()
        torch.testing.assert_close(*found)
