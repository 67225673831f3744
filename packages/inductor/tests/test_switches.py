"""Every stage, pass and rule that can be left out: a model computes the same without it, and something is different."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from tracing import traced

from flambeau_inductor import CompileContext, Config, OptionError, compile_graph
from flambeau_inductor.pipeline import switches
from flambeau_inductor.switches import limits
from flambeau_runtime import load


def _program(x: Tensor, w: Tensor, b: Tensor, image: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.nn.functional.gelu(torch.addmm(b, x.permute(0, 1), w.t()))
    normed = torch.softmax(hidden * 2, -1) + hidden.sum(-1, keepdim=True)
    seen = torch.relu(torch.conv2d(image, kernel, b[:4], padding=1))
    return normed.view(normed.shape), seen, (x.sum() + x.mean()).reshape(1)


def _inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(6, 8), torch.randn(8, 8), torch.randn(8), torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)]


def _artifact(program: Callable[..., Any], inputs: list[Tensor], disabled: str) -> Any:
    gm = traced(program, *inputs)
    return compile_graph(gm, inputs, Config(disabled_passes=disabled))


@pytest.mark.parametrize("name", sorted(switches()))
def test_the_result_is_the_same_without(name: str) -> None:
    """Nothing that can be left out is needed for a right result."""
    inputs = _inputs()
    expected = _program(*inputs)
    actual = load(_artifact(_program, inputs, name))(*inputs)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def _kernels(artifact: Any) -> int:
    return sum(1 for instruction in artifact.program.instructions if type(instruction).__name__ == "Launch")


def test_without_lowering_there_are_no_kernels() -> None:
    inputs = _inputs()
    assert _kernels(_artifact(_program, inputs, "")) > 0
    assert _kernels(_artifact(_program, inputs, "lowering")) == 0


def test_lowering_of_the_first_calls() -> None:
    """With a number, the first calls of the graph are kernels and the others the library's."""

    def chain(x: Tensor) -> Tensor:
        return x.sin().cos().exp()

    inputs = [torch.randn(8)]
    two = _artifact(chain, inputs, "lowering>2")
    assert _kernels(two) == 1
    assert "aten::exp" in two.text() and "aten::cos" not in two.text()
    torch.testing.assert_close(load(two)(*inputs)[0], chain(*inputs))


def test_without_fusion_there_are_more_kernels() -> None:
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        return y, y.sum()

    inputs = [torch.randn(64)]
    assert _kernels(_artifact(two, inputs, "fusion")) > _kernels(_artifact(two, inputs, ""))


def test_a_pass_and_a_rule_are_left_out() -> None:
    """A call that a rule takes away is there without the rule, and without the pass that applies it."""
    from flambeau_inductor.passes.order import PASSES
    from flambeau_inductor.passes.runner import run_passes

    def views(x: Tensor) -> Tensor:
        return torch.ops.aten.permute.default(torch.ops.aten.permute.default(x, [1, 0]), [1, 0]) + 1

    def calls(disabled: str) -> int:
        gm = traced(views, torch.randn(3, 4))
        done = run_passes(gm, PASSES, CompileContext(Config(disabled_passes=disabled)))
        return sum(node.target is torch.ops.aten.permute.default for node in done.graph.nodes)

    assert calls("") == 0
    assert calls("tidying") == calls("two_transposes") == 2
    assert calls("two_transposes>1") == 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(OptionError, match="no stage, pass or rule 'fusing'"):
        _artifact(_program, _inputs(), "fusing")


def test_limits_are_numbers() -> None:
    assert dict(limits("fusion, lowering>12")) == {"fusion": 0, "lowering": 12}
    with pytest.raises(OptionError, match="a number is expected"):
        limits("lowering>many")


def test_what_is_left_out_is_in_the_key() -> None:
    """Another program must not come from the cache."""
    assert Config().key() != Config(disabled_passes="fusion").key()


def test_modules_without_memory_sharing() -> None:
    """A chain of results in which memory is shared otherwise."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    inputs = [torch.randn(4, 8), *[p.detach() for p in model.parameters()]]

    def program(x: Tensor, *parameters: Tensor) -> Tensor:
        for place in range(0, len(parameters), 2):
            x = torch.addmm(parameters[place + 1], x, parameters[place].t()).relu()
        return x

    shared, apart = (_artifact(program, inputs, name).text() for name in ("", "memory"))
    assert shared != apart
