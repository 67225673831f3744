"""Hooks on new nodes of autograd see what a call makes: nothing of a trace, and the node of a compiled graph as one."""

from __future__ import annotations

import pytest
import torch

import flambeau

node_creation_hook = getattr(torch.autograd.graph, "node_creation_hook", None)
pytestmark = [
    pytest.mark.skipif(node_creation_hook is None, reason="this torch has no such hooks"),
    pytest.mark.parametrize("backend", ["eager", "aot_eager"]),
]


def chain(x: torch.Tensor) -> torch.Tensor:
    """Two nodes, and that of the leaf."""
    return x.sin() * 2


def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Results that lead to different inputs."""
    return x.sin(), y.cos() * x


def seen(function, *args) -> list[str]:
    names: list[str] = []
    with node_creation_hook(lambda node: names.append(node.name())):
        function(*args)
    return names


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def test_a_call_shows_its_nodes_once(backend: str) -> None:
    compiled, plain = flambeau.compile(chain, backend=backend), seen(chain, leaf())
    wanted = plain if backend == "eager" else [plain[0], "CompiledFunctionBackward"]
    assert [seen(compiled, leaf()) for _ in range(3)] == [wanted] * 3
    compiled = flambeau.compile(two, backend=backend)
    assert seen(compiled, leaf(), leaf()) == seen(compiled, leaf(), leaf())


def test_hooks_are_there_after_a_compile(backend: str) -> None:
    """Those of outer managers too, in their order."""
    outer: list[str] = []
    with node_creation_hook(lambda node: outer.append(node.name())):
        inner = seen(flambeau.compile(chain, backend=backend), leaf())
        leaf() + 1
    assert outer[:-2] == inner and outer[-1] == "AddBackward0"
    assert seen(chain, leaf())[1:] == ["SinBackward0", "MulBackward0"]


def test_a_node_that_is_shown_takes_hooks(backend: str) -> None:
    """They run in its backward."""
    ran: list[str] = []

    def hook(node: torch.autograd.graph.Node) -> None:
        node.register_prehook(lambda grads: ran.append(node.name()))

    x, compiled = leaf(), flambeau.compile(chain, backend=backend)
    with node_creation_hook(hook):
        result = compiled(x)
    result.sum().backward()
    assert ran[0] == result.grad_fn.name()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
