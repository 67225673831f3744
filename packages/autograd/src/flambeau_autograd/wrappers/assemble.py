"""Joins compiled halves to the caller, with only the wrappers that the signature asks for.

In: a `Signature`, the compiled forward and backward. Out: a callable with the calling convention of the captured graph:
positional inputs, a tuple of outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from ..config import Config
from ..records import Signature
from .double import DoubleBackward, Layouts, Rescue
from .native import joint_type
from .outputs import OutputBuilder
from .recovery import Trace


def assemble(
    signature: Signature,
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None,
    *,
    replay: GraphModule | None = None,
    retrace: Callable[[], Trace] | None = None,
    layouts: Layouts | None = None,
    rescue: Rescue | None = None,
    config: Config | None = None,
    isolate: bool = False,
) -> Callable[..., Any]:
    """The callable for the whole graph.

    `replay` is the captured graph; it is only run when the backward itself is differentiated (`create_graph=True`). Where an input is gone
    by then, `retrace` says how what eager would have saved follows from what was saved. `layouts` says how eager lays out gradients for
    tangents of other layouts than the backward was compiled for. Where the backward raises, `rescue(error, repeat)` gives the gradients, or raises:
    `repeat()` computes them in eager, or raises `UnsupportedDoubleBackward`.
    Without a backward, writes or rebuilt outputs, the forward itself is handed back when it is not boxed, unless `isolate`
    says that autograd would see what it does.
    """
    config = config or Config.from_environment()
    bumped = tuple(m.index for m in signature.mutations if m.mode == "graph")
    writes = any(m.mode != "wrapper" for m in signature.mutations)
    joined: Callable[..., Any]
    if backward is None and not (writes or isolate) and not getattr(forward, "_boxed_call", False):
        joined = forward
    else:
        double = DoubleBackward(signature, replay, retrace, layouts, rescue)
        joined = joint_type(config.native)(
            forward,
            backward,
            signature.results,
            signature.extras if backward is not None else 0,
            signature.differentiable if backward is not None else (),
            signature.tangent_orders if backward is not None else (),
            signature.grad_inputs if backward is not None else (),
            signature.reached_by if backward is not None else (),
            signature.led_by if backward is not None else (),
            tuple((s.kind, s.index, s.is_tensor, s.shares, s.checked) for s in signature.saved)
            if backward is not None
            else (),
            tuple((w.kind, w.index, w.reached, w.kept) for w in signature.watched) if backward is not None else (),
            signature.frees if backward is not None else (),
            bumped,
            double,
            signature.flagged if backward is not None else (),
        )
    if signature.is_plain:
        return joined
    return OutputBuilder(signature, joined)
