"""What the Triton generator refuses ends as library calls."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor import compile_graph
from flambeau_inductor.codegen.triton import ops
from flambeau_runtime.artifact import Call


def test_an_op_without_triton_text_becomes_a_library_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refused op is found behind the node that reads its value."""
    monkeypatch.delitem(ops._TEXTS, "erf")
    gm = make_fx(lambda x: (torch.erf(x * 2) * 3).sum(1), tracing_mode="fake")(torch.randn(5, 7))
    inputs = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    artifact = compile_graph(gm, inputs, {"cpu_backend": "triton"})
    calls = [i.op for i in artifact.program.instructions if isinstance(i, Call)]
    assert any("erf" in op for op in calls)
