"""`torch.amp.GradScaler`: the step of an optimizer that is taken only where all gradients are finite.

In: `_maybe_opt_step`, which eager decides by a number that it reads out of a tensor. Out: the step in the graph, without that number: after it, all memory that it
wrote to is what it was before, where the step is to be skipped (`torch.where`). What it changes in Python is nothing from the second step on. The first makes the
optimizer's state, which is dropped again where that step was to be skipped; that alone is asked after the graph. A step that does more breaks the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.amp import GradScaler

from ..class_names import class_module
from ..effects.record import Contents
from ..graph.repeats import Region
from ..replacements import replaces
from ..signals import GraphBreak, TracedRaise
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.mappings import DictValue
from ..values.tensor import TensorValue
from .gradients import without_grad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_MAYBE_STEP: Any = GradScaler._maybe_opt_step


@replaces(_MAYBE_STEP)
def maybe_step(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`_maybe_opt_step(scaler, optimizer, optimizer_state, *args, **kwargs)`."""
    _, optimizer, state, *given = args
    found = t.wrapper.wrap_pinned(_infinities)
    counts = [value.realise(t) for value in t.operators.iterate_all(t.caller.call(found, [state], {}))]
    real: Any = optimizer.realise(t).real()
    in_one_graph = not (t.graph.bodies or t.graph.region or given or kwargs) and isinstance(real, torch.optim.Optimizer)
    if len(counts) != 1 or not isinstance(counts[0], TensorValue) or not in_one_graph:
        return t.caller.inline_function(t.wrapper.wrap_pinned(_MAYBE_STEP), _MAYBE_STEP, args, kwargs)
    skipped = t.recorder.record("call_method", "ne", [counts[0], ConstantValue(0)], {})
    assert isinstance(skipped, TensorValue)
    _step_unless(t, skipped, optimizer.realise(t), real)
    return ConstantValue(None)


def _infinities(optimizer_state: Any) -> list[Any]:
    return list(optimizer_state["found_inf_per_device"].values())


def _step_unless(t: Tracer, skipped: TensorValue, optimizer: Value, real: Any) -> None:
    """The step, and what it wrote put back where `skipped` says so."""
    was_read = id(real.state) in t.wrapper.wrapped
    table = t.attributes.get_attribute(optimizer, "state").realise(t)
    if not isinstance(table, DictValue):
        raise _refused("its state is no dict")
    known, before = dict(table.items), t.heap.contents()
    here, numbers = t.graph.mark(), (t.graph.numbers_read(), t.graph.assumes)
    t.graph.region = region = Region(None, None)
    try:
        with t.heap.watching([optimizer]):
            result = t.caller.call(t.attributes.get_attribute(optimizer, "step"), [], {})
    except TracedRaise:
        raise _refused("it raises an exception") from None
    finally:
        t.graph.region = None
    if not (result.is_constant() and result.constant() is None):
        raise _refused("it gives a result")
    if region.draws or (t.graph.numbers_read(), t.graph.assumes) != numbers:
        raise _refused("it draws random numbers, or reads numbers out of tensors")
    _put_back(t, skipped, region, here.last)
    changed = _changes(t, before, t.heap.contents(), real)
    if not changed:
        return
    made = [key for name, (key, _) in table.items.items() if name not in known]
    if changed != [table] or was_read or not made or not _makes_states_alone(table, known, real):
        raise _refused("it changes more than tensors and the state that it makes at first")
    t.heap.call_later(t.wrapper.wrap_pinned(_without_states), [skipped, optimizer, *made])
    t.attributes.plain_store(optimizer, "state", _Unsettled(table))


class _Unsettled(Value):
    """The state that a first step has made, in what is left of the frame: it is not known whether that is dropped, so nothing can be asked of it."""

    __slots__ = ("table",)

    def __init__(self, table: DictValue) -> None:
        super().__init__()
        self.table = table

    def python_type(self) -> type:
        return self.table.python_type()

    def rebuild(self, e: Any) -> None:
        """The table itself, whose contents are an effect of their own."""
        e.value(self.table)


def _changes(t: Tracer, before: Contents, after: Contents, optimizer: Any) -> list[Value | None]:
    """The containers that changed in between; None among them: something else did. What was stored again where it was is no change."""
    changed: list[Value | None] = []
    for key, (container, parts) in after.containers.items():
        if key in before.containers:
            is_as_before = before.containers[key][1] == parts
        else:
            is_as_before = _is_as_it_was(t, container, optimizer)
        if not is_as_before:
            changed.append(container)
    for place, stored in after.attributes.items():
        if before.attributes.get(place) != stored and (
            place in before.attributes or not _is_there(t, place[1], *stored)
        ):
            changed.append(None)
    return changed if before.others == after.others else [*changed, None]


def _is_there(t: Tracer, name: str, target: Value, value: Value | None, plain: bool) -> bool:
    """Whether an object has had the attribute that is stored in it."""
    own = getattr(target.real(), "__dict__", {})
    return plain and value is not None and name in own and _stands_for(t, own[name], value)


def _is_as_it_was(t: Tracer, container: Value, optimizer: Any) -> bool:
    """Whether a dict of the optimizer's that the frame had not changed before holds what it held."""
    if not isinstance(container, DictValue):
        return False
    own = (*optimizer.state.values(), *optimizer.param_groups)
    real = next((table for table in own if t.wrapper.wrapped.get(id(table)) is container), None)
    if type(real) is not dict or len(real) != len(container.items):
        return False
    pairs = zip(real.items(), container.items.values(), strict=True)
    return all(_stands_for(t, key, own) and _stands_for(t, item, value) for (key, item), (own, value) in pairs)


def _stands_for(t: Tracer, obj: Any, value: Value) -> bool:
    value = value.realise(t)
    if value.is_constant():
        return type(value.constant()) is type(obj) and bool(value.constant() == obj)
    return t.wrapper.wrapped.get(id(obj)) is value


def _makes_states_alone(table: DictValue, known: Mapping[Any, Any], optimizer: Any) -> bool:
    """Whether a step of torch's own has only added to the table, which held `known`."""
    kept = all(table.items.get(name) == entry for name, entry in known.items())
    return kept and class_module(type(optimizer)).startswith("torch.optim.")


def _without_states(skipped: torch.Tensor, optimizer: Any, *parameters: Any) -> None:
    """Called after the graph: a step that is skipped has made no state."""
    if skipped:
        for parameter in parameters:
            optimizer.state.pop(parameter, None)


def _put_back(t: Tracer, skipped: TensorValue, region: Region, here: fx.Node | None) -> None:
    """Write over all that the step has written to, where it is to be skipped, what was there when the graph had come as far as `here`."""
    order = {node: place for place, node in enumerate(t.graph.root.nodes)}
    owners: dict[int, fx.Node] = {}
    for node in order:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and (
            node.op == "placeholder" or (here is not None and order[node] <= order[here])
        ):
            memory = value.untyped_storage()._cdata
            if memory in region.written and memory not in owners and _is_all_of_its_memory(value):
                owners[memory] = node
    if here is None or owners.keys() != region.written.keys():
        raise _refused("it writes to memory that no one tensor stands for")
    conditions: dict[torch.device, Value] = {skipped.fake.device: skipped}
    for node in owners.values():
        owner = t.wrapper.fake_owner.get(id(node.meta["val"]))
        if not isinstance(owner, TensorValue):
            raise _refused("it writes to a tensor that is not known to the frame")
        device = owner.fake.device
        if device not in conditions:
            conditions[device] = without_grad(t, "call_method", "to", skipped, t.wrapper.from_python(device))
        chosen = without_grad(t, "call_function", torch.where, conditions[device], _saved(t, node, here), owner)
        without_grad(t, "call_method", "copy_", owner, chosen)


def _saved(t: Tracer, node: fx.Node, here: fx.Node) -> Value:
    """A copy of what a tensor held when the graph had come as far as `here`."""
    with t.graph.unpatched, t.graph.fake_mode:
        view = node.meta["val"].detach()
        copy = view.clone()
    with t.graph.root.inserting_after(here):
        detached = t.graph.derive("detach", (node,), view, "call_method")
    with t.graph.root.inserting_after(detached):
        cloned = t.graph.derive("clone", (detached,), copy, "call_method")
    return t.recorder.wrap_result(copy, cloned)


def _is_all_of_its_memory(fake: torch.Tensor) -> bool:
    """Whether every element of its memory is one of the tensor's, once."""
    size = fake.untyped_storage().nbytes()
    return (
        type(size) is int
        and all(type(length) is int for length in fake.shape)
        and size == fake.numel() * fake.element_size()
        and torch._debug_has_internal_overlap(fake) == 0
    )


def _refused(what: str) -> GraphBreak:
    return GraphBreak("data-dependent-branch", f"a scaled step that may be skipped: {what}")
