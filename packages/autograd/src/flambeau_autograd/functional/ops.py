"""What kind of thing each ATen overload is, decided once per overload.

In: an `OpOverload`. Out: a `Kind` and, for writing ops, the functional overload that computes the new values and the
places of the written arguments. Decisions are cached for the life of the process: schemas do not change.
"""

from __future__ import annotations

import enum
import functools
from typing import Any

import torch
from attrs import frozen
from torch._ops import HigherOrderOperator, OpOverload

aten = torch.ops.aten


class Kind(enum.Enum):
    """How the recorder treats an overload."""

    PURE = "pure"
    VIEW = "view"
    IDENTITY = "identity"
    WRITE = "write"
    METADATA_WRITE = "metadata write"
    OPAQUE_WRITE = "opaque write"
    QUERY = "query"
    COMPOSITE = "composite"
    REFUSED = "refused"


@frozen
class WritePlan:
    """`functional` is called with the arguments at `keep` (positions) and `keep_kwargs`; result i goes to `targets[i]`.

    A target is an argument position or a keyword name. A `factory` is told the target's dtype and device besides.
    """

    functional: OpOverload
    keep: tuple[int, ...]
    keep_kwargs: tuple[str, ...]
    targets: tuple[int | str, ...]
    factory: bool = False


#: Namespaces of torch whose ops do what their schemas say. Ops of others may do anything.
_COMPUTING_NAMESPACES = frozenset(
    {"aten", "prims", "quantized", "_quantized", "mkldnn", "mkl", "onednn", "sparse", "prim"}
)
#: They write running statistics that the schema shows as plain arguments.
_UNDECLARED_WRITES = frozenset(
    {
        "batch_norm", "_batch_norm_impl_index", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "instance_norm",
    }
)  # fmt: skip
_IDENTITY = ("detach", "alias", "lift_fresh", "detach_", "lift")
_REFUSED = ("resize_", "set_", "resize_as_", "_resize_output_", "set_data", "record_stream")
#: What they return is quantised; fake tensors show ordinary ones.
_QUANTISING = ("quantize_per_", "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_make_per_")
_QUERY_NAMESPACES = ("prim",)
_QUERIES = (
    "is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense", "size", "sym_size", "stride",
    "sym_stride", "storage_offset", "sym_storage_offset", "numel", "sym_numel", "dim", "is_same_size",
    "sym_is_contiguous",
)  # fmt: skip
# In-place random ops whose functional twin has another name.
_RENAMED = {
    ("bernoulli_", "float"): ("bernoulli", "p"),
    ("normal_", "default"): ("normal_functional", "default"),
    ("_index_put_impl_", "default"): ("_index_put_impl", "default"),
    ("__ilshift__", "Tensor"): ("__lshift__", "Tensor"),
    ("__ilshift__", "Scalar"): ("__lshift__", "Scalar"),
    ("__irshift__", "Tensor"): ("__rshift__", "Tensor"),
    ("__irshift__", "Scalar"): ("__rshift__", "Scalar"),
}
#: What a factory is told of the tensor that it makes; one that is given a tensor to fill is not.
_OF_FACTORIES = frozenset({"dtype", "layout", "device", "pin_memory"})
_RANDOM_NAMES = frozenset(
    {
        "bernoulli", "bernoulli_", "normal", "normal_", "normal_functional", "uniform", "uniform_", "random", "random_",
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "multinomial", "exponential",
        "exponential_", "geometric", "cauchy", "log_normal", "native_dropout", "poisson", "binomial", "_fused_dropout",
        "rrelu_with_noise", "rrelu_with_noise_functional", "_standard_gamma", "_sample_dirichlet",
    }
)  # fmt: skip


#: They raise for the values of a tensor, as kernels find them: an index out of range, a matrix that cannot be factored, a division by zero.
_RAISING_NAMES = frozenset(
    {
        "_ctc_loss", "_embedding_bag", "_embedding_bag_forward_only", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_index_put_impl",
        "_linalg_eigh", "_linalg_svd", "_segment_reduce_backward", "binary_cross_entropy", "bincount", "cholesky", "embedding",
        "embedding_bag", "gather", "histc", "histogram", "index", "index_add", "index_copy", "index_fill", "index_put",
        "index_reduce", "index_select", "linalg_eig", "linalg_eigvals", "linalg_ldl_solve", "linalg_lstsq", "linalg_lu_solve",
        "linalg_pinv", "linspace", "lu_unpack", "masked_scatter", "max_unpool2d", "max_unpool3d", "multi_margin_loss",
        "multilabel_margin_loss_forward", "nll_loss2d_forward", "nll_loss_forward", "put", "repeat_interleave", "scatter",
        "scatter_add", "scatter_reduce", "searchsorted", "segment_reduce", "take", "unravel_index",
    }
)  # fmt: skip
#: They put elements into their first argument along one dimension, or take them from it.
_INDEXED = frozenset({"index_add", "index_copy", "index_fill", "index_reduce", "index_select"})
#: Of their first argument they ask what it looks like, not what it holds.
_SHAPED_BY_FIRST = frozenset(
    {
        "copy", "empty_like", "fill", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones_like",
        "rand_like", "randint_like", "randn_like", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride", "zero", "zeros_like",
    }
)  # fmt: skip
#: They raise for the values of integers.
_DIVIDING_NAMES = frozenset({"div", "floor_divide", "fmod", "remainder"})


def short_name(op: OpOverload) -> str:
    """`add_` for `aten.add_.Tensor`."""
    return str(op._schema.name).partition("::")[2]


@functools.cache
def is_random(op: Any) -> bool:
    """True when the op draws from a generator: never merged, recomputed or moved across another draw."""
    if not isinstance(op, OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in op.tags or short_name(op) in _RANDOM_NAMES


@functools.cache
def is_impure(op: Any) -> bool:
    """True when removing the op changes more than its results: it writes to an argument, checks something, or is not known.

    The schema of an op of torch's own tells: it writes where an argument says so (or `_UNDECLARED_WRITES` does), and has no other
    purpose than an effect where it returns nothing. Of any other op (collectives, a library's own) nothing is known: it may print,
    count, or wait for another process. Random draws are `is_random`.
    """
    if not isinstance(op, OpOverload):
        return isinstance(op, HigherOrderOperator)
    return writes(op) or not op._schema.returns or is_foreign(op)


@functools.cache
def raises(op: Any, on_integers: bool) -> bool:
    """True when the op of torch may raise for the values of its arguments, so that a call whose result nobody reads is a check."""
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return False
    name = short_name(op)
    return name in _RAISING_NAMES or (on_integers and name in _DIVIDING_NAMES)


@functools.cache
def is_shaped_by_first(op: Any) -> bool:
    """True when the op of torch reads nothing that its first argument holds."""
    return isinstance(op, OpOverload) and op.namespace == "aten" and short_name(op) in _SHAPED_BY_FIRST


def indexes_nothing(op: OpOverload, args: tuple[Any, ...]) -> bool:
    """True for a call that puts elements into a tensor without any, or takes them: whether its kernel looks at the indices, formulas do not know."""
    return short_name(op) in _INDEXED and any(isinstance(size, int) and size == 0 for size in args[0].shape)


@functools.cache
def writes(op: Any) -> bool:
    """True when the op writes to an argument, whether its schema says so or not."""
    if not isinstance(op, OpOverload):
        return False
    return op._schema.is_mutable or (op.namespace == "aten" and short_name(op) in _UNDECLARED_WRITES)


@functools.cache
def is_foreign(op: Any) -> bool:
    """True for an op that torch's own schemas say nothing about: a library's, a collective, a profiler's."""
    return isinstance(op, OpOverload) and op.namespace not in _COMPUTING_NAMESPACES


@functools.cache
def is_view(op: Any) -> bool:
    """True when the results alias the first argument."""
    if not isinstance(op, OpOverload):
        return False
    returns = op._schema.returns
    return bool(returns) and any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


@functools.cache
def kind_of(op: OpOverload) -> Kind:
    """Classify one overload; see `Kind`."""
    name = short_name(op)
    if op.namespace in _QUERY_NAMESPACES or (op.namespace == "aten" and name in _QUERIES):
        return Kind.QUERY
    if op.namespace == "aten" and name in _IDENTITY:
        return Kind.IDENTITY
    if op.namespace == "aten" and (name in _REFUSED or name.startswith(_QUANTISING)):
        return Kind.REFUSED
    if torch.Tag.inplace_view in op.tags:
        return Kind.METADATA_WRITE
    if writes(op) and not op._schema.is_mutable:
        composite = op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        return Kind.COMPOSITE if composite else Kind.REFUSED
    if op._schema.is_mutable:
        return Kind.WRITE if write_plan(op) is not None else Kind.OPAQUE_WRITE
    if op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return Kind.COMPOSITE
    return Kind.VIEW if is_view(op) else Kind.PURE


@functools.cache
def write_plan(op: OpOverload) -> WritePlan | None:
    """The functional overload behind an in-place or out= overload, or None when there is none."""
    schema = op._schema
    written = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    is_out = any(schema.arguments[i].is_out for i in written)
    name = short_name(op)
    namespace = getattr(torch.ops, op.namespace)
    if is_out:
        candidates = _overloads(getattr(namespace, name, None))
        keep = [a for a in schema.arguments if not a.is_out]
    else:
        renamed = _RENAMED.get((name, op._overloadname))
        if renamed is not None:
            candidates = [getattr(getattr(namespace, renamed[0]), renamed[1])]
        elif name.endswith("_"):
            candidates = _overloads(getattr(namespace, name[:-1], None))
        else:
            candidates = []
        keep = list(schema.arguments)
    shape = [(a.name, str(a.type)) for a in keep]
    for candidate in candidates:
        other = candidate._schema
        asked = [(a.name, str(a.type)) for a in other.arguments]
        factory = is_out and asked != shape and ("dtype", "Optional[int]") in asked
        if factory:
            asked = [(name, type_) for name, type_ in asked if name not in _OF_FACTORIES]
        if other.is_mutable or asked != shape:
            continue
        if len(other.returns) != len(written):
            continue
        positional = [i for i, a in enumerate(schema.arguments) if not a.kwarg_only]
        targets = tuple(schema.arguments[i].name if schema.arguments[i].kwarg_only else i for i in written)
        kept = tuple(i for i in positional if schema.arguments[i] in keep or not schema.arguments[i].is_out)
        return WritePlan(candidate, kept, tuple(a.name for a in keep if a.kwarg_only), targets, factory)
    return None


@functools.cache
def view_twin(op: OpOverload) -> OpOverload | None:
    """The view behind an op that changes its argument's shape in place: `transpose.int` for `transpose_`."""
    shape = [(a.name, str(a.type)) for a in op._schema.arguments]
    for candidate in _overloads(getattr(getattr(torch.ops, op.namespace), short_name(op)[:-1], None)):
        if not candidate._schema.is_mutable and [(a.name, str(a.type)) for a in candidate._schema.arguments] == shape:
            return candidate
    return None


def _overloads(packet: Any) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
