"""The backward of the backward.

In: the captured graph, the original inputs and the incoming gradients. Out: the same gradients as the compiled backward
gives, but with history. The captured graph is replayed in eager, under the autocast state it was compiled in, and
differentiated with `create_graph=True`: slower, exact, and only when asked for. What is not as it was in the forward is
recovered from what was saved (`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import UnsupportedDoubleBackward
from ..records import Layout, Lying, Signature
from .recovery import Recovery, Trace
from .relaid import Given, Relaid
from .stand_ins import HINT, changes, of_sizes, stand_in, with_history

_DEVICES = ("cpu", "cuda")
Rescue = Callable[[Exception, Callable[[], tuple[Any, ...]]], tuple[Any, ...]]
"""Asked for gradients where the compiled backward raised: the error, and what computes them in eager."""

Layouts = Callable[[list[Any], Sequence[Lying]], Mapping[int, Layout]]
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


def _ask(
    layouts: Layouts, replay: GraphModule, autocast: AutocastState, lying: tuple[Lying, ...], given: Given
) -> Mapping[int, Layout]:
    """How eager lays out the gradients, in the state that the graph was compiled in."""
    inputs = of_sizes(replay, given)
    with torch.enable_grad(), under_autocast(autocast):
        return layouts(inputs, lying)


class DoubleBackward:
    """Called by the node with the inputs of the forward and the tangents when grad mode is on in a backward."""

    def __init__(
        self,
        signature: Signature,
        replay: GraphModule | None,
        retrace: Callable[[], Trace] | None = None,
        layouts: Layouts | None = None,
        rescue: Rescue | None = None,
    ) -> None:
        self._signature = signature
        self._answer = rescue
        self._replay = replay
        self._retrace = retrace
        self._trace: Trace | None = None
        self._autocast = autocast_state()
        #: Called by the node where a tangent lay otherwise than the backward was compiled for, and somebody may look at a gradient; or was handed on.
        self.relaid: Relaid | None = None
        if layouts is not None and replay is not None and (signature.follows or signature.hands_on):
            ask = partial(_ask, layouts, replay, self._autocast)
            self.relaid = Relaid(ask, signature.grad_inputs, changing=changes(replay), hands_on=signature.hands_on)

    @property
    def rescue(self) -> Callable[..., tuple[Any, ...]] | None:
        """Called by the node where the compiled backward raised; None: its error is."""
        return None if self._answer is None else self._rescue

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

    def _rescue(
        self,
        error: Exception,
        inputs: tuple[Any, ...] = (),
        tangents: tuple[torch.Tensor | None, ...] | None = None,
        saved: Sequence[Any] = (),
    ) -> tuple[Any, ...]:
        """What a compiled backward that raised should have given. Arguments as of `__call__`; none where it has freed what it was given."""
        assert self._answer is not None

        def repeat() -> tuple[Any, ...]:
            if tangents is None:
                raise UnsupportedDoubleBackward("the backward has freed what it was given")
            return self(
                inputs, tuple(t if t is None else t.detach() for t in tangents), tuple(saved), create_graph=False
            )

        try:
            return self._answer(error, repeat)
        finally:
            # This frame is in the traceback of what it raises.
            del error

    def __call__(
        self,
        inputs: tuple[Any, ...],
        tangents: tuple[torch.Tensor | None, ...],
        saved: tuple[Any, ...] = (),
        *,
        create_graph: bool = True,
    ) -> tuple[Any, ...]:
        """Gradients of the signature's `grad_inputs`. `inputs`: for one that was written since the text of an error, its sizes and strides, and a
        tensor with its history or None; for one that is gone an empty text and these. `tangents`: None where no gradient came in. `saved`: what the
        forward saved. `create_graph`: with a history. Raises `UnsupportedDoubleBackward` with the reason.
        """
        signature = self._signature
        if self._replay is None:
            raise UnsupportedDoubleBackward("cannot differentiate twice: the captured graph was not kept")
        if signature.not_linear and any(tangent is not None and tangent.requires_grad for tangent in tangents):
            # The next backward comes by the tangents to the node itself, and to the graph that is run here beside.
            raise UnsupportedDoubleBackward(
                f"cannot differentiate twice: a function's own backward is not linear in what comes in ({signature.not_linear})"
            )
        written = {m.index for m in signature.mutations}
        with torch.enable_grad():
            fed = []
            for i, value in enumerate(inputs):
                if isinstance(value, tuple):
                    history = value[3]
                    value = stand_in(self._replay, i, inputs)
                    value = value if history is None else with_history(value, history)
                elif i in written:
                    value = with_history(_zeros(value, value.shape, value.stride()), value)
                elif isinstance(value, torch.Tensor):
                    value = value[...]
                fed.append(value)
            after = [value.clone() if i in written else value for i, value in enumerate(fed)]
            with under_autocast(self._autocast):
                outputs, explained = self._run(inputs, after, saved)
            targets = [fed[i] for i in signature.grad_inputs]
            by_result = {o.index: outputs[i] for i, o in enumerate(signature.outputs) if o.kind == "graph"}
            by_result.update({m.output: after[m.index] for m in signature.mutations if m.mode == "wrapper"})
            pairs = [(by_result.get(r), t) for r, t in zip(signature.differentiable, tangents) if t is not None]
            if any(out is None for out, _ in pairs):
                raise UnsupportedDoubleBackward("cannot differentiate twice: an output is rebuilt from another")
            with explained:
                return torch.autograd.grad(
                    [out for out, _ in pairs],
                    targets,
                    [t for _, t in pairs],
                    create_graph=create_graph,
                    allow_unused=True,
                )

    def _run(
        self, inputs: tuple[Any, ...], fed: list[Any], saved: tuple[Any, ...]
    ) -> tuple[Any, AbstractContextManager[None]]:
        """The captured graph on `fed`, and in what to differentiate it. Where it gives other values than in the forward, autograd saves what
        follows from `saved` instead."""
        signature = self._signature
        assert self._replay is not None
        written = {m.index for m in signature.mutations}
        lost = written.union(i for i, value in enumerate(inputs) if isinstance(value, tuple))
        if not signature.double_backward and lost.isdisjoint(signature.decisive):
            return self._replay(*fed), nullcontext()
        recovery = Recovery(self._traced(), lost, fed, saved, self._reason(inputs, lost & set(signature.decisive)))
        borders = {value.grad_fn for value in fed if isinstance(value, torch.Tensor)}
        devices = {value.device for value in fed if isinstance(value, torch.Tensor) and value.is_cuda}
        fork = torch.random.fork_rng(sorted(devices, key=str), enabled=bool(signature.double_backward))
        with fork, torch.autograd.graph.saved_tensors_hooks(recovery.pack, recovery.unpack), recovery.mode:
            outputs = self._replay(*fed)
        by_result = {o.index: outputs[i] for i, o in enumerate(signature.outputs) if o.kind == "graph"}
        by_result.update({m.output: fed[m.index] for m in signature.mutations if m.mode == "wrapper"})
        recovery.hold([by_result.get(r) for r in signature.differentiable], borders)
        recovery.finish()
        return outputs, recovery.explained()

    def _reason(self, inputs: tuple[Any, ...], decisive: set[int]) -> Exception:
        """The error for a value that does not follow from what was saved."""
        written = {m.index for m in self._signature.mutations}
        for i in sorted(decisive - written):
            if isinstance(inputs[i], tuple) and inputs[i][0]:
                return RuntimeError(inputs[i][0])
        if self._signature.double_backward:
            return UnsupportedDoubleBackward(f"cannot differentiate twice: {self._signature.double_backward}")
        if decisive & written:
            return UnsupportedDoubleBackward(
                "cannot differentiate twice: the graph overwrites an input that decides gradients"
            )
        return UnsupportedDoubleBackward("cannot differentiate twice: an input of the forward was freed", HINT)

    def _traced(self) -> Trace:
        if self._trace is None:
            trace = None if self._retrace is None else self._retrace()
            if trace is None or trace.specs != self._signature.saved:
                raise UnsupportedDoubleBackward(
                    "cannot differentiate twice: how values follow from what was saved is not known"
                )
            self._trace = trace
        return self._trace
