"""The loop IR as text, for people, dumps and golden tests.

In: a scalar, an operation, a graph or a kernel. Out: lines of text. Loads print as ``x[512*i0 + i1]``; an indirect symbol
prints as ``{its definition}``.
"""

from __future__ import annotations

from typing import Any

from ..devices import device_of
from ..expr import Expr, render
from .graph import Graph, ScalarInput, TensorInput
from .kernel import SECOND_SUM, SUM, Gemm, KernelBody, Reduce, ScanStep, Statement, Store, Window
from .layout import Buffer, Layout, Ref
from .loops import Assert, Axis, Extern, Operation, Pointwise, ReadItem, Reduction, Scan, Scatter, Template
from .scalar import dtype_text, index_text, scalar_text


def layout_text(layout: Layout) -> str:
    """``f32[s0, 8; 8, 1]``, with the device where it is not the host."""
    sizes, strides = (", ".join(render(e) for e in part) for part in (layout.sizes, layout.strides))
    device = "" if device_of(layout.device).is_host else f" {layout.device}"
    return f"{dtype_text(layout.dtype)}[{sizes}; {strides}]{device}"


def _buffer(buffer: Buffer) -> str:
    over = f" over {buffer.storage}" if buffer.in_place else ""
    return f"{buffer.name}: {layout_text(buffer.layout)}{over}"


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{axis.symbol.name}<{render(axis.size)}" for axis in axes)


def _argument(value: Any) -> str:
    if isinstance(value, Ref):
        return f"{value.buffer}<{layout_text(value.layout())} +{render(value.offset)}>"
    if isinstance(value, Window):
        parts = {"stride": value.stride, "padding": value.padding, "dilation": value.dilation}
        moves = ", ".join(f"{name} {y} {x}" for name, (y, x) in parts.items())
        return f"windows {value.taps[0]} x {value.taps[1]} of {_argument(value.image)}, {moves}, {value.groups} groups"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(_argument(part) for part in value) + ")"
    if isinstance(value, Expr):
        return render(value)
    return repr(value)


def operation_text(operation: Operation) -> str:
    """One operation as one line."""
    if isinstance(operation, Pointwise):
        return f"{_buffer(operation.out)} = for {_axes(operation.axes)}: {scalar_text(operation.value)}"
    if isinstance(operation, Reduction):
        body = f"{operation.kind} {_axes(operation.reduce_axes)}: {scalar_text(operation.value)}"
        return f"{_buffer(operation.out)} = for {_axes(operation.axes)}: {body}"
    if isinstance(operation, Scan):
        along = operation.axes[operation.along].symbol.name
        return f"{_buffer(operation.out)} = for {_axes(operation.axes)}: scan {operation.kind} {along}: {scalar_text(operation.value)}"
    if isinstance(operation, Scatter):
        target = f"[{index_text(operation.index)}] {operation.mode} {scalar_text(operation.value)}"
        return f"{_buffer(operation.out)} = for {_axes(operation.axes)}: {target}"
    if isinstance(operation, Extern):
        outs = ", ".join("_" if out is None else _buffer(out) for out in (*operation.outs, *operation.changed))
        given = [_argument(a) for a in operation.args] + [f"{k}={_argument(v)}" for k, v in operation.kwargs.items()]
        return f"{outs} = call {operation.op}({', '.join(given)})"
    if isinstance(operation, Template):
        return _template_text(operation)
    if isinstance(operation, ReadItem):
        return f"{operation.name} = item {_argument(operation.source)}"
    assert isinstance(operation, Assert)
    condition = operation.condition
    shown = render(condition) if isinstance(condition, Expr) else str(condition)
    return f"assert {shown}: {operation.message}"


def _template_text(template: Template) -> str:
    outs = ", ".join(f"{name}={_buffer(out)}" for name, out in template.outs.items())
    given = [f"{name}={_argument(ref)}" for name, ref in template.operands.items()]
    given += [f"{name}={fact!r}" for name, fact in template.facts.items()]
    bodies = "; ".join(f"{name}: {scalar_text(body)}" for name, body in template.bodies.items())
    return f"{outs} = {template.kind}({', '.join(given)}) for {_axes(template.axes)}: {bodies}"


def graph_text(graph: Graph) -> str:
    """The whole graph, its bodies first: inputs, one line per operation, outputs."""
    lines = [graph_text(body) for body in graph.bodies.values()]
    lines.append(f"graph {graph.name}")
    for entry in graph.inputs:
        if isinstance(entry, TensorInput):
            lines.append(f"  input {_buffer(entry.buffer)}{' static' if entry.static else ''}")
        else:
            assert isinstance(entry, ScalarInput)
            value = "" if entry.value is None else f" = {render(entry.value)}"
            lines.append(f"  input {entry.name}: {dtype_text(entry.dtype)}{value}")
    lines += [f"  constant {_buffer(entry.buffer)}" for entry in graph.constants]
    lines += ["  " + operation_text(operation) for operation in graph.operations]
    lines.append("  return " + ", ".join(_argument(out) for out in graph.outputs))
    return "\n".join(lines)


def statement_text(statement: Statement) -> str:
    """One kernel statement as one line."""
    if isinstance(statement, Store):
        mode = "" if statement.mode == "set" else f" {statement.mode}"
        return f"{statement.level} {statement.buffer}[{index_text(statement.index)}]{mode} = {scalar_text(statement.value)}"
    word = "scan " if isinstance(statement, ScanStep) else ""
    assert isinstance(statement, Reduce | ScanStep)
    return f"%{statement.name} = {word}{statement.kind} {scalar_text(statement.value)} -> {dtype_text(statement.dtype)}"


def kernel_text(body: KernelBody) -> str:
    """A kernel: its axes, buffers and statements."""
    lines = [f"kernel {body.name} outer({_axes(body.outer)}) inner({_axes(body.inner)})"]
    lines += [f"  buffer {_buffer(buffer)}" for buffer in body.buffers]
    lines += ["  " + statement_text(statement) for statement in body.statements]
    return "\n".join(lines)


def gemm_text(gemm: Gemm) -> str:
    """A product with its epilogue: the operands, the tile, the kernel over points."""
    tile = gemm.tile
    blocks = f"tile {tile.rows} x {tile.columns} x {tile.terms}, {tile.num_warps} warps, {tile.num_stages} stages"
    rights = tuple(ref for ref in (gemm.right, gemm.second, *gemm.further) if ref is not None)
    groups = "" if gemm.offsets is None else f", groups up to {_argument(gemm.offsets)}"
    names = f"%{SUM}" if gemm.second is None else f"%{SUM}, %{SECOND_SUM}"
    return f"{names} = gemm({_argument(gemm.left)}, {', '.join(map(_argument, rights))}{groups}) in {blocks}\n{kernel_text(gemm.body)}"
