"""Delta debugging of graphs, with questions that need no compiler."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from flambeau.debugging.reduce import Candidate, reduced


def _program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    a = torch.relu(x @ y)
    c = torch.nn.functional.layer_norm(a, (8,))
    d = c.softmax(-1) - a
    return d.exp().sum(0).cos(), a.sin().view(-1).mean(), torch.sigmoid(d) * 0.125


def _start() -> Candidate:
    torch.manual_seed(0)
    return Candidate(fx.symbolic_trace(_program), (torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)))


def _names(found: Candidate) -> set[str]:
    return {node.name for node in found.graph.graph.nodes if node.op.startswith("call_")}


def test_one_operation_is_left() -> None:
    """What it reads became inputs, as small as they may be."""
    best = reduced(_start(), lambda found: any(name.startswith("sub") for name in _names(found)))
    assert best.size == 1
    assert [tuple(value.shape) for value in best.inputs] == [(2, 2), (2, 2)]
    assert not any(value.requires_grad for value in best.inputs)
    best.graph(*best.inputs)


def test_two_operations_that_belong_together_are_left() -> None:
    def fails(found: Candidate) -> bool:
        names = _names(found)
        return any(n.startswith("matmul") for n in names) and any(n.startswith("exp") for n in names)

    assert reduced(_start(), fails).size == 2


def test_sizes_stay_where_they_matter() -> None:
    def fails(found: Candidate) -> bool:
        return any(isinstance(value, Tensor) and value.numel() >= 20 for value in found.inputs) and "relu" in _names(
            found
        )

    best = reduced(_start(), fails)
    assert best.size == 1
    assert 20 <= max(value.numel() for value in best.inputs) < 64


def test_every_candidate_computes_what_the_graph_did() -> None:
    """An operation that is left out is an input with what eager computes there."""
    start = _start()
    expected = start.graph(*start.inputs)[2]
    seen: list[Tensor] = []

    def fails(found: Candidate) -> bool:
        if not any(name.startswith("mul") for name in _names(found)):
            return False
        seen.append(found.graph(*found.inputs)[-1])
        return seen[-1].shape == expected.shape and torch.allclose(seen[-1], expected)

    assert reduced(start, fails).size == 1
    assert len(seen) > 1
