"""Shape expressions as small stack programs: from the text sympy prints to opcodes that C++ and Python run alike.

In: `"Eq(Mod(s0, 8), 0)"` and the order of its symbols. Out: `((opcode, argument), ...)` for `csrc/guards/shapes.cpp`, or
`UnsupportedExpression`, on which `build.py` falls back to evaluating the text in Python. `run` is the twin of the C++ machine.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..library import math

Number = int | float
Program = tuple[tuple[int, Number], ...]

# The order is that of `enum class Op` in csrc/guards/shapes.cpp.
# fmt: off
OPCODES: Final = (
    "symbol", "int", "float", "add", "mul", "sub", "negate", "floordiv", "mod", "truediv", "pow", "min",
    "max", "abs", "floor", "ceil", "trunc", "tofloat", "sqrt", "round", "math", "eq", "ne", "lt", "le", "gt", "ge", "and",
    "or", "not", "select", "lshift", "rshift", "bitand", "bitor", "bitxor",
)
# fmt: on
_CODE: Final = {name: code for code, name in enumerate(OPCODES)}

# The order is that of kMathFunctions in csrc/guards/shapes.cpp.
MATH: Final = ("exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh")

_BINARY: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add",
    ast.Mult: "mul",
    ast.Sub: "sub",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Div: "truediv",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "bitxor",
}
_COMPARE: Final[dict[type[ast.AST], str]] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
# name -> (opcode, number of arguments); None arguments: any number, folded from the left.
_FUNCTIONS: Final[dict[str, tuple[str, int | None]]] = {
    "Eq": ("eq", 2),
    "Ne": ("ne", 2),
    "Lt": ("lt", 2),
    "Le": ("le", 2),
    "Gt": ("gt", 2),
    "Ge": ("ge", 2),
    "And": ("and", None),
    "Or": ("or", None),
    "Not": ("not", 1),
    "Max": ("max", None),
    "Min": ("min", None),
    "max": ("max", None),
    "min": ("min", None),
    "Mod": ("mod", 2),
    "PythonMod": ("mod", 2),
    "FloorDiv": ("floordiv", 2),
    "CleanDiv": ("floordiv", 2),
    "IntTrueDiv": ("truediv", 2),
    "FloatTrueDiv": ("truediv", 2),
    "Pow": ("pow", 2),
    "PowByNatural": ("pow", 2),
    "FloatPow": ("pow", 2),
    "Abs": ("abs", 1),
    "abs": ("abs", 1),
    "floor": ("floor", 1),
    "FloorToInt": ("floor", 1),
    "ceiling": ("ceil", 1),
    "CeilToInt": ("ceil", 1),
    "TruncToInt": ("trunc", 1),
    "ToFloat": ("tofloat", 1),
    "sqrt": ("sqrt", 1),
    "OpaqueUnaryFn_sqrt": ("sqrt", 1),
    "RoundToInt": ("round", 1),
    "Where": ("select", 3),
    "LShift": ("lshift", 2),
    "RShift": ("rshift", 2),
    "BitwiseFn_bitwise_and": ("bitand", 2),
    "BitwiseFn_bitwise_or": ("bitor", 2),
    "BitwiseFn_bitwise_xor": ("bitxor", 2),
}


class UnsupportedExpression(ValueError):
    """The text uses something the stack machine has no opcode for."""


def compile_expression(text: str, symbols: Sequence[str]) -> Program:
    """Compile Python/sympy text over the named symbols. Raises UnsupportedExpression."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UnsupportedExpression(text) from error
    order = {name: index for index, name in enumerate(symbols)}
    steps: list[tuple[int, Number]] = []

    def emit(name: str, argument: Number = 0) -> None:
        steps.append((_CODE[name], argument))

    _compile(tree, order, emit)
    return tuple(steps)


def _compile(node: ast.expr, order: dict[str, int], emit: Callable[..., None]) -> None:
    match node:
        case ast.Constant(value=bool(value)):
            emit("int", int(value))
        case ast.Constant(value=int(value)) if -(2**63) <= value < 2**63:
            emit("int", value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if value == 2**63:
            emit("int", -value)
        case ast.Constant(value=float(value)):
            emit("float", value)
        case ast.Name(id=("true" | "True")):
            emit("int", 1)
        case ast.Name(id=("false" | "False")):
            emit("int", 0)
        case ast.Name(id=name) if name in order:
            emit("symbol", order[name])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _compile(left, order, emit)
            _compile(right, order, emit)
            emit(_BINARY[type(op)])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _compile(operand, order, emit)
            emit("negate")
        case ast.UnaryOp(op=(ast.Not() | ast.Invert()), operand=operand):
            _compile(operand, order, emit)
            emit("not")
        case ast.BoolOp(op=op, values=values):
            _fold("and" if isinstance(op, ast.And) else "or", values, order, emit)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            _compile_comparison(left, ops, comparators, order, emit)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            _compile_call(name, args, order, emit)
        case _:
            raise UnsupportedExpression(ast.unparse(node))


def _fold(opcode: str, values: Sequence[ast.expr], order: dict[str, int], emit: Callable[..., None]) -> None:
    for index, value in enumerate(values):
        _compile(value, order, emit)
        if index:
            emit(opcode)


def _compile_comparison(
    left: ast.expr, ops: list[ast.cmpop], right: list[ast.expr], order: dict[str, int], emit: Callable[..., None]
) -> None:
    for index, (op, value) in enumerate(zip(ops, right)):
        if type(op) not in _COMPARE:
            raise UnsupportedExpression(type(op).__name__)
        _compile(left, order, emit)
        _compile(value, order, emit)
        emit(_COMPARE[type(op)])
        if index:
            emit("and")
        left = value


def _compile_call(name: str, args: list[ast.expr], order: dict[str, int], emit: Callable[..., None]) -> None:
    if name == "Identity" and len(args) == 1:
        _compile(args[0], order, emit)
        return
    if name == "ModularIndexing" and len(args) == 3:
        _fold("floordiv", args[:2], order, emit)
        _compile(args[2], order, emit)
        emit("mod")
        return
    function = name.removeprefix("OpaqueUnaryFn_")
    if function in MATH and len(args) == 1:
        _compile(args[0], order, emit)
        emit("math", MATH.index(function))
        return
    if name == "Piecewise" and args:
        _compile_piecewise(args, order, emit)
        return
    if name not in _FUNCTIONS:
        raise UnsupportedExpression(name)
    opcode, count = _FUNCTIONS[name]
    if count is None:
        if not args:
            raise UnsupportedExpression(name)
        _fold(opcode, args, order, emit)
        return
    if len(args) != count:
        raise UnsupportedExpression(name)
    for arg in args:
        _compile(arg, order, emit)
    emit(opcode)


def _compile_piecewise(args: list[ast.expr], order: dict[str, int], emit: Callable[..., None]) -> None:
    """`Piecewise((value, condition), ...)`: the last condition must be True, as sympy prints a total function."""
    match args[0]:
        case ast.Tuple(elts=[value, condition]) if len(args) > 1:
            _compile(condition, order, emit)
            _compile(value, order, emit)
            _compile_piecewise(args[1:], order, emit)
            emit("select")
        case ast.Tuple(elts=[value, (ast.Constant(value=True) | ast.Name(id="true"))]):
            _compile(value, order, emit)
        case _:
            raise UnsupportedExpression("Piecewise")


class _NoValue(ArithmeticError):
    """The expression has no value here (division by zero, overflow): the guard does not hold."""


def run(program: Program, values: Sequence[Any]) -> bool:
    """Whether the expression holds for these symbol values; the Python twin of the native machine."""
    stack: list[Number] = []
    try:
        for code, argument in program:
            _step(OPCODES[code], argument, values, stack)
    except (_NoValue, OverflowError, ZeroDivisionError):
        return False
    return len(stack) == 1 and bool(stack[0])


def _step(name: str, argument: Number, values: Sequence[Any], stack: list[Number]) -> None:
    if name == "symbol":
        value = values[int(argument)]
        if not isinstance(value, (int, float)):
            raise _NoValue(name)
        stack.append(_fits(int(value) if isinstance(value, bool) else value))
    elif name in ("int", "float"):
        stack.append(argument)
    elif name == "select":
        other, value, condition = stack.pop(), stack.pop(), stack.pop()
        stack.append(value if condition else other)
    elif name == "math":
        stack.append(_math(MATH[int(argument)], float(stack.pop())))
    elif name in _UNARY:
        stack.append(_fits(_UNARY[name](stack.pop())))
    else:
        right, left = stack.pop(), stack.pop()
        stack.append(_fits(_BINARY_TWINS[name](left, right)))


def _fits(value: Number) -> Number:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _NoValue(value)
    return value


def _math(name: str, value: float) -> float:
    try:
        result: float = getattr(math, name)(value)
    except ValueError as error:
        raise _NoValue(value) from error
    return result


def _sqrt(value: Number) -> float:
    if value < 0:
        raise _NoValue(value)
    return math.sqrt(value)


def _rounded(by: Callable[[float], int]) -> Callable[[Number], Number]:
    def call(value: Number) -> Number:
        if isinstance(value, int):
            return value
        if not abs(value) < 9.0e18:
            raise _NoValue(value)
        return by(value)

    return call


def _power(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and right > 64 and abs(left) > 1:
        raise _NoValue(left)
    result = left**right
    if isinstance(result, complex):
        return math.nan
    return result


def _shift_left(left: Number, right: Number) -> Number:
    if not (isinstance(left, int) and isinstance(right, int)) or not 0 <= right <= 62 or left < 0:
        raise _NoValue(left)
    return left << right


def _on_integers(by: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    def call(left: Number, right: Number) -> Number:
        if not (isinstance(left, int) and isinstance(right, int)):
            raise _NoValue(left)
        return by(left, right)

    return call


def _shift_right(left: int, right: int) -> int:
    if right < 0:
        raise _NoValue(right)
    return left >> min(right, 63)


_UNARY: Final[dict[str, Callable[[Number], Number]]] = {
    "negate": lambda a: -a,
    "abs": abs,
    "floor": _rounded(math.floor),
    "ceil": _rounded(math.ceil),
    "trunc": _rounded(math.trunc),
    "tofloat": float,
    "sqrt": _sqrt,
    "round": _rounded(round),
    "not": lambda a: int(not a),
}
_BINARY_TWINS: Final[dict[str, Callable[[Number, Number], Number]]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "truediv": lambda a, b: float(a) / float(b),
    "pow": _power,
    "min": lambda a, b: a if a <= b else b,
    "max": lambda a, b: a if a >= b else b,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
    "lshift": _shift_left,
    "rshift": _on_integers(_shift_right),
    "bitand": _on_integers(lambda a, b: a & b),
    "bitor": _on_integers(lambda a, b: a | b),
    "bitxor": _on_integers(lambda a, b: a ^ b),
}
