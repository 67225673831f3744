"""Registers and scalar arithmetic of the outer program.

In: integer expressions. Out: operands, with the ``Compute`` instructions that make them, each expression computed once.
"""

from __future__ import annotations

import torch

from flambeau_runtime.artifact import Compute, Instruction, Operand, Scalar

from .. import expr as ex
from ..errors import LoweringError, UnsupportedGraphError
from ..expr import Expr
from ..ir.scalar import Scalar as Number

_OPCODES = {"floordiv": "floordiv", "mod": "mod", "min": "min", "max": "max", "eq": "eq", "lt": "lt", "le": "le", "and": "and",
            "not": "not", "select": "select"}  # fmt: skip
_FLOAT_OPCODES = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "neg": "neg", "abs": "abs", "pow": "pow", "sqrt": "sqrt",
                  "exp": "exp", "log": "log", "minimum": "min", "maximum": "max"}  # fmt: skip

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Registers:
    """Counts both register files; ``instructions`` grows as operands are asked for."""

    def __init__(self) -> None:
        self.tensors = 0
        self.scalars = 0
        self.instructions: list[Instruction] = []
        self.known: dict[Expr, Operand] = {}
        self.parameters: dict[str, Scalar] = {}

    def tensor(self) -> int:
        """A fresh tensor register."""
        self.tensors += 1
        return self.tensors - 1

    def scalar(self) -> Scalar:
        """A fresh scalar register."""
        self.scalars += 1
        return Scalar(self.scalars - 1)

    def number(self, value: Number) -> Operand:
        """The operand worth a float that is computed outside tensors, in double precision as Python does, or a truth value."""
        if value.kind == "constant":
            return value.args[0]
        if value.kind == "parameter":
            return self.parameters[value.args[0]]
        if value.kind == "index":
            operand = self.operand(value.args[0])
            return self.compute("bool", operand) if value.dtype is torch.bool else operand
        if value.kind == "op":
            name, *operands = value.args
            if name == "to_dtype" and value.dtype is torch.float64:
                return self.compute("float", self.number(operands[0]))
            if name in _FLOAT_OPCODES and value.dtype is torch.float64:
                return self.compute(_FLOAT_OPCODES[name], *(self.number(part) for part in operands))
            if name in _COMPARISONS:
                return self.compute(name, *(self.number(part) for part in operands))
        raise UnsupportedGraphError(f"the number {value} outside tensors")

    def compute(self, opcode: str, *args: Operand) -> Scalar:
        """Emit one ``Compute``."""
        out = self.scalar()
        self.instructions.append(Compute(out.index, opcode, args))
        return out

    def operand(self, e: Expr) -> Operand:
        """The operand worth ``e``."""
        if e.is_int:
            return int(e)
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self._make(e)
        return found

    def integer(self, e: Expr) -> int | Scalar:
        """The same, for places that take integers only."""
        found = self.operand(e)
        assert isinstance(found, int | Scalar)
        return found

    def _make(self, e: Expr) -> Operand:
        if e.op == "symbol":
            raise LoweringError(f"nothing defines the size {e.name}")
        if e.op == "add":
            constant, terms = ex.linear(e)
            total: Operand | None = constant if constant else None
            for term, factor in terms:
                value = self.operand(term)
                part = value if factor == 1 else self.compute("mul", value, factor)
                total = part if total is None else self.compute("add", total, part)
            return 0 if total is None else total
        if e.op == "mul":
            result = self.operand(e.args[0])
            for factor_expr in e.args[1:]:
                result = self.compute("mul", result, self.operand(factor_expr))
            return result
        return self.compute(_OPCODES[e.op], *(self.operand(child) for child in e.args))
