"""Take the bias out of convolutions and products, so that it is added by the kernel that reads the result.

In: a functional graph. Out: the same graph with ``convolution(x, w, None) + b`` and ``mm(x, w) + b``. cuDNN's convolutions take no
bias: the library adds it in a kernel of its own, rounding in between, exactly as the addition in the graph does. Products with a
bias go through an interface of the library that has slower float32 kernels, for most sizes, than the plain product has. On a CPU ATen writes the bias
over the whole result, and has MKL add to that.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_facts, device_of
from .engine import Editor, Match, Rule
from .fakes import hint_of
from .patterns import Call, Like, Operand, call

aten = torch.ops.aten

#: Multiplications below which a launch that may be added takes longer than the slower kernel.
SMALL_PRODUCT = 1 << 24
#: The one case in which the interface with a bias has the faster kernels: blocks of so many rows and columns that fill most
#: multiprocessors once, for sums of at most so many terms (the plain product's are half as large and need two rounds).
_BLOCK, _MOST_TERMS = 128, 1024
_VIEWS = frozenset({"view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "slice"})
_NORMS = frozenset({"native_layer_norm", "_fused_rms_norm", "_softmax", "_log_softmax", "amax", "native_dropout"})


def _runs_in_cudnn(context: CompileContext) -> bool:
    return context.config.triton_kernels and torch.backends.cudnn.enabled


def _has_kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels


def _has_loops(context: CompileContext) -> bool:
    return context.config.cpp_kernels


def _is_row(match: Match, context: CompileContext) -> bool:
    return isinstance(match.val("bias").shape[0], int)


def _bias_after(match: Match, edit: Editor) -> fx.Node:
    bias, val = match["bias"], match.val()
    plain = edit.with_argument("bias", None)
    wide = edit.call(aten.view.default, bias, [1, match.val("bias").shape[0], *[1] * (val.dim() - 2)])
    return edit.call(aten.add.Tensor, plain, wide, known=val)


def _is_faster_without(match: Match, context: CompileContext) -> bool:
    """Whether the plain product has faster kernels than the one with a bias, and generated kernels read the result.

    Measured on an H200 over 72 sizes (256 to 8,192 rows, 512 to 3,072 terms, 512 to 3,072 columns): without the bias 0.4 to 1.1 of
    the time, above 1.05 only where one round of blocks fills the device.
    """
    val, left = match.val(), match.val("left")
    rows, columns, terms = hint_of(val.shape[0]), hint_of(val.shape[1]), hint_of(left.shape[1])
    if rows * columns * terms < SMALL_PRODUCT:
        return False
    places = device_facts(val.device).multiprocessors
    if terms <= _MOST_TERMS and 0.7 * places < -(-rows // _BLOCK) * -(-columns // _BLOCK) <= places:
        return False
    return is_finished_by_kernels(match.root)


def _writes_less(match: Match, context: CompileContext) -> bool:
    """Whether generated kernels read the result, and MKL computes it: oneDNN adds the bias at no cost (`packed_products.py`).

    Measured on one core of a Xeon (Sapphire Rapids, torch 2.11) over 33 sizes of 49 to 3,136 rows: 0.79 to 1.0 of the time without, packed weights 0.8 to 1.0; the more, the fewer the terms.
    """
    val, terms = match.val(), hint_of(match.val("left").shape[1])
    if (
        device_of(val.device).libraries.slow_products()
        or hint_of(val.shape[0]) * hint_of(val.shape[1]) * terms < SMALL_PRODUCT
    ):
        return False
    return is_finished_by_kernels(match.root)


def _product_and_bias(match: Match, edit: Editor) -> fx.Node:
    product = edit.call(aten.mm.default, match["left"], match["right"], known=match.val())
    return edit.call(aten.add.Tensor, product, match["bias"], known=match.val())


def is_finished_by_kernels(node: fx.Node) -> bool:
    """Whether all readers, through views, are pointwise operations and norms."""
    for user in node.users:
        name = str(user.target).removeprefix("aten.").partition(".")[0]
        if name in _VIEWS:
            if not is_finished_by_kernels(user):
                return False
        elif user.op != "call_function" or not (
            name in _NORMS or torch.Tag.pointwise in getattr(user.target, "tags", ())
        ):
            return False
    return bool(node.users)


CONVOLUTIONS = (
    Rule(
        name="bias_of_a_convolution",
        identity="convolution(x, w, b) = convolution(x, w) + b, rounded in between as cuDNN's does; depthwise kernels take the bias along",
        pattern=call(
            aten.convolution.default,
            Operand("input"),
            Operand("weight"),
            Operand("bias"),
            groups=1,
            others=True,
            like=Like(libraries="bias_is_a_kernel"),
        ),
        check=_is_row,
        replace=_bias_after,
        when=_runs_in_cudnn,
    ),
)
_APART = "addmm(b, x, w) = x @ w + b, in float32, in which nothing is rounded in between"


def _biased_product(libraries: str) -> Call:
    """One in float32 with a bias for each column, on devices whose libraries are like that."""
    operands = (Operand("bias", Like(ranks=(1,))), Operand("left"), Operand("right"))
    return call(aten.addmm.default, *operands, like=Like(libraries=libraries, dtypes=(torch.float32,)))


PRODUCTS = (
    Rule(
        name="bias_of_a_product",
        identity=_APART,
        pattern=_biased_product("bias_slows_products"),
        check=_is_faster_without,
        replace=_product_and_bias,
        when=_has_kernels,
    ),
    Rule(
        name="bias_behind_a_product",
        identity=_APART,
        pattern=_biased_product("bias_is_written_first"),
        check=_writes_less,
        replace=_product_and_bias,
        when=_has_loops,
    ),
)
