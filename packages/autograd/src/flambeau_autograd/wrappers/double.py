"""The backward of the backward.

In: the captured graph, the original inputs and the incoming gradients. Out: the same gradients as the compiled backward
gives, but with history. The captured graph is replayed in eager and differentiated with `create_graph=True`: slower,
exact, and only when asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import UnsupportedDoubleBackward
from ..records import Signature


class DoubleBackward:
    """Called by the node with the inputs of the forward and the tangents when grad mode is on in a backward."""

    def __init__(self, signature: Signature, replay: GraphModule | None) -> None:
        self._signature = signature
        self._replay = replay

    def __call__(self, inputs: tuple[Any, ...], tangents: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        """Gradients of the signature's `grad_inputs`. Raises `UnsupportedDoubleBackward` with the reason."""
        signature = self._signature
        if signature.double_backward:
            raise UnsupportedDoubleBackward(f"cannot differentiate twice: {signature.double_backward}")
        if self._replay is None:
            raise UnsupportedDoubleBackward("cannot differentiate twice: the captured graph was not kept")
        written = {m.index for m in signature.mutations}
        with torch.enable_grad():
            fed = []
            for i, value in enumerate(inputs):
                if isinstance(value, torch.Tensor):
                    value = value.clone() if i in written else value.view_as(value)
                fed.append(value)
            outputs = self._replay(*fed)
            targets = [fed[i] for i in signature.grad_inputs]
            if any(t is None for t in targets):
                raise UnsupportedDoubleBackward(
                    "cannot differentiate twice: an input of the forward was freed", "keep the inputs alive"
                )
            by_result = {o.index: outputs[i] for i, o in enumerate(signature.outputs) if o.kind == "graph"}
            pairs = [(by_result.get(r), t) for r, t in zip(signature.differentiable, tangents)]
            if any(out is None for out, _ in pairs):
                raise UnsupportedDoubleBackward("cannot differentiate twice: an output is rebuilt from another")
            return torch.autograd.grad(
                [out for out, _ in pairs], targets, [t for _, t in pairs], create_graph=True, allow_unused=True
            )
