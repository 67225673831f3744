"""Ops whose kernels answer otherwise than torch's fake tensors say.

In: an op, its (fake) arguments and the predicted result. Out: what the library returns. Which rule an op's strides follow is what its
kernel in ATen does before it computes; `tests/conformance/test_layouts.py` compares every op that random programs are made of with eager, on
many layouts. Sizes that are symbolic are taken for the numbers that they were made with.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from ..errors import InternalError
from .layout import hint
from .loops import (
    Laid,
    Shape,
    in_format_of,
    in_suggested_format,
    is_dense_in_order,
    of_a_likeness,
    of_a_loop,
    of_a_view,
    repeated,
    row_major,
    stepped,
    steps_of_a_view,
)

aten = torch.ops.aten
_LIMITS = (DataDependentOutputException, DynamicOutputShapeException)
#: Calls of other ops, each of which has its own rule.
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
#: The op, its arguments, a result as predicted and its place -> its strides; None where they are as predicted.
Rule = Callable[[OpOverload, tuple[Any, ...], Any, int], Shape | None]

#: Results are allocated like the first argument.
_LIKE = (
    "_prelu_kernel", "_to_copy", "_unsafe_index_put", "clone", "empty_like", "fill", "flip", "full_like", "hardtanh", "index_fill", "index_put",
    "nan_to_num", "ones_like", "put", "rand_like", "randint_like", "randn_like", "rrelu_with_noise_functional", "sort", "zeros_like",
)  # fmt: skip
#: The (first) result is row-major, whatever the arguments are.
_ROW_MAJOR = (
    "_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "_standard_gamma", "_upsample_nearest_exact1d", "all", "amax", "amin", "any", "bernoulli", "diag_embed",
    "glu_backward", "huber_loss_backward", "im2col", "index_add", "index_copy", "linalg_vector_norm", "log_sigmoid_forward", "logsumexp", "masked_fill", "masked_scatter", "mean",
    "mse_loss_backward", "native_layer_norm", "native_layer_norm_backward", "normal.Tensor_Tensor", "normal.float_Tensor", "poisson", "pow.Scalar", "prod", "renorm", "rrelu_with_noise", "smooth_l1_loss_backward", "std", "sum", "tril", "triu",
    "upsample_nearest1d", "var", "var_mean",
)  # fmt: skip
#: Loops over elements that are not tagged so, in some torch.
_LOOPS = (
    "_conj_physical",
    "complex",
    "elu_backward",
    "hardsigmoid_backward",
    "hardtanh_backward",
    "hardswish",
    "hardswish_backward",
    "leaky_relu",
    "native_dropout_backward",
    "rsub",
    "softplus_backward",
)
#: Their loop goes over the second argument first.
_TURNED_ROUND = ("rsub", "threshold_backward")
#: They write into a copy of the first argument that keeps its gaps.
_SCATTERS = ("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter")
#: Numbers among their arguments are no operands of the loop.
_APART = ("clamp", "clamp_max", "clamp_min", "lerp", "pow")
#: Their first argument is a mask, which is not converted to the type of the others.
_CHOOSING = ("where",)
#: They compute in the type of their arguments, and give another.
_OF_PARTS = ("complex", "polar")
_MASKS = (torch.bool, torch.uint8)
_RESHAPED = ("_unsafe_view", "view")
_BATCH_NORMS = (
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
)  # fmt: skip
#: Transforms: MKL's results lie with their dimensions innermost, which not every torch's fakes know.
_TRANSFORMS = ("_fft_c2c", "_fft_c2r", "_fft_r2c")
_BAGS = frozenset({aten._embedding_bag.default, aten._embedding_bag_forward_only.default})
_ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default
_MARGIN_LOSS = aten.multilabel_margin_loss_forward.default


def corrected(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """`out`, or the fakes that show what the op's kernel really returns; that it cannot be told is a fault of ours, not torch's error."""
    try:
        return _corrected(op, args, kwargs, out)
    except Exception as error:
        if isinstance(error, _LIMITS) or type(error).__name__ == "GuardOnDataDependentSymNode":
            raise
        raise InternalError(f"correcting the fakes of {op} failed: {type(error).__name__}: {error}") from error


def _corrected(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    if op in _BAGS:
        return _of_bags(args, out)
    if op is aten._unique.default and torch.Tag.dynamic_output_shape not in op.tags:
        raise DynamicOutputShapeException(op)  # torch 2.11: its fakes say that there is one
    if op is _ATTENTION and args[0].dtype is torch.float64:
        out = (out[0], _of_type(out[1], torch.float64), *out[2:])  # sums of a double are doubles, not floats
    if op is _MARGIN_LOSS and args[0].dim() < 2 and out[0].dim():
        with out[0].fake_mode:
            out = (out[0].new_empty(()), *out[1:])  # of one row without a reduction too
    if op is aten.pow.Tensor_Scalar and args[0].dtype is torch.bool and isinstance(args[1], (bool, torch.SymBool)):
        out = _of_type(out, torch.bool)
    if op is aten.expand.default and out is not args[0]:
        return _with_new_dimensions(args[0], out)
    rule = _rule_of(op) if isinstance(op, OpOverload) else None
    if rule is None or kwargs.get("memory_format", torch.preserve_format) is not torch.preserve_format:
        return out
    if isinstance(out, torch.Tensor):
        return _with_strides(out, args, rule(op, args, out, 0))
    laid = [_with_strides(part, args, rule(op, args, part, place)) for place, part in enumerate(out)]
    return out if all(map(operator.is_, laid, out)) else laid if isinstance(out, list) else tuple(laid)


def _with_new_dimensions(viewed: torch.Tensor, fake: Any) -> Any:
    """A view by `expand`: a new dimension of one element steps over those behind it, nowhere where they repeat; of symbolic sizes torch's formula
    takes what these would step over."""
    strides = list(fake.stride())
    for dim in reversed(range(fake.dim() - viewed.dim() if viewed.dim() else 0)):
        strides[dim] = strides[dim + 1] * fake.shape[dim + 1] if hint(fake.shape[dim]) == 1 else 0
    if list(map(hint, strides)) == list(map(hint, fake.stride())):
        return fake
    with fake.fake_mode:
        return viewed.as_strided(fake.shape, strides, viewed.storage_offset())


def _of_type(fake: Any, dtype: torch.dtype) -> Any:
    """`fake` in another type, in its strides."""
    if fake.dtype is dtype:
        return fake
    with fake.fake_mode:
        return torch.empty_strided(fake.shape, fake.stride(), dtype=dtype, device=fake.device)


def _with_strides(fake: Any, args: tuple[Any, ...], wanted: Shape | None) -> Any:
    """`fake` with these strides, where it has others: in memory of its own, or in that of the first argument where it is a view of it."""
    if wanted is None or wanted == _in_numbers(fake.stride(), fake):
        return fake
    viewed = args[0] if isinstance(args[0], torch.Tensor) else None
    if viewed is not None and viewed.untyped_storage()._cdata != fake.untyped_storage()._cdata:
        viewed = None
    strides = None if viewed is None else _of_the_viewed(viewed, fake, wanted)
    if strides is None:
        like = [
            arg.stride() for arg in args if isinstance(arg, torch.Tensor) and tuple(map(hint, arg.stride())) == wanted
        ]
        strides = like[0] if like else _in_symbols(fake.shape, wanted)
    if strides is None:
        return fake
    with fake.fake_mode:
        if viewed is not None:
            return viewed.as_strided(fake.shape, strides, fake.storage_offset())
        return torch.empty_strided(fake.shape, strides, dtype=fake.dtype, device=fake.device)


def _of_the_viewed(viewed: torch.Tensor, fake: Any, wanted: Shape) -> tuple[Any, ...] | None:
    """Strides as products of those of what is viewed, which may have gaps, and of sizes; None where they are something else."""
    laid, result = _laid(viewed), _laid(fake)
    if laid is None or result is None or not laid[0] or 0 in laid[0] or of_a_view(laid, result[0]) != wanted:
        return None
    steps = steps_of_a_view(laid, result[0])
    return None if steps is None else tuple(stepped(viewed.stride(), fake.shape, steps))


def is_plain(value: Any) -> bool:
    """Whether every tensor in nested tuples, lists and dicts is row-major, sizes of one included: no rule is in doubt then, if it has elements."""
    if isinstance(value, torch.Tensor):
        laid = _laid(value)
        return laid is None or (laid[1] == row_major(laid[0]) and 0 not in laid[0])
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return not isinstance(value, dict) or all(map(is_plain, value.values()))


def copies_keep_strides(value: Any) -> bool:
    """Whether a copy of a tensor lies as the tensor does, as far as that is known in numbers."""
    laid = _laid(value)
    return laid is not None and of_a_likeness(laid) == laid[1]


@functools.cache
def _rule_of(op: OpOverload) -> Rule | None:
    """By the name of the overload, by that of all overloads, by torch's tag."""
    names = {_short(op), f"{_short(op)}.{op._overloadname}"}
    shared = [value.alias_info for value in op._schema.returns if value.alias_info is not None]
    if op.namespace != "aten" or not op._schema.returns or any(alias.is_write for alias in shared):
        return None
    found = next((rule for listed, rule in _RULES if not names.isdisjoint(listed)), None)
    loop = torch.Tag.pointwise in op.tags or _short(op).startswith("_foreach_")
    return found or (_of_a_loop if loop and not shared and not op.has_kernel_for_dispatch_key(_COMPOSITE) else None)


def _short(op: OpOverload) -> str:
    return str(op._schema.name).partition("::")[2]


def _laid(tensor: Any) -> Laid | None:
    """Sizes and strides in numbers; None where one is not known, or where there are none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    shape, strides = _in_numbers(tensor.shape, tensor), _in_numbers(tensor.stride(), tensor)
    return None if None in shape or None in strides else (shape, strides)


def _in_numbers(sizes: Sequence[Any], tensor: torch.Tensor) -> tuple[Any, ...]:
    """The tensor's sizes or strides, with None for what is not known."""
    return tuple(map(hint, sizes) if tensor._has_symbolic_sizes_strides else sizes)


def _in_symbols(shape: Sequence[Any], strides: Shape) -> tuple[Any, ...] | None:
    """Strides as products of sizes where sizes are symbolic; None where they are not such products."""
    if all(type(size) is int for size in shape):
        return strides
    found: list[Any] = [0] * len(shape)
    running: Any = 1
    # A size of zero is a number, and counts as one; where it does not, strides are zero from there on.
    for dim in sorted(filter(strides.__getitem__, range(len(shape))), key=lambda d: (strides[d], hint(shape[d]) or 1)):
        if hint(running) != strides[dim]:
            return None
        found[dim] = running
        running = running * (shape[dim] if hint(shape[dim]) else 1)
    return tuple(found)


@functools.cache
def _operands_of(op: OpOverload) -> tuple[tuple[int, ...], bool]:
    """The places of the arguments that the loop goes over, in its order; whether a scalar among the arguments is a tensor to it."""
    places = [n for n, argument in enumerate(op._schema.arguments) if "Tensor" in str(argument.type)]
    if _short(op) in _TURNED_ROUND:
        places.reverse()
    return tuple(places), "scalar" in op._overloadname.lower() and _short(op) not in _APART


def _of_a_loop(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """Over the tensors among the arguments; for ops on lists, over those in the same place of each."""
    places, repeats = _operands_of(op)
    operands, result = [], _laid(out)
    for argument in places:
        value = args[argument] if argument < len(args) else None
        value = value[place] if isinstance(value, (list, tuple)) else value
        laid = _laid(value)
        if laid is not None:
            operands.append((laid[0], of_a_likeness(laid)) if _converts(op, args, out, value, place) else laid)
        elif isinstance(value, torch.Tensor):
            return None
        # A number in the place of a tensor is one without dimensions to the loop.
        repeats = repeats or (laid is None and value is not None)
    return of_a_loop(result[0], tuple(operands), not repeats) if result is not None and operands else None


def _converts(op: OpOverload, args: tuple[Any, ...], out: Any, value: torch.Tensor, place: int) -> bool:
    """Whether a loop on the CPU reads a copy of this operand, in the type that it computes in; a copy has no gaps."""
    if value.dtype is out.dtype and out.dtype is not torch.bool:
        return False
    if value.device.type != "cpu" or _short(op) in _OF_PARTS or (_short(op) in _CHOOSING and value is args[0]):
        return False
    if out.dtype is not torch.bool:
        return value.dtype is not out.dtype
    pair = [part[place] if isinstance(part, (list, tuple)) else part for part in args[:2]]
    return len(pair) > 1 and value.dtype is not torch.result_type(*pair)


def _of_magnitudes(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """Of complex numbers it gives real ones: a copy of those of a loop, or a result that is allocated like the argument."""
    if not args[0].is_complex():
        return _of_a_loop(op, args, out, place)
    return (_row_major if _short(op) == "angle" else _of_a_likeness)(op, args, out, place)


def _expanded(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """A tensor without dimensions stays in its place along all of them, those of one element too."""
    return (0,) * out.dim() if not args[0].dim() else None


def _halved(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """A loop over both halves of the argument."""
    laid, result = _laid(args[0]), _laid(out)
    return None if laid is None or result is None else of_a_loop(result[0], ((result[0], laid[1]),) * 2, True)


def _rolled(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """Two parts joined, one of them empty where nothing moves: that one suggests row-major."""
    if 0 in out.shape:
        return _of_a_likeness(op, args, out, place)
    shifts, dims = args[1], args[2] if len(args) > 2 else ()
    moves = dims and all(shift % out.shape[dim] for shift, dim in zip(shifts, dims))
    return (_suggested if moves else _row_major)(op, args, out, place)


def _of_a_likeness(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    laid = _laid(args[0])
    return None if laid is None else of_a_likeness(laid)


def _turned(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    laid, times, (first, second) = _laid(args[0]), *(*args[1:], *(1, (0, 1))[len(args) - 1 :])
    if laid is None or times % 4 == 0:
        return _row_major(op, args, out, place)
    strides = list(of_a_likeness(laid))
    if times % 2:
        strides[first], strides[second] = strides[second], strides[first]
    return tuple(strides)


def _reshaped(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    laid, result = _laid(args[0]), _laid(out)
    if laid is None or result is None or args[0].dtype != out.dtype:
        return None
    return laid[1] if op is aten.view.dtype else of_a_view(laid, result[0])


def _indexed(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """A loop over the source, of which the indexed dimensions do not move, and the indices."""
    source, result, indices = _laid(args[0]), _laid(out), list(args[1])
    found = [laid for laid in map(_laid, indices) if laid is not None]
    given = [index for index in indices if index is not None]
    if source is None or result is None or len(found) < len(given) or any(index.dtype in _MASKS for index in given):
        return None
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    kept = [dim for dim in range(len(source[0])) if dim not in dims]
    rank = len(result[0]) - len(kept)
    before = sum(dim < dims[0] for dim in kept) if dims[-1] - dims[0] == len(dims) - 1 else 0
    sizes, strides = ([values[dim] for dim in kept] for values in source)
    moved = (*sizes[:before], *result[0][before : before + rank], *sizes[before:])
    shape = result[0][before : before + rank]
    among = (1,) * before + shape + (1,) * (len(kept) - before)
    loops = [(moved, (*strides[:before], *(0,) * rank, *strides[before:]))]
    loops += [(among, of_a_view((shape, repeated(laid, shape)), among) or ()) for laid in found]
    return of_a_loop(result[0], tuple(loops), True)


def _of_a_scatter(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    laid = _laid(args[0])
    if laid is None or any(size != 1 and step == 0 for size, step in zip(*laid)):
        return None if laid is None else of_a_likeness(laid)
    return laid[1]


def _row_major(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    laid = _laid(out)
    return None if laid is None or place else row_major(laid[0])


def _suggested(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    laid = _laid(args[0])
    return None if laid is None or place or args[0].device.type != "cpu" else in_suggested_format(laid)


def _unpooled(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """Of other sizes than the argument, in the format that this one suggests."""
    laid, result = _laid(args[0]), _laid(out)
    if laid is None or result is None or args[0].device.type != "cpu":
        return None
    return in_suggested_format(laid, result[0])


def _normalised(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    """Row-major where the argument is, channels-last where it is and the vectors have no gaps; else as the argument suggests."""
    if args[0].device.type != "cpu" or args[0].dim() < 2:
        return None
    laid = _laid(args[0])
    if laid is None or is_dense_in_order(laid, range(len(laid[0]))[::-1]):
        return _row_major(op, args, out, place)
    vectors = [_laid(arg) for arg in args[1:] if isinstance(arg, torch.Tensor)]
    if not place and all(vector is not None and is_dense_in_order(vector, (0,)) for vector in vectors):
        return in_format_of(laid)
    return _suggested(op, args, out, place)


def _of_a_transform(op: OpOverload, args: tuple[Any, ...], out: Any, place: int) -> Shape | None:
    argument, dims = args[:2]
    result, laid = _laid(out), _laid(argument)
    if argument.device.type != "cpu" or not torch.backends.mkl.is_available() or not dims or not result or not laid:
        return None
    sizes, strides = laid
    dims = [d % argument.dim() for d in dims]
    if op is aten._fft_c2r.default:
        # The others first, among complex numbers; then the one whose numbers are real.
        if len(dims) > 1:
            strides = _transformed(sizes, strides, sorted(dims[:-1], key=lambda d: -strides[d]))
        return _transformed(result[0], strides, dims[-1:])
    last = [] if op is aten._fft_c2c.default else dims[-1:]  # the halved one stays innermost
    return _transformed(result[0], strides, [*sorted(dims[: len(dims) - len(last)], key=lambda d: -strides[d]), *last])


def _transformed(sizes: Shape, strides: Shape, dims: Sequence[int]) -> Shape:
    """Strides of what MKL gives: `dims` are innermost, in this order; the others are as they were in the argument."""
    order = list(range(len(sizes)))
    # Of equal strides, as std::partition leaves them: it swaps the outermost that is to go back with the innermost that is to come forward.
    at, end = 0, len(order) - 1
    while at < end:
        if order[at] not in dims:
            at += 1
        elif order[end] in dims:
            end -= 1
        else:
            order[at], order[end] = order[end], order[at]
    batch = sorted((d for d in order if d not in dims), key=lambda d: -strides[d])
    wanted, running = [0] * len(sizes), 1
    for d in reversed([*batch, *dims]):
        wanted[d] = running
        running *= sizes[d]
    return tuple(wanted)


def _of_bags(args: tuple[Any, ...], out: Any) -> Any:
    """Indices and offsets are converted to one type, in which all but the sums are. The sum of bags of bfloat16 takes the fast path, which needs
    no index of bags; fakes know that of wider types only."""
    sums, places, *others = out
    if args[0].dtype is torch.bfloat16 and _sums_fast(*args):
        with places.fake_mode:
            places = places.new_empty([0])
    type_of_both = torch.promote_types(args[1].dtype, args[2].dtype)
    return (sums, *(_of_type(part, type_of_both) for part in (places, *others)))


def _sums_fast(
    weight: Any, indices: Any, offsets: Any, scale: Any = False, mode: int = 0, sparse: bool = False,
    weights: Any = None, include_last: bool = False, padding: int = -1,
) -> bool:  # fmt: skip
    plain = weights is None or weights.stride(0) == 1
    return weight.device.type == "cpu" and mode == 0 and weight.stride(1) == 1 and padding < 0 and plain


_RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (_ROW_MAJOR, _row_major),
    (_LIKE, _of_a_likeness),
    (_SCATTERS, _of_a_scatter),
    (_LOOPS, _of_a_loop),
    (("abs", "angle"), _of_magnitudes),
    (("expand",), _expanded),
    (("roll",), _rolled),
    (("rot90",), _turned),
    (("_unsafe_index", "index"), _indexed),
    (_RESHAPED, _reshaped),
    (("native_group_norm",), _suggested),
    (_BATCH_NORMS, _normalised),
    (("glu",), _halved),
    (("max_unpool2d",), _unpooled),
    (_TRANSFORMS, _of_a_transform),
)
