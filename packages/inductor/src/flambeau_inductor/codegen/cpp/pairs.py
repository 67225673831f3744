"""Which kernels hold two registers a value, for they read and write nothing but bfloat16 along their lanes.

In: a ``KernelBody``, the mode of its loops and the axis of the lanes. Out: whether ``pairs.hpp`` has all that it needs.

A register of bfloat16 has as many elements as two of float. Spreading and packing them in order takes a shuffle each, of which a core does one at a
time; taking the even ones and the odd ones apart is a shift and a mask. Which element a lane holds must not matter then.
"""

from __future__ import annotations

import torch

from ... import expr as ex
from ...ir.kernel import KernelBody, Reduce, Statement, Store
from ...ir.loops import Axis
from ...ir.scalar import Scalar, walk
from ...schedule.nest import values

#: What ``pairs.hpp`` does to two registers.
_OPS = frozenset(
    {
        "abs", "add", "ceil", "cos", "eq", "erf", "exp", "exp2", "expm1", "floor", "fma", "fmax", "fmin", "ge", "gt", "isnan", "le", "log", "log10",
        "log1p", "log2", "lt", "maximum", "minimum", "mul", "ne", "neg", "pow", "reciprocal",
        "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "sub", "tanh", "to_dtype", "truediv", "trunc", "where",
    }
)  # fmt: skip
_LOGICAL = frozenset({"logical_and", "logical_not", "logical_or", "logical_xor"})
_REDUCED = frozenset({"sum", "prod", "max", "min"})
_HELD = (torch.bfloat16, torch.float32)
#: Shorter rows than this leave too many lanes empty.
_SHORTEST = 64


def is_paired(body: KernelBody, mode: str, vector: Axis | None) -> bool:
    """Whether values of ``body`` take two registers: one element in 16 bits at each lane of all its loads and stores."""
    if vector is None or mode not in ("flat", "rows") or len(body.inner) > 1 or ex.hint(vector.size) < _SHORTEST:
        return False
    return all(_fits(statement, body, vector) for statement in body.statements)


def _fits(statement: Statement, body: KernelBody, vector: Axis) -> bool:
    if isinstance(statement, Store):
        (buffer,) = (b for b in body.buffers if b.name == statement.buffer)
        along = vector in body.outer or statement.level == "inner"
        whole = buffer.layout.dtype is torch.bfloat16 and ex.coefficient(statement.index, vector.symbol) is ex.ONE
        if statement.mode != "set" or (along and not (whole and _is_direct(statement.index))):
            return False
    elif (
        not isinstance(statement, Reduce)
        or statement.kind not in _REDUCED
        or statement.value.dtype is not torch.float32
    ):
        return False
    return all(_is_held(node, vector) for value in values(statement) for node in walk(value))


def _is_direct(index: ex.Expr) -> bool:
    return all(symbol.definition is None for symbol in ex.free_symbols(index))


def _is_held(node: Scalar, vector: Axis) -> bool:
    """Whether a node is held in two registers, or is the same in all lanes."""
    if node.kind == "load":
        if not _is_direct(node.index):
            return False
        if vector.symbol not in ex.free_symbols(node.index):
            return True
        return node.dtype is torch.bfloat16 and ex.coefficient(node.index, vector.symbol) is ex.ONE
    if node.kind == "op":
        operands = node.children[1:] if node.op == "where" else node.children
        return node.op in _LOGICAL or (
            node.op in _OPS and all(part.dtype in _HELD for part in operands) and node.dtype in (*_HELD, torch.bool)
        )
    return node.kind in ("constant", "parameter", "reduced")
