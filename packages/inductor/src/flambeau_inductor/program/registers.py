"""Registers and scalar arithmetic of the outer program.

In: integer expressions. Out: operands, with the ``Compute`` instructions that make them, each expression computed once.
"""

from __future__ import annotations

from flambeau_runtime.artifact import Compute, Instruction, Operand, Scalar

from .. import expr as ex
from ..errors import LoweringError
from ..expr import Expr

_OPCODES = {"floordiv": "floordiv", "mod": "mod", "min": "min", "max": "max", "eq": "eq", "lt": "lt", "le": "le", "and": "and",
            "not": "not", "select": "select"}  # fmt: skip


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
