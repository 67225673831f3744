"""What a generator or a rule gets wrong ends as library calls."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor import compile_graph
from flambeau_inductor.codegen.triton import ops
from flambeau_inductor.errors import LoweringError
from flambeau_inductor.lowering import run as lowering
from flambeau_runtime.artifact import Call

from .conftest import lower_and_run


def test_an_op_without_triton_text_becomes_a_library_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refused op is found behind the node that reads its value."""
    monkeypatch.delitem(ops._TEXTS, "erf")
    gm = make_fx(lambda x: (torch.erf(x * 2) * 3).sum(1), tracing_mode="fake")(torch.randn(5, 7))
    inputs = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    artifact = compile_graph(gm, inputs, {"cpu_backend": "triton"})
    calls = [i.op for i in artifact.program.instructions if isinstance(i, Call)]
    assert any("erf" in op for op in calls)


def test_a_rule_that_would_give_other_sizes_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op becomes a library call, with the reason counted."""

    def first_operand(g, a, b, alpha=1):
        return a

    found = lowering.rule_for
    add = torch.ops.aten.add.Tensor
    monkeypatch.setattr(lowering, "rule_for", lambda op: first_operand if op is add else found(op))
    a, b = torch.randn(1, 7), torch.randn(5, 7)
    lowered = lower_and_run(lambda a, b: a + b, a, b)
    torch.testing.assert_close(lowered.outputs[0], a + b)
    assert lowered.calls == ["add.Tensor"] and any("other sizes" in reason for reason in lowered.context.library_calls)


def test_a_rule_that_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told with the op, not taken for a rule that declines."""

    def raises(g, a, b, alpha=1):
        raise IndexError("a fault of ours")

    found = lowering.rule_for
    monkeypatch.setattr(lowering, "rule_for", lambda op: raises if op is torch.ops.aten.add.Tensor else found(op))
    with pytest.raises(LoweringError, match=r"aten.add.Tensor: IndexError: a fault of ours"):
        lower_and_run(lambda a, b: a + b, torch.randn(3), torch.randn(3))
