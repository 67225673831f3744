"""Higher-order operators: calls of bodies, one rule an operator.

In: a node in torch's own schema (``cond``, ``while_loop``, ``while_loop_stack_output``, ``scan``, ``associative_scan``, ``map_impl``, ``invoke_subgraph``) and its lowered arguments.
Out: an ``Extern`` of ``Nested`` and the values that it gives. What goes into a body lies as the body was compiled for, what a loop carries lies
densely, and no result shares memory with an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from .. import expr as ex
from ..errors import UnsupportedGraphError
from ..expr import ZERO, Expr
from ..ir.graph import ConstantInput, ScalarInput, TensorInput
from ..ir.layout import Layout, Ref, contiguous_strides, strides_in_order
from ..ir.loops import Extern, Nested
from ..ir.scalar import Scalar
from .associative import after_first, begun, first, running
from .bodies import Bodies, Body, Form, Order, dense_order
from .builder import Builder
from .fitting import Fitting
from .registry import Decline
from .steps import inputs_of, stepping, writing
from .values import TensorValue
from .written_gradients import RULES as ATTENTION_RULES

aten = torch.ops.aten


@frozen
class Site:
    """Where a higher-order operator stands: its node, the graph being lowered, and what that offers to bodies.

    ``path`` leads to the graph's attributes. ``borrow`` gives the graph a size that is known around it, ``constant`` a body's constant.
    """

    builder: Builder
    bodies: Bodies
    node: fx.Node
    path: str
    borrow: Callable[[Expr], None]
    constant: Callable[[ConstantInput], Ref]

    def body(self, position: int, module: fx.GraphModule, form: Form) -> Body:
        """The body that is the node's argument at ``position``: ``module``, or what was made of that."""
        source = self.node.args[position]
        assert isinstance(source, fx.Node)
        return self.bodies.get(module, f"{self.path}{source.target}", form, frozenset(self.builder.known_symbols))

    @property
    def results(self) -> list[Any]:
        """The node's fake results."""
        val = self.node.meta["val"]
        return list(val) if isinstance(val, tuple | list) else [val]


@frozen
class _Call:
    """A call to be written. ``vals`` are the fakes of what the bodies return (None for what is dropped).

    ``decides`` is a branch's predicate; ``operands`` go in (and are carried on in loops), ``same`` goes in as it is in every step, of ``slices``
    and ``places`` (which the steps write) one element at a time. ``rooms`` are the buffers whose memory the places are. ``orders`` say how results
    lie that lie otherwise than those of the last body.
    """

    kind: str
    bodies: tuple[Body, ...]
    vals: Sequence[Any]
    operands: Sequence[Any]
    same: Sequence[Any] = ()
    decides: tuple[Any, ...] = ()
    slices: Sequence[Any] = ()
    places: Sequence[Ref] = ()
    rooms: Sequence[str] = ()
    length: Expr = ZERO
    orders: tuple[Order, ...] | None = None


def lower_nested(site: Site, args: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a higher-order operator's node. Raises UnsupportedGraphError for one that has no rule."""
    target: Any = site.node.target
    if target in ATTENTION_RULES:
        try:
            return ATTENTION_RULES[target](site.builder, site.results, *args)
        except Decline as decline:
            raise UnsupportedGraphError(f"{target.name()}: {decline}") from decline
    rule = _RULES.get(target.name())
    if rule is None:
        raise UnsupportedGraphError(f"the higher-order operator {target.name()}")
    return rule(site, *args)


def _invoke(site: Site, module: fx.GraphModule, _identifier: Any, *operands: Any) -> tuple[Any, ...]:
    return _write(site, _Call("call", (site.body(0, module, Form()),), site.results, operands))


def _cond(
    site: Site, predicate: Any, yes: fx.GraphModule, no: fx.GraphModule, operands: Sequence[Any] = ()
) -> tuple[Any, ...]:
    if isinstance(predicate, Expr) and predicate.is_int:
        predicate = bool(int(predicate))
    if isinstance(predicate, bool):
        body = site.body(1, yes, Form()) if predicate else site.body(2, no, Form())
        return _write(site, _Call("call", (body,), site.results, operands))
    orders = _orders(site.builder, site.results)
    bodies = (site.body(1, yes, Form((), orders)), site.body(2, no, Form((), orders)))
    decides = site.builder.ref(predicate) if isinstance(predicate, TensorValue) else predicate
    return _write(site, _Call("cond", bodies, site.results, operands, decides=(decides,)))


def _while(
    site: Site,
    condition: fx.GraphModule,
    step: fx.GraphModule,
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
    *others: Any,
) -> tuple[Any, ...]:
    if any(others):
        raise UnsupportedGraphError("a while_loop that writes what it carries")
    body = _carrying(site, 1, step, step, len(carried))
    asks = site.body(0, condition, Form(body.orders))
    return _write(site, _Call("while", (asks, body), site.results, carried, additional))


def _stack(
    site: Site, condition: fx.GraphModule, step: fx.GraphModule, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """A loop whose results are what all its steps give, row by row: those that are used."""
    body = _carrying(site, 1, step, step, len(carried))
    asks = site.body(0, condition, Form(body.orders))
    used = {user.args[1] for user in site.node.users}
    vals = [val if place in used else None for place, val in enumerate(site.results)]
    return _write(site, _Call("stack", (asks, body), vals, carried, additional, orders=(None,) * len(vals)))


def _scan(
    site: Site, combine: fx.GraphModule, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Steps over the first dimension of ``xs``; each writes what is stacked into its place."""
    if not xs:
        raise UnsupportedGraphError("a scan over nothing")
    carried = len(init)
    body = _carrying(site, 0, combine, writing(combine, carried), carried)
    rooms = [_room(site.builder, val) for val in site.results[carried:]]
    places = [Ref.whole(site.builder.buffers[room]) for room in rooms]
    call = _Call("scan", (body,), site.results[:carried], init, additional, (), xs, places, rooms, xs[0].sizes[0])
    return _write(site, call)


def _map(site: Site, step: fx.GraphModule, xs: Sequence[Any], args: Sequence[Any] = ()) -> tuple[Any, ...]:
    return _scan(site, step, (), xs, args)


def _associative(
    site: Site, combine: fx.GraphModule, xs: Sequence[TensorValue], additional: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """A scan of the loop IR where that knows the combination; else each element goes on from the one before it."""
    g = site.builder
    if len(xs) == 1 and not additional and (found := running(g, combine, xs[0])) is not None:
        return (found,)
    length = xs[0].sizes[0]
    if length is ZERO:
        return tuple(_empty(g, x) for x in xs)
    if length.lo < 1:
        raise UnsupportedGraphError("an associative scan along a dimension that may be empty")
    body = _carrying(site, 0, combine, stepping(combine), len(xs))
    heads = [first(g, x) for x in xs]
    rooms = [_room(g, val) for val in site.results]
    places = [begun(g, room, head) for room, head in zip(rooms, heads, strict=True)]
    rest = [after_first(x) for x in xs]
    call = _Call("scan", (body,), [None] * len(xs), heads, additional, (), rest, places, rooms, length + ex.MINUS_ONE)
    return _write(site, call)[len(xs) :]


_RULES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "invoke_subgraph": _invoke,
    "cond": _cond,
    "while_loop": _while,
    "while_loop_stack_output": _stack,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative,
}


def _empty(g: Builder, x: TensorValue) -> TensorValue:
    return g.lazy(x.sizes, x.dtype, x.device, lambda index: g.constant(0, x.dtype))


def _orders(g: Builder, vals: Sequence[Any]) -> tuple[Order, ...]:
    return tuple(dense_order(g, val) if isinstance(val, torch.Tensor) else None for val in vals)


def _carrying(site: Site, position: int, given: fx.GraphModule, step: fx.GraphModule, carried: int) -> Body:
    """The body ``step`` (made of ``given``) of a loop: what it carries on lies as what it got, and has the same sizes."""
    orders = _orders(site.builder, [node.meta["val"] for node in inputs_of(given)[:carried]])
    body = site.body(position, step, Form(orders, orders))
    for entry, out in zip(body.graph.inputs[:carried], body.graph.outputs, strict=True):
        if isinstance(entry, TensorInput):
            layout = entry.buffer.layout
            if not isinstance(out, Ref) or out.dtype is not layout.dtype or out.device != layout.device:
                raise UnsupportedGraphError("a loop that carries on another kind of value than it got")
            if not all(map(ex.known_eq, out.sizes, layout.sizes)):
                raise UnsupportedGraphError("a loop that changes the sizes of what it carries")
        elif isinstance(out, Ref):
            raise UnsupportedGraphError("a loop that carries on another kind of value than it got")
        elif entry.value is not None and not entry.value.is_symbol and out is not entry.value:
            raise UnsupportedGraphError("a loop that changes a number which its body takes for fixed")
    return body


def _room(g: Builder, val: torch.Tensor) -> str:
    """Memory for what a loop stacks."""
    layout = Layout.contiguous(g.exprs(val.shape), val.dtype, val.device)
    room = g.new_buffer(layout)
    made = {"dtype": layout.dtype, "device": layout.device}
    shape = (tuple(layout.sizes), tuple(layout.strides))
    op = aten.empty_strided.default
    g.operations.append(Extern(op, shape, made, (room,), (), (), "stacked by a loop", g.origins))
    return room.name


def _write(site: Site, call: _Call) -> tuple[Any, ...]:
    """Append the call; what it returns, then what was stacked."""
    g = site.builder
    fitting = Fitting(g, call.operands, call.slices, call.same, call.places)
    fitted = [fitting.fit(body) for body in call.bodies]
    if any(other != fitted[0] for other in fitted):
        raise UnsupportedGraphError("bodies that want the same operands in different layouts")
    operands, slices, same = fitted[0]
    constants = list({c.buffer.name: c for body in call.bodies for c in body.constants}.values())
    symbols = list({symbol.name: symbol for body in call.bodies for symbol in body.symbols}.values())
    for symbol in symbols:
        site.borrow(symbol)
    more = [TensorInput(constant.buffer) for constant in constants]
    numbers = [ScalarInput(f"{symbol.name} outside", symbol, torch.int64) for symbol in symbols]
    names = tuple(
        site.bodies.name(body, fitting.reordered(body.graph.inputs, [*more, *numbers])) for body in call.bodies
    )
    op = Nested(call.kind, names, any(body.draws for body in call.bodies))
    given = (
        (*call.decides, *operands),
        (*same, *map(site.constant, constants), *symbols),
        (*slices, *call.places),
    )
    orders = call.bodies[-1].orders if call.orders is None else call.orders
    outs = tuple(_buffer(g, val, order) for val, order in zip(call.vals, orders, strict=True))
    changed = tuple(g.new_buffer(g.buffers[room].layout, storage=room) for room in call.rooms)
    named = {"length": call.length} if call.kind == "scan" else {}
    fails = any(body.may_fail for body in call.bodies)
    binds = g.binds(call.vals)
    g.operations.append(Extern(op, given, named, outs, changed, binds, "nested", g.origins, checks=fails))
    values = [_value(site, val, out) for val, out in zip(call.vals, outs, strict=True)]
    return (*values, *(TensorValue.of_ref(Ref.whole(buffer)) for buffer in changed))


def _buffer(g: Builder, val: Any, order: Order) -> Any:
    if not isinstance(val, torch.Tensor):
        return None
    g.require_strided(val)
    sizes = g.exprs(val.shape)
    strides = contiguous_strides(sizes) if order is None else strides_in_order(sizes, order)
    return g.new_buffer(Layout(sizes, strides, ZERO, val.dtype, val.device))


def _value(site: Site, val: Any, out: Any) -> Any:
    if out is not None:
        return TensorValue.of_ref(Ref.whole(out))
    if isinstance(val, torch.SymInt):
        e = site.builder.expr(val)
        unknown = {symbol.name for symbol in ex.free_symbols(e)} - site.builder.known_symbols
        if unknown:
            raise UnsupportedGraphError(f"a body that returns the size {e}, whose symbols nothing defines")
        return e
    if isinstance(val, torch.SymFloat | torch.SymBool | Scalar):
        raise UnsupportedGraphError(f"a body that returns a {type(val).__name__}")
    return val
