"""Functions that transforms of `torch.func` call, as bodies; the transforms, and calls of what they make, as nodes.

In: a function and the leaves of its arguments as values. Out: `traced`, a body that takes flat tensors; `as_function`, which binds what the body
reads of the graph around it; `record`, which adds a call of any function of torch over such functions, run once on fakes below its levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from ..graph.dispatch import dispatch_kept
from ..interp.messages import tell_of_operation
from ..library import functools, operator
from ..values.base import Value
from ..values.graph_functions import GraphFunctionValue
from ..values.mappings import DictValue
from ..values.sequences import ListValue, TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from ..values.trees import Structure, flattened
from .bodies import broken, in_a_body

if TYPE_CHECKING:
    import torch.fx

    from ..graph.bodies import BodyGraph
    from ..values.base import Tracer

    #: What a body is handed for a leaf: shape, strides, whether it is differentiated; None: the leaf itself.
    Handed = tuple[Sequence[Any], Sequence[Any], bool] | None


@frozen(eq=False)
class Traced:
    """A function traced into a body. `operands`: what it is handed, of the graph around it; `nodes`: its results' in the body."""

    graph: BodyGraph
    operands: list[TensorValue]
    leaves: list[Value]
    structure: Structure
    nodes: list[torch.fx.Node]

    def part(self, place: int) -> tuple[tuple[torch.fx.Node, ...], Structure]:
        """The results' nodes, and their structure, of one item of the tuple that was returned."""
        start = sum(part.count for part in self.structure.parts[:place])
        own = self.structure.parts[place]
        return tuple(self.nodes[start : start + own.count]), own

    def divided(self, *, has_aux: bool) -> tuple[Any, Structure, Structure | None]:
        """What the body is to return, flat, the structure of its results and that of what is returned beside them."""
        if not has_aux:
            return tuple(self.nodes), self.structure, None
        if self.structure.cls is not tuple or len(self.structure.parts) != 2:
            raise broken("a function with has_aux returns no pair")
        (results, own), (aux, beside) = self.part(0), self.part(1)
        return (results, aux), own, beside


def traced(
    t: Tracer,
    function: Value,
    leaves: Sequence[Value],
    handed: Callable[[int, TensorValue], Handed],
    call: Callable[[list[Value]], Value],
    transform: str,
    batch: Value | None = None,
) -> Traced:
    """Trace `call`, which calls `function` with stand-ins for `leaves`; `batch`: how many samples there are of each."""
    if torch.is_inference_mode_enabled():
        raise broken("a transform of torch.func in inference mode")
    operands: list[TensorValue] = []

    def within(graph: BodyGraph) -> tuple[list[Value], Structure, list[torch.fx.Node]]:
        graph.transform, graph.batch = transform, batch
        inner: list[Value] = []
        for place, leaf in enumerate(leaves):
            what = handed(place, leaf) if isinstance(leaf, TensorValue) else None
            if what is None:
                inner.append(leaf)
                continue
            assert isinstance(leaf, TensorValue)
            operands.append(leaf)
            inner.append(_bound(t, graph, leaf.fake, *what))
        results, structure = flattened(t, call(inner))
        if not results or not all(isinstance(result, TensorValue) for result in results):
            raise broken("a transformed function returns what is no tensor")
        return results, structure, [t.graph.here(t.recorder.node_of(result)) for result in results]

    graph, (results, structure, nodes) = in_a_body(t, function, within)
    return Traced(graph, operands, results, structure, nodes)


def _bound(
    t: Tracer, graph: BodyGraph, like: torch.Tensor, shape: Any, stride: Any, differentiated: bool
) -> TensorValue:
    with t.graph.unpatched, t.graph.fake_mode, torch.no_grad():
        fake = torch.empty_strided(tuple(shape), tuple(stride), dtype=like.dtype, device=like.device)
    if differentiated and not (fake.is_floating_point() or fake.is_complex()):
        raise broken("a tensor of whole numbers is differentiated")
    if differentiated or like.requires_grad:
        with t.graph.unpatched, torch.enable_grad():
            fake = fake.requires_grad_().clone()  # of a leaf, other operations are refused
    value = TensorValue(fake, graph.bind(fake))
    t.wrapper.fake_owner[id(fake)] = value
    return value


def as_function(t: Tracer, body: Traced, outputs: Any) -> GraphFunctionValue:
    """The body, which returns these of its nodes, with what it reads of the graph around it."""
    body.graph.begin_with_lifted()
    module = body.graph.finish(outputs)
    name = GraphFunctionValue(t.graph.attach(module), module)
    lifted = list(body.graph.lifted)
    if not lifted:
        return name
    made = functools.partial(module, *(node.meta["val"] for node in lifted))
    return GraphFunctionValue(t.graph.call_bodies(functools.partial, (name.node, *lifted), made), made)


def record(t: Tracer, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """A node that calls `target`; operands are values, options plain. Results are values, in tuples where they are in tuples."""
    given = [_operand(t, arg) for arg in args]
    options = dict(kwargs or {})
    run = functools.partial(t.graph.run, "call_function", target, [fake for _, fake in given], options)
    with dispatch_kept():
        result = run()
    node = t.graph.call_bodies(target, [node for node, _ in given], result, options)
    if t.graph.heard or t.graph.kernels:
        tell_of_operation(t, run)
    return _wrapped(t, result, node)


def called(t: Tracer, function: GraphFunctionValue, operands: Sequence[Any]) -> Any:
    """A node that calls what a node computes, and what that gives."""
    return record(t, operator.call, (function, *operands))


def _operand(t: Tracer, value: Any) -> tuple[Any, Any]:
    if isinstance(value, GraphFunctionValue):
        return value.node, value.function
    if isinstance(value, TensorValue):
        return t.recorder.node_of(value), value.fake
    if isinstance(value, (tuple, list)):
        pairs = [_operand(t, item) for item in value]
        return tuple(node for node, _ in pairs), tuple(fake for _, fake in pairs)
    return value, value


def _wrapped(t: Tracer, result: Any, node: torch.fx.Node) -> Any:
    if isinstance(result, torch.Tensor):
        if result._is_zerotensor() and not t.graph.bodies:
            raise broken("a result is zeros without memory")
        return t.recorder.wrap_result(result, node)
    if isinstance(result, (tuple, list)):
        return tuple(
            _wrapped(t, item, t.graph.derive(operator.getitem, (node, i), item)) for i, item in enumerate(result)
        )
    return GraphFunctionValue(node, result)


def leaves_of(t: Tracer, value: Value) -> tuple[list[Value], Structure]:
    """`flattened`, where torch's pytrees see no more leaves than we do."""
    leaves, structure = flattened(t, value)
    if any(leaf.python_type() in torch.utils._pytree.SUPPORTED_NODES for leaf in leaves):
        raise broken("an argument of a transformed function is a container of a class of its own")
    return leaves, structure


def as_python(t: Tracer, value: Value) -> Any:
    """An option of a transform: numbers, texts, and containers of them."""
    value = value.realise(t)
    if value.is_constant():
        return value.constant()
    if isinstance(value, SymbolicValue):
        return value.concrete(t)
    if isinstance(value, TupleValue):
        items = [as_python(t, item) for item in value.items]
        return tuple(items) if value.cls is tuple else value.cls(*items)
    if isinstance(value, ListValue) and value.cls is list:
        return [as_python(t, item) for item in value.items]
    if isinstance(value, DictValue):
        return {t.wrapper.to_python(key): as_python(t, item) for key, item in t.operators.mapping_items(value)}
    raise broken(f"{value.describe()} is an option of a transform")
