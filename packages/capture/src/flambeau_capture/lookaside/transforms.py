"""The transforms of `torch.func`: `vmap`, `grad`, `vjp`, `jvp`, `jacrev`, `jacfwd` and what is made of them.

In: calls met while tracing; the Python of a transform is traced into until it comes to where torch opens levels. Out: the transformed function is a
body of the graph, and the transform a call in it: `operator.call(torch.func.grad(functools.partial(body, ...)), ...)`. Bodies take and give flat
tuples of tensors; what else goes in and out is put together here. What eager refuses breaks the graph.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch import apis, eager_transforms
from torch._functorch.vmap import vmap_impl
from torch.nn.utils._named_member_accessor import NamedMemberAccessor

from ..library import functools
from ..replacements import replaces, replaces_wrapper
from ..signals import GraphBreak
from ..values.base import Value
from ..values.functions import ClosureValue, PartialValue
from ..values.graph_functions import GraphFunctionValue
from ..values.objects import ObjectValue
from ..values.sequences import TupleValue
from ..values.tensor import TensorValue
from ..values.trees import Structure
from .bodies import alike, broken
from .transformed import as_function, as_python, called, leaves_of, record, traced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer
    from .transformed import Handed, Traced

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_NO_TENSOR = "what is differentiated is no tensor"


# what transforms make


def _code_within(function: Any, name: str) -> types.CodeType:
    (code,) = (
        const for const in function.__code__.co_consts if isinstance(const, types.CodeType) and const.co_name == name
    )
    return code


class _NamedAfterAnObject(ClosureValue):
    """A transform of a module or another object, to which torch gives all attributes of the object; what asks for one, or keeps the function, breaks."""

    __slots__ = ()

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in ("__code__", "__closure__", "__class__", "__call__"):
            return super().get_attribute(t, name)
        raise GraphBreak("unsupported-attribute", f"{name} of a transformed object")

    def rebuild(self, e: Any) -> None:
        raise NotImplementedError


def name_after(t: Tracer, decorator: Value, args: Args, kwargs: Kwargs) -> Value:
    """`functools.wraps` of a function or an object."""
    made = args[0]
    (cell,) = t.operators.iterate_all(t.attributes.get_attribute(decorator, "__closure__"))
    named = t.attributes.get_attribute(cell, "cell_contents").realise(t)
    if isinstance(made, ClosureValue) and isinstance(named, ObjectValue | PartialValue | GraphFunctionValue):
        return _NamedAfterAnObject(
            made.code, made.globals, made.defaults, made.kwdefaults, made.closure, made.annotations
        )
    return t.caller.call(t.wrapper.wrap_pinned(functools.update_wrapper), [made, named], {})


# Where torch has a decorator of its own for it.
if hasattr(apis, "_wraps_without_dynamo_attrs"):
    replaces_wrapper(_code_within(apis._wraps_without_dynamo_attrs, "inner"))(name_after)


@replaces(NamedMemberAccessor.swap_tensors_dict)
def swap_tensors(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`functional_call` puts a module's tensors back when the call is over: a transformed function may do that."""
    function: Any = NamedMemberAccessor.swap_tensors_dict
    with t.heap.undone():
        return t.caller.inline_function(t.wrapper.wrap_pinned(function), function, args, kwargs)


# vmap


@replaces(vmap_impl)
def vmap(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`vmap(function, in_dims, out_dims, randomness, chunk_size)(*given, **kwargs)`."""
    function, *given = args[0], *args[5:]
    in_dims, out_dims, randomness, chunk_size = (as_python(t, option) for option in args[1:5])
    if chunk_size is not None and randomness == "same":
        raise broken("vmap sets the state of the generator before each chunk")
    leaves, structure = leaves_of(t, TupleValue(given, tuple))
    dims = _spread(in_dims, structure)
    if dims is None or not any(type(dim) is int for dim in dims):
        raise broken("in_dims of vmap is not as the arguments are")
    for leaf, dim in zip(leaves, dims, strict=True):
        if dim is not None and not (
            isinstance(leaf, TensorValue) and type(dim) is int and -leaf.fake.ndim <= dim < leaf.fake.ndim
        ):
            raise broken("in_dims of vmap names no dimension of an argument")

    def handed(place: int, leaf: TensorValue) -> Handed:
        if dims[place] is None:
            return None
        at = dims[place] % leaf.fake.ndim
        shape, stride = list(leaf.fake.shape), list(leaf.fake.stride())
        return shape[:at] + shape[at + 1 :], stride[:at] + stride[at + 1 :], False

    def call(inner: list[Value]) -> Value:
        return t.caller.call(function, list(t.operators.iterate_all(structure.filled(inner))), kwargs)

    body = traced(t, function, leaves, handed, call, "vmap", _batch(t, leaves, dims))
    places = _out_places(out_dims, body.structure)
    options = {} if chunk_size is None else {"chunk_size": chunk_size}
    batched = tuple(dim for dim in dims if dim is not None)
    function = as_function(t, body, tuple(body.nodes))
    made = record(t, torch.func.vmap, (function, batched, places, randomness), options)
    return body.structure.filled(called(t, made, body.operands))


def _batch(t: Tracer, leaves: Sequence[Value], dims: Sequence[Any]) -> Value:
    """How many samples there are."""
    given = zip(leaves, dims, strict=True)
    return next(
        leaf.size(t, dim % leaf.fake.ndim) for leaf, dim in given if isinstance(leaf, TensorValue) and dim is not None
    )


def _spread(dims: Any, structure: Structure) -> list[Any] | None:
    """One for each leaf, as torch's pytrees spread what is no container over what is one; None where their containers differ."""
    if not isinstance(dims, (tuple, list, dict)):
        return [dims] * structure.count
    if type(dims) is not structure.cls or len(dims) != len(structure.parts):
        return None
    if isinstance(dims, dict):
        if list(dims) != list(structure.keys):
            return None
        dims = list(dims.values())
    spread = [_spread(own, part) for own, part in zip(dims, structure.parts, strict=True)]
    return None if None in spread else [dim for part in spread for dim in part or ()]


def _out_places(out_dims: Any, structure: Structure) -> tuple[Any, ...]:
    if structure.cls is None and isinstance(out_dims, tuple) and len(out_dims) == 1:
        (out_dims,) = out_dims
    places = _spread(out_dims, structure)
    if places is None or not all(type(place) in (int, types.NoneType) for place in places):
        raise broken("out_dims of vmap is not as the results are")
    return tuple(places)


# gradients


@replaces(eager_transforms.grad_impl)
def grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`grad(function, argnums, has_aux)(*args, **kwargs)`."""
    gradients, _, aux = _gradients(t, args)
    return gradients if aux is None else TupleValue([gradients, aux], tuple)


@replaces(eager_transforms.grad_and_value_impl)
def grad_and_value(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`grad_and_value(function, argnums, has_aux)(*args, **kwargs)`."""
    gradients, value, aux = _gradients(t, args)
    return TupleValue([gradients, value if aux is None else TupleValue([value, aux], tuple)], tuple)


def _gradients(t: Tracer, args: Args) -> tuple[Value, Value, Value | None]:
    """Gradients, the value, and what comes beside it."""
    function, argnums, has_aux = args[0], as_python(t, args[1]), bool(as_python(t, args[2]))
    leaves, structure = leaves_of(t, TupleValue(list(args[3:5]), tuple))
    wanted, places = _chosen(argnums, structure.parts[0])

    def call(inner: list[Value]) -> Value:
        given, named = t.operators.iterate_all(structure.filled(inner))
        keywords = {t.wrapper.to_python(key): value for key, value in t.operators.mapping_items(named)}
        return t.caller.call(function, list(t.operators.iterate_all(given)), keywords)

    body = _differentiated(t, function, leaves, places, call)
    outputs, result, beside = body.divided(has_aux=has_aux)
    if result != Structure():
        raise broken("what is differentiated returns more than a tensor")
    scalar = (outputs[0][0], outputs[1]) if has_aux else outputs[0]
    options = {"argnums": _argnums(leaves, places), "has_aux": has_aux}
    made = record(t, torch.func.grad_and_value, (as_function(t, body, scalar),), options)
    gradients, value = called(t, made, body.operands)
    value, aux = value if beside is not None else (value, ())
    return wanted.filled(gradients), value, None if beside is None else beside.filled(aux)


def _differentiated(t: Tracer, function: Value, leaves: list[Value], places: Sequence[int], call: Any) -> Traced:
    """The function as a body, which is differentiated by these leaves, always with gradients enabled."""
    if not all(isinstance(leaves[place], TensorValue) for place in places):
        raise broken(_NO_TENSOR)

    def handed(place: int, leaf: TensorValue) -> Handed:
        return leaf.fake.shape, leaf.fake.stride(), place in places

    with torch.enable_grad():
        return traced(t, function, leaves, handed, call, "grad")


def _argnums(leaves: list[Value], places: list[int]) -> tuple[int, ...]:
    """Where among the operands, which are all tensors of the arguments, these leaves are."""
    tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, TensorValue)]
    return tuple(map(tensors.index, places))


def _chosen(argnums: Any, structure: Structure) -> tuple[Structure, list[int]]:
    """The containers of these arguments, and the places of their leaves, in order."""
    parts, count = structure.parts, len(structure.parts)
    given = argnums if isinstance(argnums, tuple) else (argnums,)
    if not all(type(place) is int and -count <= place < count for place in given):
        raise broken("argnums names no argument")
    chosen = [place % count for place in given]
    if not chosen or len(set(chosen)) < len(chosen):
        raise broken("argnums names an argument twice")
    starts = [sum(part.count for part in parts[:place]) for place in range(count + 1)]
    leaves = [leaf for place in chosen for leaf in range(starts[place], starts[place + 1])]
    if not isinstance(argnums, tuple):
        return parts[chosen[0]], leaves
    return Structure(tuple, tuple(parts[place] for place in chosen)), leaves


# products with a Jacobian


@replaces(eager_transforms._vjp_with_argnums)
def vjp(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`vjp(function, *primals, has_aux)`: results, and the function that pulls cotangents back."""
    function, *primals = args
    has_aux = bool(as_python(t, kwargs["has_aux"])) if "has_aux" in kwargs else False
    if kwargs.keys() - {"has_aux"}:
        raise broken("vjp with argnums")
    leaves, structure = leaves_of(t, TupleValue(primals, tuple))
    body = _differentiated(t, function, leaves, range(len(leaves)), _calling(t, function, structure))
    outputs, result, beside = body.divided(has_aux=has_aux)
    made = record(t, torch.func.vjp, (as_function(t, body, outputs), *body.operands), {"has_aux": has_aux})
    results, pull, *aux = made

    def pulled(t: Tracer, own: GraphFunctionValue, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or kwargs:
            raise broken("the function that vjp gives is called with more than cotangents")
        cotangents, given = leaves_of(t, args[0])
        if given != result or not all(isinstance(value, TensorValue) for value in cotangents):
            raise broken("cotangents are not as the results are")
        return structure.filled(called(t, own, [tuple(cotangents)]))

    pull.called = pulled
    parts = [result.filled(results), pull, *(() if beside is None else (beside.filled(aux[0]),))]
    return TupleValue(parts, tuple)


def _calling(t: Tracer, function: Value, structure: Structure) -> Any:
    return lambda inner: t.caller.call(function, list(t.operators.iterate_all(structure.filled(inner))), {})


@replaces(eager_transforms._jvp_with_argnums)
def jvp(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`jvp(function, primals, tangents, strict, has_aux)`: results and their derivatives along the tangents."""
    options = {name: bool(as_python(t, kwargs[name])) for name in ("strict", "has_aux") if name in kwargs}
    argnums = kwargs["argnums"] if "argnums" in kwargs else args[3]
    if as_python(t, argnums) is not None:
        raise broken("jvp with argnums")
    function = args[0]
    leaves, structure = leaves_of(t, args[1])
    tangents, given = leaves_of(t, args[2])
    if (
        structure.cls is not tuple
        or given != structure
        or not all(isinstance(leaf, TensorValue) for leaf in (*leaves, *tangents))
    ):
        raise broken("primals and tangents of jvp are not alike")

    body = traced(t, function, leaves, _as_it_is, _calling(t, function, structure), "jvp")
    outputs, result, beside = body.divided(has_aux=options.get("has_aux", False))
    made = record(t, torch.func.jvp, (as_function(t, body, outputs), tuple(body.operands), tuple(tangents)), options)
    results, derivatives, *aux = made
    parts = [result.filled(results), result.filled(derivatives), *(() if beside is None else (beside.filled(aux[0]),))]
    return TupleValue(parts, tuple)


def _as_it_is(place: int, leaf: TensorValue) -> Handed:
    return leaf.fake.shape, leaf.fake.stride(), False


@replaces(torch.func.linearize)
def linearize(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`linearize(function, *primals)`: results, and a function that pushes tangents forward, by `jvp` at each call. As in eager the function is called
    a second time for it, now: what it reads then is what counts, so it must not be written before the last call."""
    function, *primals = args
    leaves, structure = leaves_of(t, TupleValue(primals, tuple))
    if kwargs or not all(isinstance(leaf, TensorValue) for leaf in leaves):
        raise broken("linearize at what is no tensor")
    if any(outer.transform for outer in t.graph.bodies):
        raise broken("linearize within a transform")
    outputs = t.caller.call(function, primals, {})
    body = traced(t, function, leaves, _as_it_is, _calling(t, function, structure), "jvp")
    if body.graph.region.draws:
        raise broken("linearize of a function that draws random numbers, which are the same for all tangents")
    nodes, result, _ = body.divided(has_aux=False)
    made = as_function(t, body, nodes)
    fakes = [leaf.fake for leaf in body.operands] + [node.meta["val"] for node in body.graph.lifted]
    versions = [(fake, fake._version) for fake in fakes if isinstance(fake, torch.Tensor)]

    def pushed(t: Tracer, own: GraphFunctionValue, args: Args, kwargs: Kwargs) -> Value:
        tangents, given = leaves_of(t, TupleValue(list(args), tuple))
        if kwargs or given != structure or not all(map(functools.partial(_is_tangent, t), tangents, leaves)):
            raise broken("tangents are not as what was linearized at")
        if any(fake._version != version for fake, version in versions):
            raise broken("what was linearized reads a tensor that was written since")
        _, derivatives = record(t, torch.func.jvp, (own, tuple(body.operands), tuple(tangents)))
        return result.filled(derivatives)

    made.called = pushed
    return TupleValue([outputs, made], tuple)


def _is_tangent(t: Tracer, tangent: Value, leaf: Value) -> bool:
    return (
        isinstance(tangent, TensorValue)
        and isinstance(leaf, TensorValue)
        and alike(t, tangent.fake, leaf.fake, strides=False)
    )


# Jacobians


@replaces_wrapper(_code_within(torch.func.jacrev, "wrapper_fn"))
def jacrev(t: Tracer, function: Value, args: Args, kwargs: Kwargs) -> Value:
    """A call of what `jacrev` makes."""
    return _jacobian(t, torch.func.jacrev, function, args, kwargs)


@replaces_wrapper(_code_within(torch.func.jacfwd, "wrapper_fn"))
def jacfwd(t: Tracer, function: Value, args: Args, kwargs: Kwargs) -> Value:
    """A call of what `jacfwd` makes."""
    return _jacobian(t, torch.func.jacfwd, function, args, kwargs)


def _jacobian(t: Tracer, transform: Any, wrapper: Value, args: Args, kwargs: Kwargs) -> Value:
    if kwargs:
        raise broken(f"{transform.__name__} of a call with keyword arguments")
    cells = t.operators.iterate_all(t.attributes.get_attribute(wrapper, "__closure__"))
    names = as_python(t, t.attributes.get_attribute(t.attributes.get_attribute(wrapper, "__code__"), "co_freevars"))
    variables = {
        name: t.attributes.get_attribute(cell, "cell_contents") for name, cell in zip(names, cells, strict=True)
    }
    function = variables.pop("func")
    own = {name: as_python(t, value) for name, value in variables.items() if name in _OPTIONS}
    argnums, has_aux = own.pop("argnums"), bool(own["has_aux"])
    leaves, structure = leaves_of(t, TupleValue(list(args), tuple))
    wanted, places = _chosen(tuple(range(len(args))) if argnums is None else argnums, structure)
    call = _calling(t, function, structure)
    if transform is torch.func.jacrev:
        body = _differentiated(t, function, leaves, places, call)
    else:
        body = traced(t, function, leaves, lambda _, leaf: (leaf.fake.shape, leaf.fake.stride(), False), call, "jacfwd")
    outputs, result, beside = body.divided(has_aux=has_aux)
    options = {**own, "argnums": _argnums(leaves, places)}
    made = called(t, record(t, transform, (as_function(t, body, outputs),), options), body.operands)
    jacobians, aux = made if beside is not None else (made, ())
    found = result.filled([wanted.filled(row) for row in jacobians])
    return found if beside is None else TupleValue([found, beside.filled(aux)], tuple)


_OPTIONS = frozenset(("argnums", "has_aux", "chunk_size", "_preallocate_and_copy", "randomness"))
"""What the wrappers close over beside the function."""


# what torch makes


@replaces(eager_transforms._chunked_standard_basis_for_)
def standard_basis(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The rows of identity matrices: torch 2.11 reads where they begin out of a tensor."""
    return t.caller.call(t.wrapper.wrap_pinned(_standard_basis), args, kwargs)


def _standard_basis(tensors: Any, tensor_numels: Any, chunk_size: Any = None) -> Any:
    if len(tensors) != len(tensor_numels) or not tensors or (chunk_size is not None and chunk_size <= 0):
        raise AssertionError
    total = sum(tensor_numels)
    rows = total if chunk_size is None else min(chunk_size, total)
    for first in range(0, total, rows):
        count, begins, chunk = min(rows, total - first), 0, []
        for tensor, width in zip(tensors, tensor_numels, strict=False):
            basis = tensor.new_zeros(count, width)
            basis.diagonal(first - begins).fill_(1)
            chunk.append(basis.view(count, *tensor.shape))
            begins += width
        yield tuple(chunk)
