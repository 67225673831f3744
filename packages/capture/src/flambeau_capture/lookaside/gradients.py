"""The engine of autograd inside of a graph: `torch.autograd.grad`, `torch.autograd.backward` and `Tensor.backward`.

In: calls met while tracing, on tensors whose fakes have the history that the frame gave them. Out: one node that calls `torch.autograd.grad`,
which runs on the history that the graph's own operations make whenever it is run or traced; and for a backward, what eager does with the
gradients of leaves: a new `.grad`, or a sum written into the one that there is.

The engine may not come to what was computed before the frame, nor to hooks: these calls break the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from ..graph.histories import fills_its_memory, is_summed_unwatched, is_unwatched, leaves_of, obeys_layout
from ..library import collections, inspect
from ..refusal import CannotCapture
from ..replacements import replaces
from ..signals import GraphBreak
from ..signatures import signature_of
from ..sources.source import Computed
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.mappings import DictValue
from ..values.sequences import TupleValue
from ..values.tensor import TensorValue
from ..values.walk import reachable
from .forward_mode import in_a_level
from .torch_state import set_grad_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_GRAD: Any = torch.autograd.grad
_BACKWARD: Any = torch.autograd.backward
_METHOD: Any = torch.Tensor.backward


@replaces(_GRAD)
def gradients(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autograd.grad(outputs, inputs, ...)`: one node."""
    given = _given(t, _GRAD, args, kwargs)
    try:
        return _gradients(t, given)
    except GraphBreak:
        # The engine then runs between two graphs, over what the first computed.
        for part in reachable([given["inputs"]]).values():
            if isinstance(part, TensorValue):
                part.refuse_history("torch.autograd.grad")
        raise


def _gradients(t: Tracer, given: Mapping[str, Value]) -> Value:
    flags = {name: _flag(t, given.get(name)) for name in ("retain_graph", "create_graph", "allow_unused")}
    if not _is_true_by_default(t, given.get("only_inputs")) or _flag(t, given.get("is_grads_batched")):
        raise GraphBreak("autograd-call", "torch.autograd.grad of a batch, or with what torch ignores")
    if t.graph.has_bodies:
        raise GraphBreak(
            "autograd-call", "torch.autograd.grad where operators call functions: how gradients lie is not known"
        )
    inputs = _inputs(t, given["inputs"])
    outputs = _tensors(t, given["outputs"])
    _refuse_what_lies_outside(t, outputs, _members(inputs))
    return _differentiated(
        t,
        outputs,
        inputs,
        given.get("grad_outputs"),
        (flags["retain_graph"], bool(flags["create_graph"]), flags["allow_unused"]),
        materialize=bool(_flag(t, given.get("materialize_grads"))),
    )


@replaces(_METHOD)
def backward_of_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`tensor.backward(...)`: what stands in `torch.autograd` is called, as torch does."""
    given = _given(t, _METHOD, args, kwargs)
    names = {"self": "tensors", "gradient": "grad_tensors"}
    function = t.attributes.get_attribute(t.wrapper.wrap_pinned(torch.autograd), "backward")
    return t.caller.call(function, [], {names.get(name, name): value for name, value in given.items()})


@replaces(_BACKWARD)
def backward(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.autograd.backward(tensors, ...)`."""
    given = _given(t, _BACKWARD, args, kwargs)
    if "grad_variables" in given:
        raise GraphBreak("autograd-call", "backward() with an argument that torch warns of")
    retain, create = (_flag(t, given.get(name)) for name in ("retain_graph", "create_graph"))
    if in_a_level():
        raise GraphBreak("autograd-call", "backward() within a level of forward-mode differentiation")
    if create:
        raise GraphBreak("autograd-call", "backward() with create_graph, which leaves histories in gradients and warns")
    outputs = _tensors(t, given["tensors"])
    asked = given.get("inputs")
    leaves = _reached(t, outputs) if asked is None or _is_none(asked) else _chosen(t, outputs, asked)
    if not leaves:
        raise GraphBreak("autograd-call", "backward() that leads to no tensor which the graph knows")
    known = set(t.wrapper.fake_owner)
    found = _differentiated(
        t, outputs, TupleValue(list(leaves), tuple), given.get("grad_tensors"), (retain, False, True), materialize=False
    )
    times = collections.Counter(map(id, _parts(found)))
    for leaf, gradient in zip(leaves, _parts(found), strict=True):
        if isinstance(gradient, TensorValue):
            is_held = t.graph.has_bodies or id(gradient.fake) in known or times[id(gradient)] > 1
            _accumulate(t, leaf, gradient, is_held)
    return ConstantValue(None)


def _chosen(t: Tracer, outputs: TupleValue, asked: Value) -> list[TensorValue]:
    """The leaves that `backward(inputs=...)` is asked for; of other tensors it would keep the gradients from then on."""
    inputs = _inputs(t, asked)
    chosen = list(dict.fromkeys(_members(inputs)))
    if not all(_is_leaf(t, value) for value in chosen):
        raise GraphBreak("autograd-call", "backward() for tensors that are no leaves")
    _refuse_what_lies_outside(t, outputs, chosen)
    return chosen


def _members(inputs: DictValue | TupleValue) -> list[TensorValue]:
    values = [value for _, value in inputs.items.values()] if isinstance(inputs, DictValue) else inputs.items
    return [value for value in values if isinstance(value, TensorValue)]


def _accumulate(t: Tracer, leaf: TensorValue, gradient: TensorValue, is_held: bool) -> None:
    """What eager does where a gradient comes to a leaf. One that somebody else holds is copied; a view of what others see is not."""
    before = leaf.get_attribute(t, "grad").realise(t)
    if isinstance(before, TensorValue):
        without_grad(t, "call_method", "add_", before, gradient)
    elif not _is_none(before):
        raise GraphBreak("autograd-call", f"a gradient is added to {before.describe()}")
    else:
        fits = not is_held and obeys_layout(gradient.fake, leaf.fake)
        leaf.keep_gradient(t, gradient if fits else _laid_out(t, leaf, gradient))


def without_grad(t: Tracer, kind: str, target: Any, *args: Value, **kwargs: Value) -> Value:
    """An operation of the engine's own, for which no history is kept."""
    enabled = torch.is_grad_enabled()
    set_grad_mode(t, False)
    made = t.recorder.record(kind, target, args, kwargs)
    set_grad_mode(t, enabled)
    return made


def _laid_out(t: Tracer, leaf: TensorValue, gradient: TensorValue) -> Value:
    """A copy in memory of its own that lies as its leaf does, where that fills its memory."""
    if leaf.fake.is_contiguous() or not fills_its_memory(leaf.fake):
        layout = t.wrapper.from_python(torch.contiguous_format)
        return without_grad(t, "call_method", "clone", gradient, memory_format=layout)
    room = without_grad(t, "call_function", torch.empty_like, leaf)
    return without_grad(t, "call_method", "copy_", room, gradient)


# the node


def _differentiated(
    t: Tracer, outputs: Value, inputs: Value, tangents: Value | None, flags: tuple[Any, ...], *, materialize: bool
) -> Value:
    """The gradients: a node, and the same on fakes, whose history is freed by it as that of the graph will be."""
    t.members.note_callees(_GRAD)
    t.graph.refuse_question("a gradient")
    if t.graph.bodies:
        raise GraphBreak("autograd-call", "a gradient is taken inside of a function that an operator calls")
    retain, create, allow_unused = flags
    tangents = ConstantValue(None) if tangents is None else tangents
    given = [outputs, inputs, tangents if _is_none(tangents) else _tensors(t, tangents, absent=True)]
    nodes, fakes = t.recorder.arguments(given)
    named = {"retain_graph": retain, "create_graph": create, "allow_unused": allow_unused}
    named = {name: value for name, value in named.items() if value not in (None, False)}
    if materialize:
        named["materialize_grads"] = True
    if not t.frames.caught:
        t.frames.note_handlers()
    with torch.autograd.set_multithreading_enabled(False):
        found = t.graph.run("call_function", _GRAD, fakes, named)
    if t.graph.heard or t.graph.kernels:
        raise GraphBreak("input-output", "a backward that warns")
    if any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in tree_leaves(found)):
        raise GraphBreak("unsupported-tensor", "a gradient that is not strided")
    if _is_none(tangents):
        nodes.pop()
    node = t.graph.derive(_GRAD, tuple(nodes), found)
    node.kwargs = named
    t.graph.operations += 1
    t.graph.has_engine = True
    return t.recorder.wrap_result(found, node)


# arguments


def _given(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> dict[str, Value]:
    signature = signature_of(function)
    assert signature is not None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        raise GraphBreak("unsupported-call", f"{function.__name__}() does not take these arguments") from None
    if any(what.kind is inspect.Parameter.VAR_KEYWORD for what in signature.parameters.values()):
        raise GraphBreak("unsupported-call", f"{function.__name__}() with a signature that is not known")
    return {name: value.realise(t) for name, value in bound.arguments.items()}


def _flag(t: Tracer, value: Value | None) -> bool | None:
    known = None if value is None else t.folder.concrete(value)
    if known is not None and not isinstance(known, bool):
        raise GraphBreak("autograd-call", "a flag of autograd that is no bool")
    return known


def _is_true_by_default(t: Tracer, value: Value | None) -> bool:
    return value is None or _flag(t, value) is True


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.constant() is None


def _parts(value: Value) -> list[Value]:
    return list(value.items) if isinstance(value, TupleValue) else [value]


def _tensors(t: Tracer, value: Value, *, absent: bool = False) -> TupleValue:
    """One tensor, or what is iterated over, as a tuple of tensors (`absent`: or None)."""
    if isinstance(value, TensorValue):
        return TupleValue([value], tuple)
    items = [item.realise(t) for item in t.operators.iterate_all(value)]
    for item in items:
        if not isinstance(item, TensorValue) and not (absent and _is_none(item)):
            raise GraphBreak("autograd-call", f"the gradient of or by {item.describe()}")
    return TupleValue(items, tuple)


def _inputs(t: Tracer, value: Value) -> DictValue | TupleValue:
    """What the gradient is taken by: tensors, or a dict of them."""
    if not isinstance(value, DictValue):
        return _tensors(t, value)
    if value.python_type() is not dict or value.origin is not None:
        raise GraphBreak("autograd-call", "the gradient by a mapping that the frame did not make")
    _tensors(t, TupleValue([item for _, item in value.items.values()], tuple))
    return value


# what lies outside


def _reached(t: Tracer, outputs: TupleValue) -> list[TensorValue]:
    """The leaves that a backward comes to, in the order in which it is met. Breaks where it would go on outside of the graph."""
    found = []
    for fake in leaves_of(value.fake for value in outputs.items if isinstance(value, TensorValue)):
        owner = t.wrapper.fake_owner.get(id(fake))
        if not isinstance(owner, TensorValue) or not _is_leaf(t, owner):
            raise GraphBreak("autograd-call", "backward() of what was computed from a tensor with a history of its own")
        _refuse_watched(t, owner)
        found.append(owner)
    return found


def _refuse_what_lies_outside(t: Tracer, outputs: TupleValue, inputs: Sequence[TensorValue]) -> None:
    """Break where another way leads from the outputs to an input, through what was computed before the frame, or where hooks would run."""
    if t.graph.has_reentrant:
        refused = GraphBreak("autograd-call", "gradients of some tensors alone, which a reentrant checkpoint refuses")
        raise CannotCapture(refused, recursive=True)
    for value in inputs:
        if value.tensor is not MISSING:
            _refuse_watched(t, value)
    given = [value for value in inputs if value.tensor is not MISSING]
    if not given:
        return
    for fake in leaves_of(value.fake for value in outputs.items if isinstance(value, TensorValue)):
        owner = t.wrapper.fake_owner.get(id(fake))
        if isinstance(owner, TensorValue) and _is_leaf(t, owner):
            continue
        if len(set(map(id, given))) > 1 or _is_leaf(t, given[0]):
            raise GraphBreak("autograd-call", "torch.autograd.grad past a tensor with a history of its own")


def _is_leaf(t: Tracer, value: TensorValue) -> bool:
    if value.tensor is MISSING:
        return bool(value.fake.is_leaf)
    if isinstance(value.tensor, torch.nn.Parameter):
        return bool(value.tensor.is_leaf)
    return bool(t.folder.concrete(value.get_attribute(t, "is_leaf")))


def _refuse_watched(t: Tracer, value: TensorValue) -> None:
    """Break where the program's own code sees the gradient of a tensor from outside."""
    if value.tensor is MISSING:
        return
    if any(value in call.args for call in t.heap.calls):
        raise GraphBreak("tensor-hook", f"a gradient comes to {value.describe()}, which the frame gave a hook")
    assert value.source is not None
    answer = is_unwatched(value.tensor)
    t.guards.constant(Computed(value.source, is_unwatched, f"is_unwatched({value.source.name})"), answer)
    if not answer or (value.tensor.is_leaf and not is_summed_unwatched(value.tensor)):
        raise GraphBreak("tensor-hook", f"a gradient comes to {value.describe()}, which has hooks")
