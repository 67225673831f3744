"""Functions that an operator calls (the branches of a `cond`, the step of a `scan`) traced into graphs of their own.

In: a function as a value, and what it is called with. Out: a `Body`: its graph, what it reads of the graph around it, its results as a tree
of tensors; and `call_operator`, which records the operator over bodies.

A body is called any number of times, or never: it must not change what is outside of it. Its results must be new tensors, as torch wants them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from attrs import frozen

from ..class_names import class_name
from ..library import functools, itertools, operator
from ..signals import GraphBreak, TracedRaise
from ..values.tensor import TensorValue
from ..values.trees import Structure, flattened
from .forward_mode import in_a_level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch.fx

    from ..graph.bodies import BodyGraph
    from ..values.base import Tracer, Value

_Result = TypeVar("_Result")
_SET_GRAD: Any = torch._C._set_grad_enabled


@frozen(eq=False)
class Body:
    """A function traced on values of the frame."""

    graph: BodyGraph
    results: list[TensorValue]
    structure: Structure

    @property
    def fakes(self) -> list[torch.Tensor]:
        """The results' metadata."""
        return [result.fake for result in self.results]


def broken(message: str) -> GraphBreak:
    """The break of an operator that cannot be part of the graph."""
    return GraphBreak("control-flow-operator", message)


def trace_body(
    t: Tracer, function: Value, arguments: Callable[[BodyGraph], Sequence[Value]], *, copied: bool = False
) -> Body:
    """Call `function` with what `arguments` makes, in a graph of its own. `copied`: the operator copies results, which may be what is given."""
    known = set[int | None]()

    def called(graph: BodyGraph) -> tuple[list[Value], Structure]:
        given = arguments(graph)
        known.update(_memory(node.meta["val"]) for node in graph.graph.nodes)
        return flattened(t, t.caller.call(function, given, {}))

    graph, (leaves, structure) = in_a_body(t, function, called)
    if not t.initial_grad and any(node.target is _SET_GRAD and node.args[0] for node in graph.graph.nodes):
        raise broken("a body enables gradients, which are disabled where the frame begins")
    results = [leaf for leaf in leaves if isinstance(leaf, TensorValue)]
    if len(results) < len(leaves):
        raise broken("a body returns what is no tensor")
    known |= {_memory(node.meta["val"]) for node in graph.lifted}
    for value in results:
        memory = _memory(value.fake)
        if t.recorder.node_of(value).graph is not graph.graph or (memory in known and not copied):
            raise broken("a body returns what it was given, or twice the same memory")
        known.add(memory)
    return Body(graph, results, structure)


def in_a_body(t: Tracer, function: Value, trace: Callable[[BodyGraph], _Result]) -> tuple[BodyGraph, _Result]:
    """Run `trace`, which calls `function`, in a graph of its own; breaks the graph where that changes what is outside of it."""
    if t.overrides.is_watched:
        raise broken("a body within a mode of __torch_function__, which is asked about the operator first")
    if in_a_level():
        raise broken("a body within a level of forward-mode differentiation")
    before, generators, grad = t.heap.lasting(), len(t.generators), torch.is_grad_enabled()
    entered = list(t.graph.open_modes)
    with t.heap.watching((function,)), t.graph.body() as graph:
        try:
            result = trace(graph)
        except TracedRaise as error:
            raise broken(f"a body raises {class_name(error.value.python_type())}") from None
    unfinished = any(not generator.done for generator in t.generators[generators:])
    modes = torch.is_grad_enabled() == grad and t.graph.open_modes == entered
    if graph.region.writes or t.heap.lasting() != before or unfinished or not modes:
        raise broken("a body changes what is outside of it")
    return graph, result


def _memory(value: Any) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def trace_step(
    t: Tracer,
    function: Value,
    carried: Sequence[torch.Tensor],
    arguments: Callable[..., Sequence[Value]],
) -> Body:
    """Trace a body whose first results are what the next step is handed in the place of `carried`. `arguments(graph, needs)` is told which of these require
    gradients: those too that only do once a step has been taken."""
    needs = [fake.requires_grad for fake in carried]
    while True:
        body = trace_body(t, function, functools.partial(arguments, needs=needs))
        after = [had or fake.requires_grad for had, fake in zip(needs, body.fakes, strict=False)]
        # One that returns too little is refused by who asks for it.
        if len(after) < len(needs) or after == needs:
            return body
        needs = after


def bound(
    t: Tracer,
    graph: BodyGraph,
    like: torch.Tensor,
    shape: Sequence[Any],
    stride: Sequence[Any],
    *,
    requires_grad: bool | None = None,
) -> TensorValue:
    """A tensor that the operator hands to a body: of the dtype and device of `like`, and with a gradient as that has one, unless told."""
    fake = _empty(t, like, shape, stride)
    if like.requires_grad if requires_grad is None else requires_grad:
        with t.graph.unpatched, torch.enable_grad():
            fake = fake.requires_grad_().clone()  # of a leaf, other operations are refused
    value = TensorValue(fake, graph.bind(fake))
    t.wrapper.fake_owner[id(fake)] = value
    return value


def finished(t: Tracer, *bodies: Body, asks: Body | None = None) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """The nodes that name the bodies of one operator, and the operands that all of them take, after those that they are handed. Bodies give
    tuples, but for `asks`, which gives its one result."""
    operands = list(dict.fromkeys(node for body in bodies for node in body.graph.lifted))
    names = []
    for body in bodies:
        body.graph.arrange(operands)
        outputs = tuple(t.recorder.node_of(result) for result in body.results)
        names.append(t.graph.attach(body.graph.finish(outputs[0] if body is asks else outputs)))
    return names, operands


def call_operator(
    t: Tracer,
    called: Any,
    args: Sequence[Any],
    results: Sequence[torch.Tensor],
    *,
    differentiable: Sequence[bool] = (),
) -> list[Value]:
    """Record `called(*args)`, whose results are new tensors like `results`: they require grad where an operand does. `differentiable`: which of
    them have a gradient, where that is the operator's own, whatever the bodies return."""
    read: list[torch.fx.Node] = []
    torch.fx.map_arg(tuple(args), read.append)
    tensors = [node.meta["val"] for node in read if isinstance(node.meta.get("val"), torch.Tensor)]
    with t.graph.unpatched:
        make = functools.partial(_made, t, results)
        made = _Computed.apply(make, differentiable, *tensors)
    if not differentiable and any(
        like.requires_grad and not fake.requires_grad for like, fake in zip(results, made, strict=True)
    ):
        raise broken("a body returns what has a gradient, where the operator's result has none")
    node = t.graph.call_bodies(called, args, made)
    return list(t.operators.iterate_all(t.recorder.wrap_result(made, node)))


def _made(t: Tracer, results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(_empty(t, like, like.shape, like.stride()) for like in results)


class _Computed(torch.autograd.Function):
    """What gives fakes of results the history that the operator's autograd rule gives the results."""

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[], tuple[torch.Tensor, ...]], differentiable: Sequence[bool], *operands: torch.Tensor
    ) -> Any:
        """The results, new."""
        ctx.operands = operands
        made = make()
        ctx.mark_non_differentiable(*itertools.compress(made, map(operator.not_, differentiable)))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of the operands, whose layout is the operator's own matter, as `has_bodies` of the graph says."""
        wanted = zip(ctx.operands, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(torch.empty_like(operand) if asked else None for operand, asked in wanted)


def _empty(t: Tracer, like: torch.Tensor, shape: Sequence[Any], stride: Sequence[Any]) -> torch.Tensor:
    with t.graph.unpatched, t.graph.fake_mode, torch.no_grad():
        return torch.empty_strided(tuple(shape), tuple(stride), dtype=like.dtype, device=like.device)


def alike(t: Tracer, one: torch.Tensor, other: torch.Tensor, *, strides: bool = True) -> bool:
    """Whether two tensors have one dtype, device and shape, and lie the same way."""
    if (one.dtype, one.device, one.ndim) != (other.dtype, other.device, other.ndim):
        return False
    pairs = list(zip(one.shape, other.shape, strict=True))
    pairs += zip(one.stride(), other.stride(), strict=True) if strides else ()
    return all(t.graph.decide(a == b) for a, b in pairs)
