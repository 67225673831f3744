"""Passes that can be left out: results and gradients are the same without each, and the graph is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from flambeau_autograd import Config, OptionError, compile_joint, merged, prepare
from flambeau_autograd.joint.build import build_joint
from flambeau_autograd.passes.runner import SWITCHES, run_passes


def _program(x: Tensor, y: Tensor) -> tuple[Tensor]:
    wasted = x.exp()  # noqa: F841  dead
    a = (x * y).sin() + 0
    b = (x * y).sin().view(3, 4)
    return (torch.sigmoid(a * b).cos().sum(0),)


def _graph() -> tuple[fx.GraphModule, list[Any]]:
    torch.manual_seed(0)
    inputs = [torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)]
    gm = fx.symbolic_trace(_program)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
    for node, fake in zip(gm.graph.find_nodes(op="placeholder"), fakes, strict=True):
        node.meta["val"] = fake
    return gm, fakes


def _run(graph: fx.GraphModule, inputs: list[Any]) -> Any:
    return graph.forward


@pytest.mark.parametrize("name", SWITCHES)
def test_the_gradients_are_the_same_without(name: str) -> None:
    gm, fakes = _graph()
    compiled = compile_joint(gm, fakes, forward_compiler=_run, config=Config(disabled_joint_passes=name))
    ours = [torch.linspace(-1, 1, 12).view(3, 4).requires_grad_(), torch.linspace(0, 2, 12).view(3, 4).requires_grad_()]
    theirs = [value.detach().clone().requires_grad_() for value in ours]
    (result,), (expected,) = compiled(*ours), _program(*theirs)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def _nodes(disabled: str) -> int:
    gm, fakes = _graph()
    prepared = prepare(gm, fakes, config=Config(disabled_joint_passes=disabled))
    assert prepared.backward is not None
    return len(prepared.forward.graph.nodes) + len(prepared.backward.graph.nodes)


def test_without_a_pass_the_graphs_are_larger() -> None:
    assert _nodes("common_subexpressions") > _nodes("")


def test_dead_code_stays() -> None:
    """What is left out is not run."""

    def tidied(disabled: str) -> tuple[list[str], int]:
        gm, fakes = _graph()
        joint = build_joint(gm, fakes, merged(None), Config(disabled_joint_passes=disabled))
        reports = run_passes(joint, Config(disabled_joint_passes=disabled))
        return [report.name for report in reports], len(joint.graph.nodes)

    names, size = tidied("")
    left, larger = tidied("dead_code, dead_code_again")
    assert set(names) - set(left) == {"dead_code", "dead_code_again"}
    assert larger > size


def test_without_the_cut_everything_is_saved() -> None:
    gm, fakes = _graph()
    cut = prepare(gm, fakes, config=Config())
    gm, fakes = _graph()
    whole = prepare(gm, fakes, config=Config(disabled_joint_passes="min_cut"))
    assert len(whole.signature.saved) > len(cut.signature.saved)


def test_what_makes_a_graph_right_cannot_be_left_out() -> None:
    with pytest.raises(OptionError, match="no pass 'separate_results'"):
        _nodes("separate_results")
