"""Hooks that a frame registers on tensors.

In: `tensor.register_hook(function)` met while tracing. Out: for a leaf from outside, the same call after the graph, whose backward comes later still. For what
the frame computes, a node that registers the hook whenever the graph is run or traced; the function is a nested graph, the tensors that it uses
besides the gradient are operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..graph.refusals import is_write
from ..library import operator
from ..replacements import replaces
from ..signals import GraphBreak, TracedRaise
from ..values.base import MISSING, Value
from ..values.functions import CellValue
from ..values.lazy import LazyValue
from ..values.mappings import DictValue
from ..values.members import mro_lookup
from ..values.objects import ObjectValue
from ..values.sequences import ListValue
from ..values.sets import SetValue
from ..values.tensor import TensorValue
from ..values.walk import reachable
from .torch_state import set_grad_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..graph.builder import Mark
    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_REGISTER: Any = torch.Tensor.register_hook
_REGISTER_BEHIND: Any = torch.Tensor.register_post_accumulate_grad_hook


class HookHandle(Value):
    """What would take the hook away again; nothing is known of it, and it cannot be made without registering."""

    def python_type(self) -> type:
        return torch.utils.hooks.RemovableHandle

    def get_attribute(self, t: Tracer, name: str) -> Value:
        raise GraphBreak("tensor-hook", f"{name} of the handle of a hook")

    def rebuild(self, e: Any) -> None:
        raise NotImplementedError("only the call that registers a hook gives its handle")


@replaces(_REGISTER)
def register_hook(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`tensor.register_hook(function)`."""
    tensor, function = _given(t, args, kwargs)
    if tensor.tensor is not MISSING:
        return _registered_later(t, _REGISTER, tensor, function)
    start = t.graph.mark()
    try:
        return _registered(t, tensor, function)
    except GraphBreak:
        t.graph.rewind(start)  # the trace of the hook is no use of the tensor
        tensor.refuse_history("register_hook")
        raise


@replaces(_REGISTER_BEHIND)
def register_behind(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`tensor.register_post_accumulate_grad_hook(function)`."""
    tensor, function = _given(t, args, kwargs)
    if tensor.tensor is MISSING:
        raise GraphBreak("tensor-hook", "a hook behind the gradient of a leaf that the frame made")
    return _registered_later(t, _REGISTER_BEHIND, tensor, function)


def _given(t: Tracer, args: Args, kwargs: Kwargs) -> tuple[TensorValue, Value]:
    values = [value.realise(t) for value in (*args, *kwargs.values())]
    if len(values) != 2 or not {"hook"}.issuperset(kwargs) or not isinstance(values[0], TensorValue):
        raise GraphBreak("unsupported-call", "a hook is registered with arguments that torch may refuse")
    return values[0], values[1]


def _registered_later(t: Tracer, register: Any, tensor: TensorValue, function: Value) -> Value:
    """The call for real, behind the graph: of a leaf it makes no difference to what the graph computed with it."""
    is_leaf = t.folder.concrete(tensor.get_attribute(t, "is_leaf"))
    if not is_leaf or not tensor.fake.requires_grad:
        raise GraphBreak("tensor-hook", f"a hook on {tensor.describe()}, which is no leaf that requires grad")
    if mro_lookup(function.python_type(), "__call__")[0] is MISSING:
        raise GraphBreak("tensor-hook", f"{function.describe()} as a hook")
    t.heap.call_later(t.wrapper.wrap_pinned(register), [tensor, function])
    return HookHandle()


def _registered(t: Tracer, tensor: TensorValue, function: Value) -> Value:
    """A node that registers the function's graph."""
    if t.graph.bodies:
        raise GraphBreak("tensor-hook", "a hook is registered inside of a function that an operator calls")
    body, free = _body_of(t, tensor, function)
    before = _state(t, function)
    t.graph.lasting.append(lambda: _is_same(before, _state(t, function)))
    node = t.graph.attach(body)
    operands = (t.recorder.node_of(tensor), node, *free)
    fakes = (tensor.fake, body, *(operand.meta["val"] for operand in free))
    t.graph.run("call_function", hook_in_graph, fakes, {})
    t.graph.derive(hook_in_graph, operands, None)
    t.graph.operations += 1
    return HookHandle()


def _state(t: Tracer, function: Value) -> dict[Any, list[Any]]:
    """What the frame may yet change of what the hook reads, which eager's reads when a gradient comes: variables, containers and objects that it leads to, and
    whatever was changed outside."""
    found: dict[Any, list[Any]] = {id(part): _content(part) for part in reachable([function]).values()}
    found["outside"] = [
        *(value for _, value in t.heap.cells.values()),
        *(value for _, value in t.heap.globals.values()),
        *(value for (_, name), (_, value, _) in t.heap.attributes.items() if name != "grad"),
    ]
    for container in t.heap.containers.values():
        found[id(container)] = _content(container)
    return found


def _content(value: Value) -> list[Any]:
    if isinstance(value, CellValue):
        return [value.contents]
    if isinstance(value, ListValue):
        return list(value.items)
    if isinstance(value, DictValue):
        return [part for pair in value.items.values() for part in pair]
    if isinstance(value, SetValue):
        return list(value.items.values())
    return list(value.attrs.values()) if isinstance(value, ObjectValue) else []


def _is_same(before: dict[Any, list[Any]], after: dict[Any, list[Any]]) -> bool:
    """What is met since because it was looked at is no change."""
    return len(before["outside"]) == len(after["outside"]) and all(
        len(parts) == len(after.get(key, parts))
        and all(_looked_at(a) is _looked_at(b) for a, b in zip(parts, after.get(key, parts), strict=True))
        for key, parts in before.items()
    )


def _looked_at(value: Any) -> Any:
    return value.realised or value if isinstance(value, LazyValue) else value


def hook_in_graph(tensor: torch.Tensor, body: Any, *free: Any) -> None:
    """Have each gradient of the tensor be what the body makes of it."""
    tensor.register_hook(lambda gradient: body(gradient, *free)[0])


def _body_of(t: Tracer, tensor: TensorValue, function: Value) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """The function as a graph of the gradient and of other tensors and sizes, whose nodes are given as well."""
    enabled, before, start = torch.is_grad_enabled(), t.heap.size(), t.graph.mark()
    set_grad_mode(t, False)
    try:
        gradient = t.recorder.record("call_function", torch.empty_like, [tensor], {})
        assert isinstance(gradient, TensorValue)
        gradient_node, mark = gradient.node, t.graph.mark()
        result = t.caller.call(function, [gradient], {}).realise(t)
    except TracedRaise:
        raise GraphBreak("tensor-hook", "a hook that raises") from None
    finally:
        set_grad_mode(t, enabled)
    if t.heap.size() != before:
        raise GraphBreak("tensor-hook", "a hook that changes objects outside of itself")
    if result.is_constant() and result.constant() is None:
        result = gradient
    if not isinstance(result, TensorValue) or not _fits(t, result, gradient):
        raise GraphBreak("tensor-hook", "a hook that gives no gradient of the same kind")
    if any(_version(value) for value in (gradient.fake, tensor.fake)):
        raise GraphBreak("tensor-hook", "a hook that writes to the gradient")
    end = t.recorder.node_of(result)
    assert gradient_node is not None
    made = _since(t, mark)
    if any(node.target is torch._C._set_grad_enabled for node in made[:-1]) or _writes_outside(made):
        raise GraphBreak("tensor-hook", "a hook that writes to a tensor, or sets the grad mode")
    body, free = _moved(made, gradient_node, end)
    t.graph.rewind(start)
    return body, free


def _fits(t: Tracer, result: TensorValue, gradient: TensorValue) -> bool:
    mine, wanted = result.fake, gradient.fake
    same = (mine.dtype, mine.device, mine.ndim) == (wanted.dtype, wanted.device, wanted.ndim)
    return same and all(t.graph.decide(a == b) for a, b in zip(mine.shape, wanted.shape, strict=True))


def _version(fake: torch.Tensor) -> int:
    return 0 if fake.is_inference() else fake._version


def _since(t: Tracer, mark: Mark) -> list[torch.fx.Node]:
    """The operations after a mark, in order."""
    found: list[torch.fx.Node] = []
    for node in reversed(t.graph.graph.nodes):
        if node is mark.last:
            break
        if node.op not in ("placeholder", "get_attr"):
            found.append(node)
    return found[::-1]


def _writes_outside(made: Sequence[torch.fx.Node]) -> bool:
    """Whether a write in place is among them: of what it writes to, only the engine knows who else looks at it."""
    return any(is_write(node.op, node.target) or node.target is operator.setitem for node in made)


def _moved(
    made: Sequence[torch.fx.Node], gradient: torch.fx.Node, end: torch.fx.Node
) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """Copies of the nodes in a graph of their own."""
    graph = torch.fx.Graph()
    inside: dict[torch.fx.Node, torch.fx.Node] = {gradient: graph.placeholder("gradient")}
    own = set(made)
    read = [operand for node in made for operand in node.all_input_nodes] + [end]
    free = [node for node in dict.fromkeys(read) if node not in own and node is not gradient]
    for node in (gradient, *free):
        if node is not gradient:
            inside[node] = graph.placeholder(node.name)
        inside[node].meta.update(node.meta)
    for node in made:
        if node.target is not torch._C._set_grad_enabled:
            inside[node] = graph.node_copy(node, inside.__getitem__)
    graph.output((inside[end],))
    return torch.fx.GraphModule(torch.nn.Module(), graph), free
