"""Results of a graph whose history does not lead to its inputs any more, or not to these alone, because the graph holds a backward.

In: a trace that ended, and the tensors that come out of its graph. Out: their nodes, cut off from a history that a backend could not make, and
effects that give the real tensors what eager leaves them: a leaf of the graph's own requires grad; what a backward freed the history of
has one that raises as eager's does. `CannotCapture` where a history leads to a leaf that only the graph knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .captured import CallFunction, Effect
from .graph.histories import leaves_of
from .refusal import CannotCapture, TraceAnew
from .signals import GraphBreak
from .values.base import MISSING
from .values.constants import ConstantValue
from .values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import fx

    from .interp.tracer import Tracer
    from .values.base import Value

_REQUIRE: Any = torch.Tensor.requires_grad_


def result_nodes(
    tracer: Tracer, outputs: Sequence[Value], effects: tuple[Effect, ...]
) -> tuple[list[fx.Node], tuple[Effect, ...]]:
    """The nodes of what comes out of the graph; the effects, and after them what is done to these results."""
    if not all(holds() for holds in tracer.graph.lasting):
        raise _refused("what a hook reads is changed after it was registered")
    nodes: list[fx.Node] = []
    ends = tracer.graph.has_engine or tracer.graph.has_leaves
    for value in outputs:
        if not isinstance(value, TensorValue):
            nodes.append(value.node)  # type: ignore[attr-defined]  # a number of the graph
            continue
        node = tracer.recorder.node_of(value)
        later = _given_back(tracer, value, outputs) if ends and _requires_grad(value.fake) else None
        if later is not None:
            effects = (*effects, later)
            with tracer.graph.unpatched, tracer.graph.fake_mode:
                cut = value.fake.detach()
            node = tracer.graph.derive("detach", (node,), cut, "call_method")
        nodes.append(node)
    return nodes, effects


def _requires_grad(fake: torch.Tensor) -> bool:
    try:
        return fake.requires_grad
    except RuntimeError as error:  # of some views whose memory was written since they were taken
        raise _refused(f"a result may not be asked for its history: {error}") from error


def _given_back(tracer: Tracer, value: TensorValue, outputs: Sequence[Value]) -> Effect | None:
    """What makes of the detached result what eager has; None where the graph's own history will do."""
    if value.fake.is_leaf:
        return CallFunction(tracer.wrapper.wrap_pinned(_REQUIRE), (value, ConstantValue(True)))
    leaves = leaves_of([value.fake])
    owners = [tracer.wrapper.fake_owner.get(id(leaf)) for leaf in leaves]
    known = [owner for owner in owners if isinstance(owner, TensorValue)]
    own = [owner for owner in known if owner.tensor is MISSING]
    words = _why_ended(tracer, value.fake, leaves)
    if words is not None:
        if len(known) < len(leaves):
            raise _refused("a result whose history was freed leads to a tensor with a history of its own")
        given = [owner for owner in known if owner.source is not None]
        return CallFunction(tracer.wrapper.wrap_pinned(end_history), (ConstantValue(words), value, *given))
    if len(own) == len(leaves) or any(owner in outputs for owner in own):
        tracer.wrapper.dynamics.leaves_escape = True
        raise TraceAnew(GraphBreak("autograd-call", "a result leads to a leaf that the frame made"))
    return None


def _refused(what: str) -> CannotCapture:
    return CannotCapture(GraphBreak("autograd-call", what))


def _why_ended(tracer: Tracer, fake: torch.Tensor, leaves: Sequence[torch.Tensor]) -> str | None:
    """What eager raises for a backward of this, before it has given any leaf a gradient; None where nothing was freed."""
    kept = [leaf.grad for leaf in leaves]
    try:
        with tracer.graph.unpatched, tracer.graph.fake_mode, torch.autograd.set_multithreading_enabled(False):
            for leaf in leaves:
                leaf.grad = None
            torch.autograd.backward([fake], [torch.ones_like(fake)], retain_graph=True)
    except RuntimeError as error:
        if any(leaf.grad is not None for leaf in leaves):
            raise _refused("a result whose history was freed in part") from None
        return str(error) if "a second time" in str(error) else None
    finally:
        for leaf, grad in zip(leaves, kept, strict=True):
            leaf.grad = grad
    return None


class _Ended(torch.autograd.Function):
    """A tensor with a history whose backward raises."""

    @staticmethod
    def forward(ctx: Any, words: str, result: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
        """As `Function` defines it."""
        ctx.words = words
        ctx.mark_dirty(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        raise RuntimeError(ctx.words)


def end_history(words: str, result: torch.Tensor, *leaves: torch.Tensor) -> None:
    """Give `result` a history that leads to the leaves, and raises when a gradient comes to it."""
    # No write that the program could count.
    with torch.enable_grad(), torch.autograd._unsafe_preserve_version_counter(result):
        _Ended.apply(words, result, *(leaves or (torch.empty(0, requires_grad=True),)))
