"""Passes of the user on graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

import flambeau
from flambeau.errors import InvalidOption
from tests.comparison import assert_same

from .rows import calls


def as_cosine(graph: fx.Graph) -> None:
    """Put the cosine in the place of the sine."""
    others = {torch.sin: torch.cos, torch.ops.aten.sin.default: torch.ops.aten.cos.default}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in others:
            with graph.inserting_after(node):
                other = graph.call_function(others[node.target], node.args)
            node.replace_all_uses_with(other)
            graph.erase_node(node)


class Cosine:
    """As torch.compile's `CustomGraphPass`."""

    def __init__(self, version: str) -> None:
        self.version = version

    def __call__(self, graph: fx.Graph) -> None:
        as_cosine(graph)

    def uuid(self) -> str:
        return self.version


PASSES = (
    "pre_grad_custom_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("with_grad", [False, True])
@calls("options", *PASSES)
def test_a_pass_edits_its_graph(name: str, with_grad: bool) -> None:
    """In the joint graph after autograd: the gradient is the sine's, unless the pass came before."""

    def function(x: Tensor) -> Tensor:
        return torch.sin(x) * 2

    x = torch.randn(5, requires_grad=with_grad)
    result = flambeau.compile(function, options={name: as_cosine})(x)
    assert_same(result.detach(), torch.cos(x).detach() * 2)
    if with_grad:
        result.sum().backward()
        assert_same(x.grad, (-torch.sin(x) if name.startswith("pre_grad") else torch.cos(x)).detach() * 2)


@pytest.mark.parametrize("name", PASSES[1:])
def test_a_pass_is_in_the_key_by_its_uuid(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.sin(x) * 41

    def is_cached(run: Any) -> bool:
        return bool(flambeau.explain(function, options={name: run})(torch.ones(3)).programs[0].cached)

    assert [is_cached(as_cosine), is_cached(as_cosine)] == [False, False]
    assert [is_cached(Cosine(f"{name} 1")), is_cached(Cosine(f"{name} 1")), is_cached(Cosine(f"{name} 2"))] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_that_fails_is_told(name: str) -> None:
    def fails(graph: fx.Graph) -> None:
        raise KeyError("of the pass")

    with pytest.raises(InvalidOption, match=f"{name} failed: KeyError"):
        flambeau.compile(torch.sin, options={name: fails})(torch.ones(3))
