"""What shares memory, or is one object, with what a frame changes.

In: a trace that ended. Out: guards that keep it so, or `CannotCapture` where the graph would not do what eager does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING

import torch

from .graph.shapes import has_own_elements
from .guards.memory import share_memory
from .guards.spec import ConstantIs, DistinctStorage, GuardSpec, NoAlias
from .refusal import CannotCapture, refuse_fullgraph
from .signals import GraphBreak
from .sources.source import Attribute, Computed, Pinned, Source
from .values.subclasses import is_plain_of

if TYPE_CHECKING:
    from .interp.tracer import Tracer


def tensor_guards(tracer: Tracer) -> tuple[GuardSpec, ...]:
    """Inputs are different objects, and the memory of those that the graph writes is no other input's. Raises CannotCapture."""
    inputs = tracer.wrapper.tensor_inputs
    named = tuple(source for _, _, source in inputs if not isinstance(source, Pinned))
    guards: tuple[GuardSpec, ...] = (NoAlias(named),) if len(named) > 1 else ()
    hidden = _written_unseen(tracer)
    is_written = [_is_written(fake) or fake.untyped_storage()._cdata in hidden for _, fake, _ in inputs]
    if not any(is_written) or len(inputs) < 2:
        return guards
    tensors = [tensor for tensor, _, _ in inputs]
    if share_memory([*compress(tensors, is_written)], [*compress(tensors, map(not_, is_written))]):
        reason = GraphBreak("external-mutation", "a tensor is written whose memory another input shares")
        raise CannotCapture(reason, always=False)
    sources = [source for _, _, source in inputs]
    written, read = compress(sources, is_written), compress(sources, map(not_, is_written))
    return (*guards, DistinctStorage(tuple(written), tuple(read)))


def _is_written(fake: torch.Tensor) -> bool:
    return not fake.is_inference() and fake._version > 0


def _written_unseen(tracer: Tracer) -> set[int]:
    """The storages that are written through `tensor.data`, which counts writes for itself."""
    values = (
        node.meta["val"] for node in tracer.graph.graph.nodes if node.target is getattr and node.args[1:] == ("data",)
    )
    return {value.untyped_storage()._cdata for value in values if _is_written(value)}


def refuse_writes(tracer: Tracer) -> None:
    """Leave the call to eager where it writes to a tensor that eager would not write, or whose memory is not simply its own elements.

    A write to one element of an expanded tensor shows in others; a graph without writes would give each its own value. An inference
    tensor may not be written outside of inference mode: there its fake is an ordinary tensor, which counts writes through views too.
    """
    hidden = _written_unseen(tracer)
    for tensor, fake, source in tracer.wrapper.tensor_inputs:
        if not _is_written(fake) and fake.untyped_storage()._cdata not in hidden:
            continue
        what = ""
        if tensor.is_inference():
            what = "an inference tensor, outside of inference mode,"
        elif tensor.is_conj() or tensor.is_neg():
            what = "a conjugated or negated view"
        elif not has_own_elements(tensor, fake):
            what = "a tensor whose elements share memory"
        elif tensor.requires_grad and not _keeps_history(tensor):
            what = "a view taken without gradients, or one of several,"
        elif tensor.requires_grad and is_plain_of(source) and tracer.graph.has_history():
            # What is computed of a view that was written without gradients has none, in torch itself.
            what = "a tensor of a subclass that has a history"
        elif tensor.requires_grad and _is_looked_at(tensor):
            what = "a tensor whose gradient the program looks at"
        if what:
            reason = GraphBreak("external-mutation", f"{what} is written")
            refuse_fullgraph(reason, tracer.config)
            raise CannotCapture(reason, always=False)


def refuse_resized(tracer: Tracer) -> None:
    """Leave the call to eager where an input has another size than its history says, which a write without gradients gave it.

    Its gradient has to fit the former size, and does as eager's formulas happen to leave it: a sum for the new size may be one too many.
    """
    for tensor, _, _ in tracer.wrapper.tensor_inputs:
        # Whether the history of a view was asked for shows in later writes.
        if not tensor.requires_grad or tensor.is_leaf or tensor._is_view() or tensor.grad_fn is None:
            continue
        known = tensor.grad_fn._input_metadata[tensor.output_nr]
        if not known.is_nested_tensor and tuple(known.shape) != tuple(tensor.shape):
            reason = GraphBreak("external-mutation", "a tensor got another size since it was computed")
            refuse_fullgraph(reason, tracer.config)
            raise CannotCapture(reason, always=False)


def history_guards(tracer: Tracer, broken: GraphBreak | None) -> Iterator[GuardSpec]:
    """Whether a tensor that requires grad and is written is a leaf, or a view of one: eager refuses writes to those, and so did the
    trace, if an operator ended it. Whether it is a view that a write takes the history from."""
    refused = broken is not None and broken.code == "operator-error"
    hidden = _written_unseen(tracer)
    for tensor, fake, source in tracer.wrapper.tensor_inputs:
        if not tensor.requires_grad or fake.is_inference() or isinstance(source, Pinned):
            continue
        is_written = fake._version or fake.untyped_storage()._cdata in hidden
        if isinstance(tensor, torch.nn.Parameter) or not (is_written or refused):
            continue
        if tracer.overrides.outer:  # the guards would ask the mode
            reason = GraphBreak("external-mutation", "a tensor with a history, within a mode of __torch_function__")
            raise CannotCapture(reason, always=False)
        yield ConstantIs(Attribute(source, "is_leaf"), tensor.is_leaf)
        base, owner = Attribute(source, "_base"), tensor._base
        if owner is None:
            yield ConstantIs(base, None)
            yield ConstantIs(Attribute(source, "retains_grad"), tensor.retains_grad)
            continue
        yield ConstantIs(Attribute(base, "is_leaf"), owner.is_leaf)
        yield ConstantIs(Computed(source, _is_looked_at, f"_is_looked_at({source.name})"), _is_looked_at(tensor))
        yield ConstantIs(Computed(source, _keeps_history, f"_keeps_history({source.name})"), _keeps_history(tensor))


def _is_looked_at(tensor: torch.Tensor) -> bool:
    """Whether a gradient other than the one that a graph gives an input is kept, or handed to a hook: in eager that of what the write made of the
    tensor is kept, and hooks of a view, which gets its history from its base then, are not called any more."""
    base = tensor._base
    if base is None:
        return tensor.retains_grad
    return tensor.retains_grad or base.retains_grad or bool(tensor._backward_hooks)


def _keeps_history(tensor: torch.Tensor) -> bool:
    """False for a view taken without gradients, by an op that gives several or inside a function of the user's: when its memory is written,
    eager raises for whoever asks for its history afterwards. A graph's input is no view, and would still have one."""
    meta = torch._C._autograd
    return not tensor._is_view() or meta._get_creation_meta(tensor) == meta.CreationMeta.DEFAULT


def object_guards(tracer: Tracer) -> Iterator[GuardSpec]:
    """Objects that the program changes are not other objects that it looks at: what it read from those would have changed too."""
    changed = {value.python_type() for value in tracer.heap.targets()}
    by_type: dict[type, dict[str, Source]] = {}
    for value in tracer.wrapper.wrapped.values():
        if value.source is not None and value.python_type() in changed:
            by_type.setdefault(value.python_type(), {})[value.source.name] = value.source
    for sources in by_type.values():
        if len(sources) > 1:
            yield NoAlias(tuple(sources.values()))
