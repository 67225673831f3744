"""The backward of the backward.

In: the captured graph, the original inputs and the incoming gradients. Out: the same gradients as the compiled backward
gives, but with history. The captured graph is replayed in eager, under the autocast state it was compiled in, and
differentiated with `create_graph=True`: slower, exact, and only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import UnsupportedDoubleBackward
from ..records import Signature
from .stand_ins import stand_in

_DEVICES = ("cpu", "cuda")
AutocastState = tuple[tuple[str, bool, torch.dtype], ...]


def autocast_state() -> AutocastState:
    """Device type, whether autocast is on, its dtype."""
    return tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES)


def _set_autocast(state: AutocastState) -> None:
    for device, enabled, dtype in state:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextmanager
def under_autocast(state: AutocastState) -> Iterator[None]:
    """Run under `state`; casts made meanwhile are not kept for the code around."""
    before = autocast_state()
    torch.autocast_increment_nesting()
    _set_autocast(state)
    try:
        yield
    finally:
        _set_autocast(before)
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


def _zeros(like: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    return like.new_empty_strided(sizes, strides).zero_()


class DoubleBackward:
    """Called by the node with the inputs of the forward and the tangents when grad mode is on in a backward."""

    def __init__(self, signature: Signature, replay: GraphModule | None) -> None:
        self._signature = signature
        self._replay = replay
        self._autocast = autocast_state()

    def again(self, inputs: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients that no value of an input decides, when what the backward saved is gone. `inputs`: numbers, and for a tensor an empty one of
        its type, its sizes and strides; `tangents`: None where no gradient came in.
        """
        signature = self._signature
        if self._replay is None:
            raise UnsupportedDoubleBackward("cannot run a backward twice: the captured graph was not kept")
        written = {m.index for m in signature.mutations}
        devices = {value[0].device for value in inputs if isinstance(value, tuple) and value[0].is_cuda}
        with torch.random.fork_rng(sorted(devices, key=str)), torch.enable_grad(), under_autocast(self._autocast):
            leaves = [_zeros(*value) if isinstance(value, tuple) else value for value in inputs]
            for i in signature.grad_inputs:
                leaves[i].requires_grad_()
            fed = [leaf.clone() if i in written else leaf for i, leaf in enumerate(leaves)]
            outputs = self._replay(*fed)
        by_result = {o.index: outputs[i] for i, o in enumerate(signature.outputs) if o.kind == "graph"}
        by_result.update({m.output: fed[m.index] for m in signature.mutations if m.mode == "wrapper"})
        pairs = [(by_result.get(r), t) for r, t in zip(signature.differentiable, tangents) if t is not None]
        if any(out is None for out, _ in pairs):
            raise UnsupportedDoubleBackward("cannot run a backward twice: an output is rebuilt from another")
        return torch.autograd.grad(
            [out for out, _ in pairs],
            [leaves[i] for i in signature.grad_inputs],
            [t for _, t in pairs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )

    def __call__(self, inputs: tuple[Any, ...], tangents: tuple[torch.Tensor | None, ...]) -> tuple[Any, ...]:
        """Gradients of the signature's `grad_inputs`. `inputs`: for one that was written since the text of an error, its sizes and strides, for
        one that is gone an empty text and these; `tangents`: None where no gradient came in. Raises `UnsupportedDoubleBackward` with the reason.
        """
        signature = self._signature
        if signature.double_backward:
            raise UnsupportedDoubleBackward(f"cannot differentiate twice: {signature.double_backward}")
        if self._replay is None:
            raise UnsupportedDoubleBackward("cannot differentiate twice: the captured graph was not kept")
        self._refuse_lost(inputs)
        written = {m.index for m in signature.mutations}
        with torch.enable_grad():
            fed = []
            for i, value in enumerate(inputs):
                if isinstance(value, tuple):
                    value = stand_in(self._replay, i, inputs).requires_grad_(i in signature.grad_inputs)
                if isinstance(value, torch.Tensor):
                    value = value.clone() if i in written else value[...]
                fed.append(value)
            with under_autocast(self._autocast):
                outputs = self._replay(*fed)
            targets = [fed[i] for i in signature.grad_inputs]
            by_result = {o.index: outputs[i] for i, o in enumerate(signature.outputs) if o.kind == "graph"}
            pairs = [(by_result.get(r), t) for r, t in zip(signature.differentiable, tangents) if t is not None]
            if any(out is None for out, _ in pairs):
                raise UnsupportedDoubleBackward("cannot differentiate twice: an output is rebuilt from another")
            return torch.autograd.grad(
                [out for out, _ in pairs], targets, [t for _, t in pairs], create_graph=True, allow_unused=True
            )

    def _refuse_lost(self, inputs: tuple[Any, ...]) -> None:
        """Raise for an input that is not there as it was and whose contents decide gradients."""
        for i in self._signature.decisive:
            if not isinstance(inputs[i], tuple):
                continue
            if words := inputs[i][0]:
                raise RuntimeError(words)
            raise UnsupportedDoubleBackward(
                "cannot differentiate twice: an input of the forward was freed", "keep the inputs alive"
            )
