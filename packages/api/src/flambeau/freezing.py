"""Which inputs of a graph are frozen: parameters and buffers that hold the same for many calls (the option `freezing`).

In: a captured graph, what autograd made of it, the options. Out: the places of the inputs from which inductor computes beforehand what follows from them.
Nothing is assumed of their contents: the compiled program looks at each call whether they are what they were (`flambeau_runtime.FrozenProgram`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

import flambeau_autograd as autograd

from .options import Options


def may_freeze(inputs: Sequence[Any], options: Options) -> bool:
    """Whether the options ask for it and no gradient is wanted."""
    if not options["freezing"]:
        return False
    wanted = (isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
    return not (torch.is_grad_enabled() and any(wanted))


def frozen_places(
    gm: fx.GraphModule, prepared: autograd.Prepared, inputs: Sequence[Any], options: Options
) -> tuple[int, ...]:
    """The places of the parameters and buffers, of those that the graph does not write to, and that share no memory with what it writes to."""
    if prepared.backward is not None or not may_freeze(inputs, options):
        return ()
    written = {_storage(inputs[mutation.index]) for mutation in prepared.signature.mutations}
    return tuple(
        place
        for place, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if node.meta.get("static") and type(inputs[place]) is FakeTensor and _storage(inputs[place]) not in written
    )


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
