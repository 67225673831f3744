"""What calls of cuDNN's attention are given, so that its gradients are right.

In: the arguments of a call, as lowering has them. Out: those that the program gives it.

torch (2.11 with cuDNN 9.5.1 or later) keeps the kernels that it built for a gradient by the layouts of queries, keys, values and bias, by dropout and by whether the mask is
causal, but not by the layout of the result's gradient, which is built into them. A call with another layout than the first of its kind is computed wrongly, without an error,
whoever made the first: a program that ran in eager before, or a compiled one, in which gradients lie as autograd says. So ours are of a kind of their own, in which the
result and its gradient lie as queries do, which eager's mostly do as well: a probability of dropout of -0.0 is another kind than 0.0, and so is the next number above a positive one
(of float32, by which one of 10^7 elements is dropped that was kept; forward and backward have to agree). `tests/gpu/test_attention.py` compares them with the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..expr import hint
from ..ir.layout import strides_in_order
from .builder import Builder
from .values import TensorValue

aten = torch.ops.aten
_Arguments = list[Any]

#: Places of arguments.
_FORWARD_DROPOUT = 5
_GRAD, _QUERY, _OUT, _BACKWARD_DROPOUT = 0, 1, 4, 13


def _forward(g: Builder, node: fx.Node, given: _Arguments) -> None:
    if len(given) > _FORWARD_DROPOUT and given[_FORWARD_DROPOUT] != 0:
        given[_FORWARD_DROPOUT] = _next(given[_FORWARD_DROPOUT])


def _backward(g: Builder, node: fx.Node, given: _Arguments) -> None:
    # Not as the graph says that they lie: queries that lowering computes may lie otherwise.
    queries = g.ref(given[_QUERY])
    order = sorted(range(len(queries.sizes)), key=lambda d: (-hint(queries.strides[d]), d))
    for place in (_GRAD, _OUT):
        ref = g.ref(given[place])
        strides = strides_in_order(ref.sizes, order)
        given[place] = TensorValue.of_ref(ref if ref.lies_as(strides) else g.copy(given[place], strides))
    dropout = given[_BACKWARD_DROPOUT]
    given[_BACKWARD_DROPOUT] = _next(dropout) if dropout != 0 else -0.0


def _next(probability: Any) -> Any:
    """The next number of float32; what is known at run time stays."""
    if not isinstance(probability, float):
        return probability
    return torch.nextafter(torch.tensor(probability, dtype=torch.float32), torch.tensor(1.0)).item()


#: Ops -> what changes the list of their positional arguments, given the node.
PREPARED: dict[Any, Callable[[Builder, fx.Node, _Arguments], None]] = {
    aten._scaled_dot_product_cudnn_attention.default: _forward,
    aten._scaled_dot_product_cudnn_attention_backward.default: _backward,
}
