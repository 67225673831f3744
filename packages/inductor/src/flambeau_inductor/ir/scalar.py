"""The value a loop body computes for one index: hash-consed, frozen scalar nodes.

In: index expressions, constants and the ops of ``ops/table.py``. Out: ``Scalar`` nodes; equal nodes are the same
object, so a set of nodes is common-subexpression elimination.

Kinds (``node.kind``) and their parts (``node.args``):

=============  =======================  =====================================================================
kind           args                     meaning
=============  =======================  =====================================================================
``load``       buffer name, index       element ``index`` of the buffer, counted from its data pointer
``constant``   value                    a Python bool, int or float in ``dtype``
``index``      expression               an index expression as a value of ``dtype``
``parameter``  name                     a scalar graph input (a float that stays symbolic)
``op``         name, operands           a scalar op of ``ops/table.py``
``masked``     condition, body, other   ``body`` where condition holds (else not evaluated), ``other`` elsewhere
``reduced``    name                     result of the ``Reduce``/``ScanStep`` statement of that name
=============  =======================  =====================================================================

Arithmetic on float16 and bfloat16 does not exist here: lowering widens with ``to_dtype`` to float32, computes, and
rounds with ``to_dtype``, once per eager op. Only load, store, ``to_dtype``, ``where`` and ``masked`` see half types.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

import torch

from .. import expr as ex
from ..expr import Expr, Symbol, render
from ..ops.costs import COSTS, FUNCTIONS, Target
from ..ops.dtypes import element_type
from ..ops.table import scalar_op
from .folding import are_opposite, fold, is_inside, position_of

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


class Scalar:
    """One interned scalar value; see the module's table for ``kind`` and ``args``. ``key`` is stable between
    processes."""

    __slots__ = ("__weakref__", "args", "children", "dtype", "form", "key", "kind", "operands")

    kind: str
    args: tuple[Any, ...]
    dtype: torch.dtype
    key: int
    #: Like ``key``, but equal for nodes that differ only in the buffers they read: equal layers of a model stay equal text.
    form: int
    #: The scalar operands (an index read from memory is not among them).
    children: tuple[Scalar, ...]
    #: The same, and the definitions of indices read from memory: what has to be known first.
    operands: tuple[Scalar, ...]

    def __repr__(self) -> str:
        return scalar_text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_intern, (self.kind, self.args, self.dtype))

    def __copy__(self) -> Scalar:
        return self

    def __deepcopy__(self, memo: object) -> Scalar:
        return self

    @property
    def op(self) -> str:
        """The op's name ("" for other kinds)."""
        return self.args[0] if self.kind == "op" else ""

    @property
    def index(self) -> Expr:
        """The index expression of a load or an index node."""
        return self.args[1] if self.kind == "load" else self.args[0]

    @property
    def buffer(self) -> str:
        """The buffer a load reads."""
        return self.args[0]


_TABLE: WeakValueDictionary[tuple[Any, ...], Scalar] = WeakValueDictionary()
_LOCK = threading.Lock()
_KIND_KEYS: dict[tuple[str, torch.dtype], int] = {}


def _kind_key(kind: str, dtype: torch.dtype) -> int:
    found = _KIND_KEYS.get((kind, dtype))
    if found is None:
        found = _KIND_KEYS[kind, dtype] = zlib.crc32(f"{kind}{dtype}".encode())
    return found


def _part_key(part: Any) -> int:
    if isinstance(part, (Scalar, Expr)):
        return part.key
    if isinstance(part, float):
        return zlib.crc32(struct.pack("<d", part))
    if isinstance(part, int):
        return hash((type(part) is bool, int(part)))
    return zlib.crc32(str(part).encode())


def _part_form(part: Any) -> int:
    if isinstance(part, Scalar):
        return part.form
    if isinstance(part, Expr) and _definitions(part):
        return 0
    return _part_key(part)


def _definitions(e: Expr) -> tuple[Scalar, ...]:
    """What is behind the indirect symbols of an index expression."""
    found = [symbol for symbol in ex.free_symbols(e) if symbol.args[2] is not None]
    return tuple(symbol.args[2] for symbol in sorted(found, key=attrgetter("key")))


def _identity(part: Any) -> Any:
    # 1, 1.0 and True are equal in Python, as are 0.0 and -0.0; a NaN equals nothing: none of that may merge or split nodes.
    if isinstance(part, float):
        return ("float", struct.pack("<d", part))
    return (type(part), part)


def _intern(kind: str, args: tuple[Any, ...], dtype: torch.dtype) -> Scalar:
    identity = (kind, dtype, *(map(_identity, args) if kind == "constant" else args))
    found = _TABLE.get(identity)
    if found is not None:
        return found
    with _LOCK:
        found = _TABLE.get(identity)
        if found is None:
            found = Scalar.__new__(Scalar)
            found.kind, found.args, found.dtype = kind, args, dtype
            kind_key = _kind_key(kind, dtype)
            found.key = hash((kind_key, *map(_part_key, args)))
            found.form = hash((kind_key, *map(_part_form, args[1:] if kind == "load" else args)))
            found.children = found.operands = tuple(part for part in args if isinstance(part, Scalar))
            if kind in ("load", "index"):
                found.operands = _definitions(found.index)
            _TABLE[identity] = found
        return found


def load(buffer: str, index: Expr, dtype: torch.dtype) -> Scalar:
    """Element ``index`` of ``buffer``."""
    return _intern("load", (buffer, index), dtype)


def constant(value: bool | int | float | Scalar, dtype: torch.dtype) -> Scalar:
    """A literal, brought to the Python type that fits ``dtype``; a number known at run time is converted instead."""
    if isinstance(value, Scalar):
        return value if value.dtype is dtype else op("to_dtype", value, dtype=dtype)
    if dtype is torch.bool:
        value = bool(value)
    elif dtype.is_floating_point:
        value = float(value)
    else:
        value = int(value)
    return _intern("constant", (value,), dtype)


def index_value(e: Expr, dtype: torch.dtype = torch.int64) -> Scalar:
    """An index expression as a value."""
    return constant(e.args[0], dtype) if e.is_int else _intern("index", (e,), dtype)


def parameter(name: str, dtype: torch.dtype) -> Scalar:
    """A scalar graph input."""
    return _intern("parameter", (name,), dtype)


def op(name: str, *args: Scalar, dtype: torch.dtype | None = None) -> Scalar:
    """Apply the scalar op ``name``; its dtype follows from the op's record unless the op takes one (``to_dtype``).

    Raises ValueError for an unknown op or the wrong number of operands.
    """
    record = scalar_op(name)
    if len(args) != record.arity:
        raise ValueError(f"{name} takes {record.arity} operands, not {len(args)}")
    if record.commutative:
        first, second, *rest = args
        if second.form < first.form:
            args = (second, first, *rest)
    result = record.result([part.dtype for part in args], dtype)
    if name == "to_dtype":
        if args[0].dtype is result:
            return args[0]
        if args[0].dtype is torch.int32 and result is torch.int64:
            position = position_of(args[0])
            if position is not None:
                return index_value(position)
    folded = fold(name, args)
    if isinstance(folded, Expr):
        return index_value(folded, result)
    if isinstance(folded, bool):
        return constant(folded, torch.bool)
    return _intern("op", (name, *args), result) if folded is None else folded


def masked(condition: Scalar, body: Scalar, other: Scalar) -> Scalar:
    """``body`` where ``condition`` (bool) holds, loads included; ``other`` elsewhere. Both have one dtype."""
    if condition.kind == "constant":
        return body if condition.args[0] else other
    if other.kind == "masked" and are_opposite(condition, other.args[0]) and not loads(other.args[1]):
        # Not with a load in it: ``other`` is evaluated everywhere, and what the inner condition guards may lie outside memory.
        other = other.args[1]
    if body is other and body.kind in ("index", "constant", "parameter"):
        return body
    return _intern("masked", (condition, body, other), body.dtype)


def reduced(name: str, dtype: torch.dtype) -> Scalar:
    """The result of a reduction or scan statement of the same kernel."""
    return _intern("reduced", (name,), dtype)


def indirect(value: Scalar, size: Expr, *, wrap: bool = True, check: bool = True) -> Expr:
    """An index read from memory: a symbol in ``[0, size)`` whose ``definition`` is the final scalar.

    ``wrap`` adds ``size`` to negative values; ``check`` asks for a run-time bounds check (op ``check_bounds``), which
    makes the kernel report an index error instead of reading outside.
    """
    limit = index_value(size)
    position = op("to_dtype", value, dtype=torch.int64)
    known = position_of(position)
    if known is not None and is_inside(known, size):
        return known
    if wrap:
        zero = constant(0, torch.int64)
        position = op("where", op("lt", position, zero), op("add", position, limit), position)
    if check:
        position = op("check_bounds", position, limit)
    hi = size.hi - 1 if size.hi < ex.UNBOUNDED else ex.UNBOUNDED
    return Symbol(f"at{position.key & 0xFFFFFFFF:08x}", 0, max(hi, 0), bound=size, definition=position)


def expressions(node: Scalar) -> tuple[Expr, ...]:
    """The index expressions of one node (not of its children)."""
    return (node.index,) if node.kind in ("load", "index") else ()


def indirect_scalars(node: Scalar) -> tuple[Scalar, ...]:
    """The definitions behind indirect symbols in one node's own index expression."""
    return node.operands if node.kind in ("load", "index") else ()


def walk(*roots: Scalar) -> list[Scalar]:
    """Every distinct node below ``roots``, operands before users, indirect indices included."""
    done: dict[Scalar, None] = {}
    begun: set[Scalar] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
        elif node in begun or not node.operands:
            done[node] = None
            stack.pop()
        else:
            begun.add(node)
            stack += node.operands[::-1]
    return list(done)


def loads(*roots: Scalar) -> tuple[Scalar, ...]:
    """The distinct loads below ``roots``, indirect indices' loads included."""
    return tuple([node for node in walk(*roots) if node.kind == "load"])


class Transform:
    """Rebuilds scalars bottom-up: ``index`` maps every index expression, then ``replace`` may answer with another node.

    ``replace`` sees each node after its operands were rebuilt. Indirect symbols are rebuilt too. What several scalars have in common is rebuilt once.
    """

    def __init__(
        self, replace: Callable[[Scalar], Scalar | None] | None, index: Callable[[Expr], Expr] | None = None
    ) -> None:
        self._replace, self._index = replace, index
        self._memo: dict[Scalar, Scalar] = {}
        self._indices: dict[Expr, Expr] = {}

    def expression(self, e: Expr) -> Expr:
        """An index expression, mapped."""
        found = self._indices.get(e)
        if found is None:
            renamed: dict[Expr, Expr | int] = {}
            for symbol in ex.free_symbols(e):
                if symbol.definition is not None:
                    renamed[symbol] = self._indirect(symbol)
            found = ex.substitute(e, renamed) if renamed else e
            # The caller's map applies to direct symbols only: the indirect ones were rebuilt through their definition.
            found = self._indices[e] = self._index(found) if self._index is not None else found
        return found

    def scalar(self, node: Scalar) -> Scalar:
        """A scalar, rebuilt."""
        found = self._memo.get(node)
        if found is not None:
            return found
        kind = node.kind
        if node.children:
            children = tuple(map(self.scalar, node.children))
            if children == node.children:
                found = node
            else:
                found = masked(*children) if kind == "masked" else op(node.op, *children, dtype=node.dtype)
        elif kind == "load":
            found = load(node.args[0], self.expression(node.args[1]), node.dtype)
        elif kind == "index":
            found = index_value(self.expression(node.args[0]), node.dtype)
        else:
            found = node
        if self._replace is not None:
            found = self._replace(found) or found
        self._memo[node] = found
        return found

    def _indirect(self, symbol: Expr) -> Expr:
        definition = self.scalar(symbol.definition)
        bound = self.expression(symbol.bound) if symbol.bound is not None else None
        if definition is symbol.definition and bound is symbol.bound:
            return symbol
        return Symbol(f"at{definition.key & 0xFFFFFFFF:08x}", symbol.lo, symbol.hi, bound=bound, definition=definition)


def transform(
    root: Scalar, replace: Callable[[Scalar], Scalar | None], index: Callable[[Expr], Expr] | None = None
) -> Scalar:
    """``root`` rebuilt by a ``Transform``."""
    return Transform(replace, index).scalar(root)


def rebuild(node: Scalar, args: tuple[Any, ...]) -> Scalar:
    """``node`` with other operands."""
    if node.kind == "masked":
        return masked(*args)
    return op(*args, dtype=node.dtype)


def substitution(mapping: Mapping[Expr, Expr | int]) -> Transform:
    """Replaces loop symbols in every index."""
    return Transform(None, lambda e: ex.substitute(e, mapping))


def substitute(root: Scalar, mapping: Mapping[Expr, Expr | int]) -> Scalar:
    """``root`` with loop symbols replaced in every index."""
    return substitution(mapping).scalar(root)


def op_count(root: Scalar) -> int:
    """How many scalar ops there are in one evaluation: how long its code is, not how long it takes (conversions and constants do not count)."""
    return sum(1 for node in walk(root) if node.kind == "op" and node.op != "to_dtype")


def cost(node: Scalar, target: Target) -> int:
    """What one op costs by itself, in simple instructions; nothing where the node is no op."""
    if node.kind != "op":
        return 0
    found = COSTS.get(node.op)
    return 1 if found is None else found.of(node.children[0].dtype, target)


def recomputing(root: Scalar, target: Target) -> int:
    """What it costs to evaluate ``root`` once more. Conversions do not count: whoever reads a value that was stored converts it as well."""
    return sum(cost(node, target) for node in walk(root) if node.op != "to_dtype")


def has_function(root: Scalar) -> bool:
    """Whether there is a function like `exp` in it: it costs several times as much where it is not computed by vectors."""
    return any(node.kind == "op" and node.op in FUNCTIONS for node in walk(root))


def dtype_text(dtype: Any) -> str:
    """A short name such as ``f32``."""
    return element_type(dtype).short


def index_text(e: Expr) -> str:
    """An index expression; what an indirect symbol stands for is written in braces."""

    def spell(symbol: Expr) -> str:
        return symbol.name if symbol.definition is None else "{" + scalar_text(symbol.definition) + "}"

    return render(e, "python", spell)


def scalar_text(node: Scalar) -> str:
    """One scalar as an expression."""
    if node.kind == "load":
        return f"{node.buffer}[{index_text(node.index)}]"
    if node.kind == "constant":
        return f"{node.args[0]!r}:{dtype_text(node.dtype)}"
    if node.kind == "index":
        return f"index({index_text(node.index)}):{dtype_text(node.dtype)}"
    if node.kind in ("parameter", "reduced"):
        return f"{'$' if node.kind == 'parameter' else '%'}{node.args[0]}"
    if node.kind == "masked":
        return "masked(" + ", ".join(scalar_text(part) for part in node.args) + ")"
    operands = [scalar_text(part) for part in node.children]
    if node.op in _INFIX:
        return f"({operands[0]} {_INFIX[node.op]} {operands[1]})"
    if node.op in ("to_dtype", "bitcast"):
        return f"{'' if node.op == 'to_dtype' else 'bits_'}{dtype_text(node.dtype)}({operands[0]})"
    return f"{node.op}({', '.join(operands)})"
