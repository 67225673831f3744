"""What each expression of the kernel IR asks of its operands, and what follows from them.

In: an expression. Out: nothing, or ``VerifyError``. Names are ``verify.py``'s concern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import torch

from ..errors import VerifyError
from ..expr import free_symbols
from ..ops.dtypes import NARROW
from ..ops.table import scalar_op
from .statements import Kernel
from .text import node_text
from .values import (
    ARITHMETIC,
    COMPARISONS,
    INDEX,
    LOOP,
    ROW,
    AlignDown,
    All,
    AnyLane,
    Arith,
    AsIndex,
    BlockSize,
    Broadcast,
    Call,
    Cast,
    Combine,
    Full,
    Index,
    InRange,
    Lanes,
    Layout,
    Load,
    Node,
    NoLane,
    Number,
    Op,
    Program,
    Reduce,
    Reshape,
    Scan,
    Tiles,
)

#: Ops that take types that are not computed in.
_NARROW_ALLOWED = frozenset({"to_dtype", "where"})
#: Reductions that a machine has.
_OWN_KINDS = frozenset({"sum", "xor_sum", "max", "min"})
#: Reductions whose result is where an extreme lies.
PLACED = frozenset({"argmax", "argmin"})
#: What running results are combined by.
KINDS = frozenset({"sum", "prod", "xor_sum", "max", "min", "any", "all", "logaddexp"}) | PLACED


def spread(node: Node) -> Tiles:
    """The dimensions along which a block has more than one element."""
    return node.tiles - {LOOP}


def check_node(node: Node, kernel: Kernel) -> None:
    """One expression, not its operands. Raises VerifyError."""
    if not spread(node) <= frozenset(kernel.tiles):
        raise VerifyError(f"{node_text(node)} varies along {sorted(spread(node))}, which are no tiles of the kernel")
    _RULES[type(node)](node, kernel)


def _refuse(node: Node, why: str) -> None:
    raise VerifyError(f"{node_text(node)}: {why}")


def _union(nodes: Iterable[Node]) -> Tiles:
    return frozenset().union(*map(spread, nodes))


def _along(node: Node, *operands: Node) -> None:
    if spread(node) != _union(operands):
        _refuse(node, f"varies along {sorted(spread(node))}, its operands along {sorted(_union(operands))}")


def _nothing(node: Node, kernel: Kernel) -> None:
    pass


def _block_size(node: BlockSize, kernel: Kernel) -> None:
    if node.tile not in kernel.tiles:
        _refuse(node, "there is no such block")


def _program(node: Program, kernel: Kernel) -> None:
    if node.first is not None and node.first not in kernel.scalars:
        _refuse(node, "the first program's number is no argument")


def _index(node: Index, kernel: Kernel) -> None:
    if free_symbols(node.expression) != frozenset(symbol for symbol, _ in node.names):
        _refuse(node, "its names are not its symbols")
    parts = [part for _, part in node.names]
    if any(part.dtype != INDEX for part in parts):
        _refuse(node, "of something that is no position")
    _along(node, *parts)


def _arith(node: Arith, kernel: Kernel) -> None:
    if node.op not in ARITHMETIC:
        _refuse(node, f"there is no arithmetic {node.op}")
    if node.left.dtype != node.right.dtype:
        _refuse(node, f"operands of different types: {node.left.dtype}, {node.right.dtype}")
    if node.dtype != (torch.bool if node.op in COMPARISONS else node.left.dtype):
        _refuse(node, f"is no {node.dtype}")
    # Along a block of one element a number is as good as a block.
    if spread(node) - kernel.single != _union((node.left, node.right)) - kernel.single:
        _along(node, node.left, node.right)


def _all(node: All, kernel: Kernel) -> None:
    if any(part.dtype is not torch.bool for part in node.parts):
        _refuse(node, "of something that is no truth value")
    _along(node, *node.parts)


def _in_range(node: InRange, kernel: Kernel) -> None:
    if node.tile not in spread(node.position):
        _refuse(node, f"the position does not vary along {node.tile}")
    if node.position.dtype != INDEX or node.size.dtype != INDEX or spread(node.size):
        _refuse(node, "of something that is no position or no size")


def _some_lane(node: NoLane | AnyLane, kernel: Kernel) -> None:
    if node.mask.dtype is not torch.bool:
        _refuse(node, "of something that is no mask")


def _align_down(node: AlignDown, kernel: Kernel) -> None:
    if node.value.dtype != INDEX or node.step < 1:
        _refuse(node, "of something that is no position")


def _full(node: Full, kernel: Kernel) -> None:
    if spread(node.value):
        _refuse(node, "of a block")
    if node.value.dtype != node.dtype and node.value.dtype != INDEX:
        _refuse(node, f"holds {node.value.dtype}, not {node.dtype}")


def _as_index(node: AsIndex, kernel: Kernel) -> None:
    kind = node.value.dtype
    if kind != INDEX and (kind.is_floating_point or kind.is_complex or kind is torch.bool):
        _refuse(node, f"{kind} is no position")


def _broadcast(node: Broadcast, kernel: Kernel) -> None:
    if not spread(node.value) <= spread(node):
        _refuse(node, f"loses {sorted(spread(node.value) - spread(node))}")


def _reshape(node: Reshape, kernel: Kernel) -> None:
    if _elements(node.tiles, node.layout) != _elements(node.value.tiles, getattr(node.value, "layout", None)):
        _refuse(node, "has another number of elements")


def _elements(tiles: Tiles, layout: Layout | None) -> tuple[Counter[str], Fraction]:
    """How many elements a block has: the blocks it is long, and a factor."""
    if layout is None:
        return Counter(tiles - {LOOP}), Fraction(1)
    factor = Fraction(1)
    for extent in layout:
        factor = factor * extent.count / max(extent.over, 1)
    return Counter(extent.tile for extent in layout if extent.tile), factor


def _op(node: Op, kernel: Kernel) -> None:
    try:
        record = scalar_op(node.name)
    except ValueError as error:
        raise VerifyError(str(error)) from error
    if len(node.operands) != record.arity:
        _refuse(node, f"takes {record.arity} operands")
    dtypes: tuple[Any, ...] = tuple(part.dtype for part in node.operands)
    if record.domain == "float" and not getattr(dtypes[0], "is_floating_point", False):
        _refuse(node, f"on {dtypes[0]}")
    if node.name not in _NARROW_ALLOWED and any(dtype in NARROW for dtype in dtypes):
        _refuse(node, "arithmetic on a narrow type")
    try:
        result = record.result(dtypes, node.dtype)
    except TypeError as error:
        raise VerifyError(f"{node_text(node)}: {error}") from error
    if result != node.dtype:
        _refuse(node, f"is {result}, not {node.dtype}")
    _along(node, *node.operands)


def _call(node: Call, kernel: Kernel) -> None:
    if not spread(node) <= _union(node.operands):
        _refuse(node, f"varies along {sorted(spread(node) - _union(node.operands))}, no operand does")


def _combine(node: Combine, kernel: Kernel) -> None:
    if node.kind not in KINDS:
        _refuse(node, f"nothing combines by {node.kind}")
    count = 2 if node.kind in PLACED else 1
    if len(node.old) != count or len(node.new) != count:
        _refuse(node, f"takes {count} and {count} operands")
    if node.new[0].dtype != node.old[0].dtype:
        _refuse(node, f"{node.new[0].dtype} with {node.old[0].dtype}")
    if any(part.dtype != INDEX for part in node.new[1:]):
        _refuse(node, "a place is no position")
    if node.mask is not None and node.mask.dtype is not torch.bool:
        _refuse(node, "its mask is no truth value")
    _along(node, *node.old, *node.new)


def _reduce(node: Reduce | Scan, kernel: Kernel) -> None:
    operands = node.operands if isinstance(node, Reduce) else (node.value,)
    if ROW not in kernel.tiles or any(spread(part) != frozenset(kernel.tiles) for part in operands):
        _refuse(node, "an operand is no whole block")
    if isinstance(node, Reduce) and (node.spare or node.kind in PLACED) and len(operands) != 2:
        _refuse(node, "an extreme and its place are two results")
    if not node.function and node.kind not in _OWN_KINDS:
        _refuse(node, f"no machine reduces by {node.kind} itself")


_RULES: dict[type, Callable[[Any, Kernel], None]] = {
    Number: _nothing,
    BlockSize: _block_size,
    Program: _program,
    Lanes: _nothing,
    Index: _index,
    Arith: _arith,
    All: _all,
    InRange: _in_range,
    NoLane: _some_lane,
    AnyLane: _some_lane,
    AlignDown: _align_down,
    Full: _full,
    Cast: _nothing,
    AsIndex: _as_index,
    Broadcast: _broadcast,
    Reshape: _reshape,
    Op: _op,
    Call: _call,
    Load: _nothing,
    Combine: _combine,
    Reduce: _reduce,
    Scan: _reduce,
}
