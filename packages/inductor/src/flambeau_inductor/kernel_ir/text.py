"""The kernel IR as text, for people, dumps and golden tests.

In: a statement or a kernel. Out: lines. A variable is defined as ``v3[x, r]: f32 = …``, with the tiles that it varies along, and read by its name;
``{b}`` in an index is a value that has been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..expr import render
from ..ir.scalar import dtype_text
from .statements import (
    ZERO,
    Alias,
    Assign,
    Atomic,
    Barrier,
    Begin,
    Check,
    CopyRows,
    For,
    ForLanes,
    If,
    Kernel,
    LocalArray,
    MultiplyRows,
    Pack,
    Pipelined,
    Points,
    Return,
    Run,
    RunInPlace,
    Squares,
    Statement,
    Store,
    Text,
    Update,
    Wait,
)
from .values import (
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
    Extent,
    Full,
    Index,
    InRange,
    Kind,
    Lanes,
    Layout,
    Load,
    Node,
    NoLane,
    Number,
    Op,
    Pointer,
    Program,
    Reduce,
    Reshape,
    Scan,
    Tiles,
    Variable,
)

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "or": "|", "and": "&", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=",
}  # fmt: skip


def kernel_ir_text(name: str, kernel: Kernel) -> str:
    """A kernel under ``name``."""
    given = [f"{p.name}: *{_kind(p.dtype)}" for p in kernel.pointers]
    given += [f"{s.name}: {_kind(s.dtype)}" for s in kernel.scalars]
    sizes = dict(kernel.blocks)
    tiles = ", ".join(f"{tile}: {sizes.get(tile, '')}" for tile in kernel.tiles)
    head = f"kernel {name}({', '.join(given)}) tiles({tiles}) index i{kernel.index_bits}"
    return "\n".join([head, *block_lines(kernel.body, 1)]) + "\n"


def block_lines(block: Iterable[Statement], depth: int = 0) -> list[str]:
    """A block, each level two spaces further in."""
    return ["  " * depth + line for statement in block for line in statement_lines(statement)]


def statement_lines(statement: Statement) -> list[str]:
    """One statement and the blocks inside it."""
    return _STATEMENTS[type(statement)](statement)


def node_text(node: Node | Pointer) -> str:
    """An expression."""
    return _NODES[type(node)](node)


def _kind(kind: Kind) -> str:
    return kind if isinstance(kind, str) else dtype_text(kind)


def _tiles(tiles: Tiles) -> str:
    return ", ".join(sorted(tiles, reverse=True))


def _layout(tiles: Tiles, layout: Layout | None) -> str:
    return _tiles(tiles) if layout is None else ", ".join(map(_extent, layout))


def _extent(extent: Extent) -> str:
    if not extent.tile:
        return str(extent.count)
    return f"{extent.tile}/{extent.over}" if extent.over else extent.tile


def _declared(variable: Variable) -> str:
    shape = _layout(variable.tiles, variable.layout)
    return f"{variable.name}{f'[{shape}]' if shape else ''}: {_kind(variable.dtype)}"


def _names(variables: Iterable[Variable]) -> str:
    return ", ".join(variable.name for variable in variables)


def _texts(nodes: Iterable[Node | Pointer]) -> str:
    return ", ".join(map(node_text, nodes))


def _where(mask: Node | None) -> str:
    return "" if mask is None else f" where {node_text(mask)}"


def _place(part: Load | Store | Atomic) -> str:
    return f"{part.pointer.name}[{node_text(part.index)}]"


def _if(s: If) -> list[str]:
    whole = f" (whole {_tiles(s.whole)})" if s.whole else ""
    lines = [f"if {node_text(s.condition)}{whole}", *block_lines(s.then, 1)]
    return [*lines, "else", *block_lines(s.orelse, 1)] if s.orelse else lines


def _for(s: For) -> list[str]:
    carried = f" carrying {_names(s.carried)}" if s.carried else ""
    start = "" if s.start == ZERO else f" from {node_text(s.start)}"
    head = f"for {s.variable.name}{start} below {node_text(s.stop)} by {node_text(s.step)}{carried}"
    return [head, *block_lines(s.body, 1)]


def _pipelined(s: Pipelined) -> list[str]:
    moves = ", ".join(f"{target.name} = {source.name}" for target, source in s.moves)
    head = f"pipelined {s.variable.name} below {s.count}"
    return [head, "  ahead", *block_lines(s.ahead, 2), "  work", *block_lines(s.body, 2), f"  then {moves}"]


def _points(s: Points) -> list[str]:
    axes = ", ".join(f"{variable.name} below {node_text(size)}" for variable, size in s.axes)
    return [f"points{f' of {axes}' if axes else ''}", *block_lines(s.body, 1)]


def _begin(s: Begin) -> list[str]:
    parts = (f"{', '.join(map(_declared, a.targets))} = {node_text(a.start)} by {a.kind}" for a in s.accumulators)
    return [f"begin {s.label}: {', '.join(parts)}"]


def _for_lanes(s: ForLanes) -> list[str]:
    carried = f" carrying {_names(s.carried)}" if s.carried else ""
    parts = f" in {s.parts} parts" if s.parts else ""
    reach = f"from {node_text(s.start)} below {node_text(s.stop)}"
    head = f"lanes {s.label}: {_declared(s.position)} {reach} mask {s.mask.name}{carried}{parts}"
    return [head, *block_lines(s.body, 1)]


def _squares(s: Squares) -> list[str]:
    rows = f"{s.row_position.name} from {node_text(s.start)} below {node_text(s.stop)}"
    head = f"squares {s.label}: {_declared(s.position)} below {node_text(s.size)} by {s.chunk} mask {s.mask.name}, {rows}, row {s.row.name}"
    panels = [
        f"  panel {p.array.name}: *{_kind(p.array.dtype)} {'to' if p.stored else 'from'} {p.memory.name}[{node_text(p.index)}] step {node_text(p.step)}"
        for p in s.panels
    ]
    return [head, *panels, *block_lines(s.body, 1)]


def _local_array(s: LocalArray) -> list[str]:
    start = "" if s.start is None else f" = {node_text(s.start)}"
    return [
        f"local{' heap' if s.heap else ''}{' whole' if s.whole else ''} {s.pointer.name}[{node_text(s.length)}]: {_kind(s.pointer.dtype)}{start}"
    ]


def _run_in_place(s: RunInPlace) -> list[str]:
    order = " in any order" if s.in_any_order else ""
    return [f"run {s.kind} in {s.array.name}[{node_text(s.count)} of {s.most}] after {s.running.name}{order}"]


def _pack(s: Pack) -> list[str]:
    steps = f"steps {s.row_step}, {s.column_step}"
    return [f"pack {s.array.name}[{s.rows}, {s.columns}] from {s.memory.name}[{node_text(s.index)}] {steps}"]


def _copy_rows(s: CopyRows) -> list[str]:
    steps = f"steps {node_text(s.row_step)}, {node_text(s.column_step)}"
    head = f"copy {node_text(s.count)} of {s.array.name}[{s.rows}, {s.columns}]"
    return [f"{head} from {s.memory.name}[{node_text(s.index)}] {steps}"]


def _multiply_rows(s: MultiplyRows) -> list[str]:
    head = f"multiply {node_text(s.count)} of {s.result.name} step {s.result_step} = {s.left.name} step {s.left_step}"
    reach = f"{'terms' if s.along_terms else 'columns'} {node_text(s.first)} below {node_text(s.last)}"
    return [f"{head} @ {s.packed.name}[{s.terms}, {s.columns}] {reach}"]


def _check(s: Check) -> list[str]:
    masks = "".join(_where(mask) for mask in s.masks)
    return [f"check 0 <= {node_text(s.position)} < {node_text(s.size)}{masks}"]


_STATEMENTS: dict[type, Callable[[Any], list[str]]] = {
    Assign: lambda s: [f"{', '.join(map(_declared, s.targets))} = {node_text(s.value)}"],
    Update: lambda s: [f"update {_names(s.targets)} = {node_text(s.value)}"],
    Alias: lambda s: [f"{s.pointer.name}: *{_kind(s.pointer.dtype)} = alias {s.source.name}"],
    Store: lambda s: [f"store {_place(s)} = {node_text(s.value)}{_where(s.mask)}{' streamed' if s.streamed else ''}"],
    Atomic: lambda s: [f"atomic {s.mode} {_place(s)} by {node_text(s.value)}{_where(s.mask)}"],
    Check: _check,
    If: _if,
    For: _for,
    Pipelined: _pipelined,
    Points: _points,
    Begin: _begin,
    ForLanes: _for_lanes,
    Squares: _squares,
    LocalArray: _local_array,
    RunInPlace: _run_in_place,
    Pack: _pack,
    CopyRows: _copy_rows,
    MultiplyRows: _multiply_rows,
    Run: lambda s: [f"run {s.function}({_texts(s.arguments)})"],
    Return: lambda s: ["return"],
    Wait: lambda s: ["wait"],
    Barrier: lambda s: ["barrier"],
    Text: lambda s: [f"text {s.line}"],
}


def _index(n: Index) -> str:
    names = {
        symbol: node_text(node) if isinstance(node, Variable) else f"{{{node_text(node)}}}" for symbol, node in n.names
    }
    return render(n.expression, "python", lambda symbol: names.get(symbol, symbol.name))


def _load(n: Load) -> str:
    parts = [" else 0" if n.filled else "", f" {n.eviction}" if n.eviction else ""]
    return f"load {_place(n)}{_where(n.mask)}{''.join(parts)}"


def _reduce(n: Reduce | Scan) -> str:
    operands = n.operands if isinstance(n, Reduce) else (n.value,)
    word = "reduce" if isinstance(n, Reduce) else "scan"
    spare = f" leaving {n.spare}" if isinstance(n, Reduce) and n.spare else ""
    by = f" by {n.function}" if n.function else ""
    return f"{word} {n.kind}({_names(operands)}){by}{spare}"


_NODES: dict[type, Callable[[Any], str]] = {
    Variable: lambda n: n.name,
    Pointer: lambda n: n.name,
    Number: lambda n: repr(n.value),
    BlockSize: lambda n: f"block({n.tile})",
    Program: lambda n: "program" if n.first is None else f"(program - {n.first.name})",
    Lanes: lambda n: f"lanes({n.tile}{f'/{n.over}' if n.over else ''}{', inside' if n.inside else ''})",
    Index: _index,
    Arith: lambda n: f"({node_text(n.left)} {_SYMBOLS.get(n.op, n.op)} {node_text(n.right)})",
    All: lambda n: f"all({_texts(n.parts)})",
    InRange: lambda n: f"in_range({n.tile}: {n.position.name}, {'0, ' if n.both else ''}{node_text(n.size)})",
    NoLane: lambda n: f"no_lane({n.mask.name})",
    AnyLane: lambda n: f"any_lane({n.mask.name})",
    AlignDown: lambda n: f"align_down({n.value.name}, {n.step})",
    Full: lambda n: f"full({node_text(n.value)}{', ' if n.tiles else ''}{_layout(n.tiles, n.layout)})",
    Cast: lambda n: f"cast({node_text(n.value)}, {_kind(n.dtype)})",
    AsIndex: lambda n: f"index({node_text(n.value)})",
    Broadcast: lambda n: f"broadcast({node_text(n.value)}, {_layout(n.tiles, n.layout)})",
    Reshape: lambda n: f"reshape({node_text(n.value)}, {_layout(n.tiles, n.layout)})",
    Op: lambda n: f"{n.name}({_texts(n.operands)}{_where(n.mask)})",
    Call: lambda n: f"call {n.function}({_texts(n.operands)})",
    Load: _load,
    Combine: lambda n: f"combine {n.kind}({_texts(n.old)}; {_texts(n.new)}{_where(n.mask)})",
    Reduce: _reduce,
    Scan: _reduce,
}
