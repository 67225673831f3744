"""Calls on symbolic scalars: sizes, integer and float arithmetic outside tensors, ``.item()``, assertions.

In: an FX node whose result is a ``SymInt``/``SymFloat``/``SymBool`` (or a check). Out: an ``Expr`` for integers and truth values, a
``Scalar`` for floats, and ``ReadItem``/``Assert`` operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .. import expr as ex
from ..errors import UnsupportedGraphError
from ..expr import Expr, UnsupportedExpression
from ..ir import scalar as sc
from ..ir.loops import Assert, ReadItem
from ..ir.scalar import Scalar
from ..ops.aten import Treatment, aten_op
from .builder import Builder
from .values import TensorValue

_SCALAR_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_symbolic_call(target: Any, val: Any) -> bool:
    """True when this module evaluates the call."""
    if isinstance(val, _SCALAR_TYPES):
        return True
    if isinstance(target, torch._ops.OpOverload):
        return aten_op(target).treatment in (Treatment.ASSERTION, Treatment.ITEM)
    return isinstance(val, int | float | bool)


def evaluate_call(g: Builder, node: fx.Node, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The value of the node: ``Expr``, ``Scalar`` or a Python number."""
    treatment = aten_op(target).treatment if isinstance(target, torch._ops.OpOverload) else Treatment.UNKNOWN
    if treatment is Treatment.ASSERTION:
        return _assert(g, args)
    val = node.meta.get("val")
    if treatment is Treatment.ITEM:
        return _item(g, node, args[0], val)
    if isinstance(val, torch.SymBool) and any(isinstance(arg, Scalar) for arg in args):
        return _comparison(target, [g.constant(arg, torch.float64) for arg in args])
    if isinstance(val, torch.SymInt | torch.SymBool):
        try:
            return g.symbols(val)
        except UnsupportedExpression as error:
            raise UnsupportedGraphError(f"{node}: {error}") from error
    if isinstance(val, torch.SymFloat):
        return _float(g, target, args)
    return val


def _assert(g: Builder, args: list[Any]) -> None:
    condition, message = args[0], str(args[1]) if len(args) > 1 else "assertion failed"
    if isinstance(condition, Scalar) or (isinstance(condition, Expr) and not condition.is_int):
        g.operations.append(Assert(condition, message, g.origins))


def _item(g: Builder, node: fx.Node, source: TensorValue, val: Any) -> Any:
    ref = g.ref(source)
    if isinstance(val, torch.SymInt | torch.SymBool):
        e = g.expr(val)
        # A bool read from memory: ShapeEnv writes it as (u0 == 1) over an integer symbol.
        symbol = e.args[0] if e.op == "eq" else e
        if symbol.is_symbol and symbol.name not in g.known_symbols:
            g.known_symbols.add(symbol.name)
            g.read.add(symbol.name)
            g.operations.append(ReadItem(symbol.name, symbol, ref, source.dtype, g.origins))
            return e
        if not {s.name for s in ex.free_symbols(e)} <= g.known_symbols:
            raise UnsupportedGraphError(f".item() that gives {e}")
        # It is assumed to be what is known already.
        own = ex.Symbol(f"read_{node.name}", -ex.UNBOUNDED, ex.UNBOUNDED)
        g.operations.append(ReadItem(own.name, own, ref, source.dtype, g.origins))
        holds = ex.intern_node("eq", (own, e), 0, 1)
        g.operations.append(
            Assert(holds, f"the program was compiled for sizes with {node.name} == {ex.render(e)}", g.origins)
        )
        return e
    if isinstance(val, torch.SymFloat):
        g.operations.append(ReadItem(node.name, None, ref, source.dtype, g.origins))
        found = sc.parameter(node.name, torch.float64)
        g.symbols.shape_env = val.node.shape_env
        symbol = str(val.node._expr)
        g.known_symbols.add(symbol)
        g.floats[symbol] = found
        return found
    return val


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_FLOAT_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "neg": "neg", "pow": "pow", "sym_float": "", "sym_max": "maximum",
    "sym_min": "minimum", "sqrt": "sqrt", "_sym_sqrt": "sqrt", "int_truediv": "truediv", "float_pow": "pow",
}  # fmt: skip


def _comparison(target: Any, operands: list[Scalar]) -> Scalar:
    name = getattr(target, "__name__", str(target))
    if name not in _COMPARISONS:
        raise UnsupportedGraphError(f"the truth value {name} of symbolic floats")
    return sc.op(name, *operands)


def _float(g: Builder, target: Any, args: list[Any]) -> Scalar:
    name = getattr(target, "__name__", str(target))
    op = _FLOAT_OPS.get(name)
    if op is None:
        raise UnsupportedGraphError(f"symbolic float arithmetic {name}")
    operands = [g.constant(a, torch.float64) for a in args]
    return sc.op(op, *operands) if op else operands[0]
