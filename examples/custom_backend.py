"""A backend of your own, twice: on the captured graph, and on the forward and backward graphs.

Run it with `python examples/custom_backend.py`.
"""

from __future__ import annotations

from typing import Any

import torch

import flambeau
from flambeau_autograd import aot_autograd


def captured_calls(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
    """A backend on torch-level calls: what the user wrote. `example_inputs` are the real tensors of the first call."""
    names = [node.target if isinstance(node.target, str) else node.target.__name__ for node in gm.graph.nodes]
    print("captured:", " ".join(name for name in names if name != "output"))
    return gm.forward


def aten_calls(kind: str) -> Any:
    """A compiler of functional ATen graphs: what autograd made of it."""

    def compiler(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        calls = [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]
        print(f"{kind}: {len(calls)} calls, the first ones {calls[:4]}")
        return gm.forward

    return compiler


flambeau.compiler.register_backend(captured_calls, name="captured")
flambeau.compiler.register_backend(
    aot_autograd(fw_compiler=aten_calls("forward"), bw_compiler=aten_calls("backward")), name="aten"
)


def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """(n, d) and (d, k) to a number."""
    return torch.tanh(x @ w).square().sum()


def main() -> None:
    """Run the function with both backends and compare the gradients with eager's."""
    torch.manual_seed(0)
    x, w = torch.randn(8, 4), torch.randn(4, 2, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(x, w), w)
    for backend in ("captured", "aten"):
        compiled = flambeau.compile(loss, backend=backend)
        (actual,) = torch.autograd.grad(compiled(x, w), w)
        torch.testing.assert_close(actual, expected)
    print("backends:", flambeau.compiler.list_backends())


if __name__ == "__main__":
    main()
