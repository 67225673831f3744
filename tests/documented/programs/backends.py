"""Who compiles the graphs: backends by name, functions of the user's, ahead-of-time autograd."""

from __future__ import annotations

import torch
from tests.documented.facts import documented, largest_difference


@documented(
    "`torch.compiler.list_backends()` gives names; those for debugging are told with `exclude_tags=()`",
    judges_itself="nothing is compiled",
)
def listed_backends() -> None:
    usual = torch.compiler.list_backends()
    assert {"inductor", "cudagraphs"} <= set(usual)
    assert "eager" not in usual and "aot_eager" not in usual
    assert {"eager", "aot_eager", *usual} <= set(torch.compiler.list_backends(exclude_tags=()))


@documented("a backend is a function of a `GraphModule` and example inputs that returns a callable")
def custom_backend() -> None:
    seen = []

    def backend(graph, example_inputs):
        seen.append((graph, [tuple(value.shape) for value in example_inputs]))
        return graph.forward

    @torch.compile(backend=backend)
    def formula(x, y):
        return torch.cos(x) + torch.sin(y)

    x, y = torch.randn(10), torch.randn(10)
    assert largest_difference(formula(x, y), x.cos() + y.sin()) == 0
    ((graph, shapes),) = seen
    assert isinstance(graph, torch.fx.GraphModule) and shapes == [(10,), (10,)]
    assert [node.op for node in graph.graph.nodes][-1] == "output"
    assert "torch.cos" in graph.code or "cos(" in graph.code


@documented("`register_backend` gives a backend a name, under which `torch.compile` finds it")
def registered_backend() -> None:
    calls = []

    @torch._dynamo.register_backend
    def backend_of_the_documentation(graph, example_inputs):
        calls.append(len(example_inputs))
        return graph.forward

    compiled = torch.compile(lambda x: x + 1, backend="backend_of_the_documentation")
    assert compiled(torch.ones(3)).tolist() == [2, 2, 2] and calls == [1]
    assert "backend_of_the_documentation" in torch.compiler.list_backends()


@documented(
    "`aot_autograd(fw_compiler=…, bw_compiler=…)` makes a backend that is given forward and backward graphs of ATen ops"
)
def backend_of_two_compilers() -> None:
    from functorch.compile import make_boxed_func

    forward, backward = [], []

    def compiler(kept):
        def keep(graph, example_inputs):
            kept.append(str(graph.graph))
            return make_boxed_func(graph.forward)

        return keep

    backend = torch._dynamo.backends.common.aot_autograd(fw_compiler=compiler(forward), bw_compiler=compiler(backward))
    compiled = torch.compile(lambda x: torch.sin(x).sum(), backend=backend)
    x = torch.randn(6, requires_grad=True)
    compiled(x).backward()
    assert largest_difference(x.grad, x.cos()) < 1e-6
    assert len(forward) == len(backward) == 1
    assert "aten.sin" in forward[0] and "aten.cos" in backward[0]


@documented(
    "backend `eager` runs the captured graph as it is, `aot_eager` the one of ahead-of-time autograd: to tell which stage fails"
)
def backends_for_debugging() -> None:
    def formula(x):
        return (torch.tanh(x) * x).sum()

    x = torch.randn(6, requires_grad=True)
    formula(x).backward()
    expected = x.grad.clone()
    for backend in ("eager", "aot_eager"):
        x.grad = None
        torch.compile(formula, backend=backend)(x).backward()
        assert largest_difference(x.grad, expected) < 1e-6
