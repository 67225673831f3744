"""torch's control-flow operators.

In: calls met while tracing. Out: `cond`, `while_loop`, `while_loop_stack_output`, `scan` and `map` are one node each, over bodies; `cond` on a predicate that is no
tensor becomes the branch it takes; `associative_scan` becomes the slices and combinations it stands for (their number grows with the
logarithm of the length); a nested compile region is traced in place, and its nodes say so. What eager would refuse breaks the graph, with the reason `control-flow-operator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops._invoke_quant import InvokeQuant, invoke_quant_packed
from torch._higher_order_ops.associative_scan import associative_scan as torch_associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop
from torch.fx.experimental.symbolic_shapes import constrain_range
from torch.torch_version import TorchVersion
from torch.utils import _pytree as pytree

from ..replacements import replaces
from ..values.base import Value
from ..values.tensor import TensorValue
from ..values.trees import Structure, flattened
from .bodies import Body, alike, bound, broken, call_operator, finished, trace_body, trace_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch.fx

    from ..graph.bodies import BodyGraph
    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

try:
    from torch._higher_order_ops.register_hook import register_hook_op
except ImportError:  # an older torch
    register_hook_op = None

_HOP = torch.ops.higher_order
#: Whether `scan` gives its rows along the dimension that it walks, or along the first one all the same.
_ROWS_LIE_ALONG_DIM = TorchVersion(torch.__version__) >= "2.12"


def _named(names: tuple[str, ...], args: Args, kwargs: Kwargs, *, least: int) -> dict[str, Value]:
    """The arguments by the operator's names for them, of which the first `least` must be given; what eager refuses breaks the graph."""
    given = dict(zip(names, args, strict=False))
    if len(args) > len(names) or given.keys() & kwargs.keys() or kwargs.keys() - set(names):
        raise broken("arguments that the operator does not take")
    given |= kwargs
    if not given.keys() >= set(names[:least]):
        raise broken("arguments that the operator needs are not given")
    return given


def _operands(t: Tracer, given: Value) -> list[Value]:
    """What the branches of a `cond` are called with."""
    if given.realise(t).python_type() not in (tuple, list):
        raise broken("the operands of torch.cond are no tuple or list")
    return list(t.operators.iterate_all(given))


@replaces(torch.cond)
def cond(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.cond(pred, true_fn, false_fn, operands)`: a predicate that is no tensor is decided now."""
    given = _named(("pred", "true_fn", "false_fn", "operands"), args, kwargs, least=3)
    predicate, branches = given["pred"].realise(t), (given["true_fn"], given["false_fn"])
    operands = _operands(t, given["operands"]) if "operands" in given else []
    if not isinstance(predicate, TensorValue):
        return t.caller.call(branches[0] if predicate.truth(t) else branches[1], operands, {})
    if predicate.fake.dtype is not torch.bool or not t.graph.decide(predicate.fake.numel() == 1):
        raise broken("the predicate of torch.cond is no single truth value")
    bodies = [trace_body(t, branch, lambda graph: operands) for branch in branches]
    pairs = list(zip(bodies[0].fakes, bodies[1].fakes, strict=False))
    if bodies[0].structure != bodies[1].structure or not all(alike(t, one, other) for one, other in pairs):
        raise broken("the branches of torch.cond return tensors of different kinds")
    names, lifted = finished(t, *bodies)
    results = [one if one.requires_grad else other for one, other in pairs]
    made = call_operator(t, _HOP.cond, (t.recorder.node_of(predicate), *names, tuple(lifted)), results)
    return bodies[0].structure.filled(made)


@replaces(torch_while_loop)
def while_loop(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`while_loop(cond_fn, body_fn, carried_inputs)`."""
    given = _named(("cond_fn", "body_fn", "carried_inputs"), args, kwargs, least=3)
    operands, stepped = _loop(t, given["cond_fn"], given["body_fn"], given["carried_inputs"])
    return stepped.structure.filled(call_operator(t, _HOP.while_loop, operands, stepped.fakes))


@replaces(_HOP.while_loop_stack_output)
def while_loop_stack_output(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`while_loop_stack_output(cond_fn, body_fn, carried_inputs, additional_inputs)`: what every step gives, stacked, in as many rows as steps are
    taken, and one at least. The number of rows is known once the loop has run."""
    if kwargs or len(args) != 4 or any(given.realise(t).python_type() not in (tuple, list) for given in args[2:]):
        raise broken("arguments that the operator does not take")
    if not all(isinstance(part.realise(t), TensorValue) for part in t.operators.iterate_all(args[2])):
        raise broken("what is handed from step to step is no tensor")
    operands, stepped = _loop(t, args[0], args[1], args[2], list(t.operators.iterate_all(args[3])))
    if stepped.structure.cls is not tuple:
        raise broken("body_fn of while_loop_stack_output returns no tuple")
    read = [node.meta["val"] for given in operands[2:] for node in given]
    if torch.is_grad_enabled() and any(isinstance(fake, torch.Tensor) and fake.requires_grad for fake in read):
        raise broken("while_loop_stack_output has no gradient")
    with t.graph.unpatched:
        rows = t.graph.need_shape_env().create_unbacked_symint()
        constrain_range(rows, min=1)
    made = call_operator(t, _HOP.while_loop_stack_output, operands, _stacked(t, stepped.fakes, rows))
    return stepped.structure.filled(made)


def _loop(
    t: Tracer, condition: Value, step: Value, given: Value, others: Sequence[Value] = ()
) -> tuple[tuple[Any, ...], Body]:
    """What the operator of a loop is called with, and the body that is one step. `others` are given to both functions after what is carried."""
    carried, structure = flattened(t, given)
    tensors = _contiguous(t, carried)

    def arguments(graph: BodyGraph, needs: Sequence[bool]) -> list[Value]:
        fresh = _carried(t, graph, tensors, needs)
        return [*t.operators.iterate_all(structure.filled(fresh)), *others]

    asked = trace_body(t, condition, lambda graph: arguments(graph, [fake.requires_grad for fake in tensors]))
    stepped = trace_step(t, step, tensors, arguments)
    if [(fake.dtype, fake.ndim) for fake in asked.fakes] != [(torch.bool, 0)] or asked.structure != Structure():
        raise broken("cond_fn of while_loop returns no truth value")
    if stepped.structure.parts != structure.parts or not _go_on(t, tensors, stepped.fakes):
        raise broken("body_fn of while_loop returns tensors of another kind than it is given")
    names, lifted = finished(t, asked, stepped, asks=asked)
    return (*names, _nodes(t, carried), tuple(lifted)), stepped


def _contiguous(t: Tracer, values: Sequence[Value]) -> list[torch.Tensor]:
    """The fakes of what is handed from step to step."""
    fakes = [value.fake for value in values if isinstance(value, TensorValue)]
    if len(fakes) < len(values) or not fakes:
        raise broken("what is handed from step to step is no tensor")
    if not all(fake.is_contiguous() for fake in fakes):
        raise broken("what is handed from step to step is not contiguous")
    return fakes


def _carried(t: Tracer, graph: BodyGraph, fakes: Sequence[torch.Tensor], needs: Sequence[bool]) -> list[Value]:
    """What a body is handed of what goes from step to step."""
    each = zip(fakes, needs, strict=True)
    return [bound(t, graph, fake, fake.shape, fake.stride(), requires_grad=grad) for fake, grad in each]


def _go_on(t: Tracer, given: Sequence[torch.Tensor], returned: Sequence[torch.Tensor]) -> bool:
    """Whether what a step returns can be given to the next."""
    return len(given) == len(returned) and all(alike(t, one, other) for one, other in zip(given, returned, strict=True))


def _nodes(t: Tracer, values: Sequence[Value]) -> tuple[torch.fx.Node, ...]:
    return tuple(t.recorder.node_of(value) for value in values if isinstance(value, TensorValue))


@replaces(torch_scan)
def scan(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`scan(combine_fn, init, xs, *, dim, reverse)`: what is scanned is laid out for the operator, which walks the first dimension."""
    return t.caller.call(t.wrapper.wrap_pinned(_scan_any_dimension), args, kwargs)


def _scan_any_dimension(combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    dim = _dimension_of(leaves[0], dim)
    if dim:
        leaves = [torch.movedim(leaf, dim, 0) for leaf in leaves]
    if reverse:
        leaves = [torch.flip(leaf, [0]) for leaf in leaves]
    carry, out = _scan_first_dimension(combine_fn, init, pytree.tree_unflatten(leaves, spec))
    if reverse:
        out = pytree.tree_map(lambda leaf: leaf.flip([0]), out)
    if dim and _ROWS_LIE_ALONG_DIM:
        out = pytree.tree_map(lambda leaf: torch.movedim(leaf, 0, dim) if dim < leaf.ndim else leaf, out)
    return carry, out


def _dimension_of(leaf: Any, dim: int) -> int:
    """Which dimension is walked, from the first."""
    if not -leaf.ndim <= dim < leaf.ndim:
        raise IndexError(dim)
    return dim % leaf.ndim


def _scan_first_dimension(combine_fn: Any, init: Any, xs: Any) -> Any:
    """Stands for the operator in `_scan_any_dimension`."""
    raise NotImplementedError


@replaces(_scan_first_dimension)
def scan_first_dimension(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`scan` along the first dimension: `combine_fn(carry, x)` returns the next carry, and a part of what is stacked."""
    combine, (carried, structure), (scanned, rows) = args[0], flattened(t, args[1]), flattened(t, args[2])
    init, xs = _contiguous(t, carried), _with_one_length(t, scanned)

    def arguments(graph: BodyGraph, needs: Sequence[bool]) -> list[Value]:
        carry = _carried(t, graph, init, needs)
        row = [bound(t, graph, fake, fake.shape[1:], fake.stride()[1:]) for fake in xs]
        return [structure.filled(carry), rows.filled(row)]

    body = trace_step(t, combine, init, arguments)
    count, parts = len(init), body.structure.parts
    if body.structure.cls not in (tuple, list) or len(parts) != 2 or parts[0] != structure:
        raise broken("combine_fn of scan does not return a carry and a part of the result")
    if not _go_on(t, init, body.fakes[:count]):
        raise broken("combine_fn of scan returns a carry of another kind than it is given")
    names, lifted = finished(t, body)
    results = [*body.fakes[:count], *_stacked(t, body.fakes[count:], xs[0].shape[0])]
    operands = (list(_nodes(t, carried)), list(_nodes(t, scanned)), tuple(lifted))
    return Structure(tuple, parts).filled(call_operator(t, _HOP.scan, (*names, *operands), results))


def _with_one_length(t: Tracer, values: Sequence[Value]) -> list[torch.Tensor]:
    """The fakes of what is walked through."""
    fakes = [value.fake for value in values if isinstance(value, TensorValue)]
    if len(fakes) < len(values) or not fakes or not all(fake.ndim for fake in fakes):
        raise broken("what is walked through is no tensor with a dimension")
    lengths = [fake.shape[0] for fake in fakes]
    if not t.graph.decide(lengths[0] > 0) or not all(t.graph.decide(length == lengths[0]) for length in lengths):
        raise broken("what is walked through is empty or of several lengths")
    return fakes


def _stacked(t: Tracer, fakes: Sequence[torch.Tensor], length: Any) -> list[torch.Tensor]:
    """Fakes of the rows that a body gives, with or without a gradient as they are."""
    with t.graph.unpatched, t.graph.fake_mode, torch.no_grad():
        rows = [torch.empty((length, *fake.shape), dtype=fake.dtype, device=fake.device) for fake in fakes]
    return [row.requires_grad_(fake.requires_grad) for row, fake in zip(rows, fakes, strict=True)]


@replaces(torch_map)
def map_over(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`map(f, xs, *args)`: the results of `f(x, *args)` for the rows of `xs`, stacked."""
    if kwargs or len(args) < 2:
        raise broken("map takes a function, what it walks through, and what goes to each call, none by its name")
    function, given, *others = args
    scanned, rows = flattened(t, given)
    xs = _with_one_length(t, scanned)

    def arguments(graph: BodyGraph) -> list[Value]:
        row = [bound(t, graph, fake, fake.shape[1:], fake.stride()[1:]) for fake in xs]
        return [rows.filled(row), *others]

    body = trace_body(t, function, arguments)
    names, lifted = finished(t, body)
    results = _stacked(t, body.fakes, xs[0].shape[0])
    made = call_operator(t, _HOP.map_impl, (*names, list(_nodes(t, scanned)), list(lifted)), results)
    return body.structure.filled(made)


@replaces(InvokeQuant.__call__)
def quantised_region(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`InvokeQuant()(function, *args, scheme=None)`: part of the graph, as the plain call that it is in eager."""
    return t.caller.call(args[1], args[2:], {name: value for name, value in kwargs.items() if name != "scheme"})


@replaces(invoke_quant_packed)
def packed_quantised_region(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`invoke_quant_packed(function, *args, scheme=None, quant_options=None)`, of a function that returns a tuple."""
    if kwargs.keys() - {"scheme", "quant_options"} or not args:
        raise broken("arguments that the operator does not take")
    found = t.caller.call(args[0], args[1:], {}).realise(t)
    if found.python_type() is not tuple:
        raise broken("the function of invoke_quant_packed returns no tuple")
    return found


@replaces(*filter(None, [register_hook_op]))
def hooked(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`register_hook_op(tensor, hook, *args)`: the tensor, with `hook(gradient, *args)` as its hook."""
    return t.caller.call(t.wrapper.wrap_pinned(_hooked), args, kwargs)


def _hooked(tensor: Any, hook_body: Any, *freevars: Any) -> Any:
    tensor.register_hook(lambda gradient: hook_body(gradient, *freevars))
    return tensor


@replaces(torch_associative_scan)
def associative_scan(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`associative_scan(combine_fn, xs, dim)`."""
    return t.caller.call(t.wrapper.wrap_pinned(_scan), args, kwargs)


def _scan(combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    leaves, spec = pytree.tree_flatten(xs)
    count, dim = len(leaves), _dimension_of(leaves[0], dim)
    if combine_mode == "generic":
        combine_fn = torch.vmap(combine_fn)
    elif combine_mode != "pointwise" or any(leaf.device.type == "cpu" for leaf in leaves):
        raise ValueError(combine_mode)
    if any(leaf.ndim <= dim or leaf.shape[dim] == 0 for leaf in leaves):
        raise ValueError(dim)
    leaves = [torch.movedim(leaf, dim, 0) for leaf in leaves]
    if reverse:
        leaves = [torch.flip(leaf, [0]) for leaf in leaves]

    def combine(*flat: Any) -> Any:
        left, right = pytree.tree_unflatten(flat[:count], spec), pytree.tree_unflatten(flat[count:], spec)
        return pytree.tree_leaves(combine_fn(left, right))

    done = _prefixes(combine, leaves)
    if reverse:
        done = [torch.flip(leaf, [0]) for leaf in done]
    return pytree.tree_unflatten([torch.movedim(leaf, 0, dim) for leaf in done], spec)


def _prefixes(combine: Any, leaves: list[Any]) -> list[Any]:
    """Combine neighbours, scan the half as many results, and put the elements between them in."""
    size = leaves[0].shape[0]
    if size < 2:
        return leaves
    even = [leaf.narrow(0, 0, size - size % 2).unflatten(0, (size // 2, 2)) for leaf in leaves]
    pairs = combine(*[e.select(1, 0) for e in even], *[e.select(1, 1) for e in even])
    odd = _prefixes(combine, pairs)
    if size == 2:
        return [torch.cat([leaf.narrow(0, 0, 1), o]) for leaf, o in zip(leaves, odd, strict=True)]
    rest = (size - 1) // 2
    before = [o.narrow(0, 0, rest) for o in odd]
    between = combine(*before, *[_every_other(leaf, rest) for leaf in leaves])
    return [_merged(leaf, o, b, size) for leaf, o, b in zip(leaves, odd, between, strict=True)]


def _every_other(leaf: Any, count: int) -> Any:
    """The rows 2, 4, 6…, `count` of them."""
    return leaf.index_select(0, torch.arange(2, 2 + 2 * count, 2, device=leaf.device))


def _merged(leaf: Any, odd: Any, between: Any, size: int) -> Any:
    """Row 0, then odd and even places in turn."""
    first = torch.cat([leaf.narrow(0, 0, 1), between])
    pairs = min(first.shape[0], odd.shape[0])
    woven = torch.stack([first.narrow(0, 0, pairs), odd.narrow(0, 0, pairs)], 1).flatten(0, 1)
    return torch.cat([woven, first.narrow(0, pairs, size - 2 * pairs)])
