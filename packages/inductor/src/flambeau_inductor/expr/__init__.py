"""Integer index algebra: hash-consed terms, ranges, simplification, rendering. Start reading at ``node.py``."""

from .division import divide_exactly, floor_div, maximum, minimum, mod
from .node import MINUS_ONE, ONE, UNBOUNDED, ZERO, Expr, Int, Symbol, as_expr, free_symbols, intern_node, linear, walk
from .ranges import Range, known_eq, known_le, known_lt, known_ne, known_nonnegative, range_of
from .render import render
from .rewrite import coefficient, evaluate, hint, substitute
from .symbols import SymbolTable, UnsupportedExpression
from .truth import both, either, eq, le, lt, ne, negate, select

__all__ = [
    "MINUS_ONE",
    "ONE",
    "UNBOUNDED",
    "ZERO",
    "Expr",
    "Int",
    "Range",
    "Symbol",
    "SymbolTable",
    "UnsupportedExpression",
    "as_expr",
    "both",
    "coefficient",
    "divide_exactly",
    "either",
    "eq",
    "evaluate",
    "floor_div",
    "free_symbols",
    "hint",
    "intern_node",
    "known_eq",
    "known_le",
    "known_lt",
    "known_ne",
    "known_nonnegative",
    "le",
    "linear",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "ne",
    "negate",
    "range_of",
    "render",
    "select",
    "substitute",
    "walk",
]
