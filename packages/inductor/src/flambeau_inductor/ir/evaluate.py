"""An interpreter of the loop IR: the oracle that lowering and code generators are tested against.

In: a ``Graph`` and real inputs. Out: its outputs, computed with plain torch ops over index grids, one grid per operation.
Slow and simple on purpose: every load is a gather from a flat copy of the buffer's memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..expr import Expr, evaluate, free_symbols
from ..ops.table import scalar_op
from .graph import Graph, ScalarInput, TensorInput
from .layout import Buffer, Ref
from .loops import Assert, Axis, Extern, Nested, Operation, Pointwise, ReadItem, Reduction, Scan, Scatter, Template
from .meanings import MEANINGS
from .scalar import Scalar


def run_graph(graph: Graph, inputs: Sequence[Any], bodies: Mapping[str, Graph] | None = None) -> tuple[Any, ...]:
    """Run ``graph`` on ``inputs`` (tensors and Python scalars in order); tensors that the graph overwrites are overwritten.

    ``bodies`` are the nested graphs, where ``graph`` is one of them.
    """
    machine = _Machine(graph, graph.bodies if bodies is None else bodies)
    machine.bind(inputs)
    for operation in graph.operations:
        machine.run(operation)
    # Equal windows are one tensor: autograd's accumulation asks how many hold a gradient.
    windows = {out: machine.output(out) for out in graph.outputs if isinstance(out, Ref)}
    return tuple(windows[out] if isinstance(out, Ref) else machine.output(out) for out in graph.outputs)


class _Machine:
    def __init__(self, graph: Graph, bodies: Mapping[str, Graph]) -> None:
        self.graph, self.bodies = graph, bodies
        # One flat memory per storage; a tensor over it starts at the buffer's data pointer.
        self.memory: dict[str, torch.Tensor] = {}
        self.given = {entry.buffer.name for entry in graph.inputs if isinstance(entry, TensorInput)}
        self.symbols: dict[str, int] = {}
        self.parameters: dict[str, Any] = {}

    def bind(self, inputs: Sequence[Any]) -> None:
        """Take the inputs in and learn the symbols from sizes."""
        for entry, value in zip(self.graph.inputs, inputs, strict=True):
            if isinstance(entry, ScalarInput):
                self.parameters[entry.name] = value
                if entry.value is not None and entry.value.is_symbol:
                    self.symbols[entry.value.name] = int(value)
            elif isinstance(entry, TensorInput):
                self.memory[entry.buffer.name] = value
                layout = entry.buffer.layout
                found = (
                    *zip(layout.sizes, value.shape, strict=True),
                    *zip(layout.strides, value.stride(), strict=True),
                )
                for e, actual in found:
                    if e.is_symbol:
                        self.symbols.setdefault(e.name, int(actual))
        for constant in self.graph.constants:
            self.memory[constant.buffer.name] = constant.tensor

    def integer(self, e: Expr) -> int:
        """The value of an expression over graph symbols."""
        return evaluate(e, lambda symbol: self.symbols[symbol.name])

    def flat(self, name: str) -> torch.Tensor:
        """All memory from the buffer's data pointer on, as one dimension that writes through."""
        while (storage := self.graph.buffers[name].storage) != name:
            name = storage
        tensor = self.memory[name]
        spans = [(n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
        return tensor.detach().as_strided((1 + sum(spans) if tensor.numel() else 0,), (1,))

    def window(self, ref: Ref) -> torch.Tensor:
        """A real tensor for a strided window."""
        base = self.flat(ref.buffer)
        sizes, strides = [self.integer(s) for s in ref.sizes], [self.integer(s) for s in ref.strides]
        if ref.dtype is not base.dtype:
            base = base.view(ref.dtype)
        return base.as_strided(sizes, strides, base.storage_offset() + self.integer(ref.offset))

    def allocate(self, buffer: Buffer) -> torch.Tensor:
        """Memory for a new buffer; an in-place buffer shares its storage's."""
        if buffer.in_place:
            return self.flat(buffer.storage)
        layout = buffer.layout
        sizes, strides = [self.integer(s) for s in layout.sizes], [self.integer(s) for s in layout.strides]
        self.memory[buffer.name] = torch.empty_strided(sizes, strides, dtype=layout.dtype)
        return self.flat(buffer.name)

    def argument(self, value: Any) -> Any:
        """A library call's argument as a real value."""
        if isinstance(value, Ref):
            return self.window(value)
        if isinstance(value, Expr):
            return self.integer(value)
        if isinstance(value, Scalar):
            return _Grid(self, ()).scalar(value).item()
        if isinstance(value, tuple | list):
            return [self.argument(part) for part in value]
        if isinstance(value, dict):
            return {key: self.argument(part) for key, part in value.items()}
        return value

    def output(self, value: Any) -> Any:
        """A graph output."""
        if isinstance(value, str):
            return self.parameters[value]
        if isinstance(value, Ref) and value.buffer in self.given:
            # As the executor does: a result that is an input is that very tensor.
            given, window = self.memory[value.buffer], self.window(value)
            same = (window.shape, window.dtype, window.data_ptr()) == (given.shape, given.dtype, given.data_ptr())
            return given if same and window.stride() == given.stride() else window
        return self.argument(value)

    def run(self, operation: Operation) -> None:
        """One operation."""
        if isinstance(operation, Extern):
            self._extern(operation)
        elif isinstance(operation, Template):
            self._template(operation)
        elif isinstance(operation, ReadItem):
            value = self.window(operation.source).item()
            self.parameters[operation.name] = value
            if operation.symbol is not None:
                self.symbols[operation.symbol.name] = int(value)
        elif isinstance(operation, Assert):
            condition = operation.condition
            if not (self.integer(condition) if isinstance(condition, Expr) else _Grid(self, ()).scalar(condition)):
                raise RuntimeError(operation.message)
        else:
            self._loop(operation)

    def _extern(self, operation: Extern) -> None:
        args = [self.argument(a) for a in operation.args]
        kwargs = {k: self.argument(v) for k, v in operation.kwargs.items()}
        with torch.set_grad_enabled(operation.keeps is not None):
            result = (
                self._nested(operation.op, *args, **kwargs)
                if isinstance(operation.op, Nested)
                else operation.op(*args, **kwargs)
            )
        results = list(result) if isinstance(result, tuple | list) else [result]
        for symbol, position, dim in operation.binds:
            value = results[position]
            if isinstance(symbol, str):
                self.parameters[symbol] = value
            else:
                self.symbols[symbol.name] = int(value if dim is None else value.shape[dim])
        for buffer, value in zip(operation.outs, results, strict=False):
            if buffer is not None:
                self.memory[buffer.name] = self._as_planned(buffer, value)

    def _template(self, operation: Template) -> None:
        def body(name: str, known: Mapping[str, torch.Tensor]) -> torch.Tensor:
            grid = _Grid(self, operation.axes, known)
            return grid.scalar(operation.bodies[name]).expand(grid.shape)

        operands = {name: self.window(ref) for name, ref in operation.operands.items()}
        for name, value in MEANINGS[operation.kind](operands, operation.facts, body).items():
            out = operation.outs.get(name)
            if out is not None:
                value = value.to(out.layout.dtype).reshape(tuple(map(self.integer, out.layout.sizes)))
                self.memory[out.name] = self._as_planned(out, value)

    def _nested(self, op: Nested, passed: Any, same: Any, slices: Any, length: int = 0) -> tuple[Any, ...]:
        first, last = (self.bodies[name] for name in (op.bodies[0], op.bodies[-1]))
        if op.kind == "call":
            return run_graph(last, (*passed, *same), self.bodies)
        if op.kind == "cond":
            return run_graph(first if passed[0] else last, (*passed[1:], *same), self.bodies)
        carried = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in passed)
        if op.kind == "scan":
            for step in range(length):
                carried = run_graph(last, (*carried, *same, *(tensor[step] for tensor in slices)), self.bodies)
            return carried
        rows = []
        while run_graph(first, (*carried, *same), self.bodies)[0]:
            carried = run_graph(last, (*carried, *same), self.bodies)
            rows.append(carried)
        return tuple(map(torch.stack, zip(*(rows or [carried])))) if op.kind == "stack" else carried

    def _as_planned(self, buffer: Buffer, value: torch.Tensor) -> torch.Tensor:
        """A library's result with the strides its fake tensor promised (some kernels answer with others)."""
        strides = [self.integer(s) for s in buffer.layout.strides]
        if value.layout is not torch.strided or list(value.stride()) == strides:
            return value
        planned = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        return planned.copy_(value)

    def _loop(self, operation: Pointwise | Reduction | Scan | Scatter) -> None:
        reduce_axes = operation.reduce_axes if isinstance(operation, Reduction) else ()
        grid = _Grid(self, operation.axes + reduce_axes)
        value = grid.scalar(operation.value)
        shape = grid.shape[: len(operation.axes)]
        if isinstance(operation, Reduction):
            value = _reduce(
                operation.kind, value.expand(grid.shape).reshape(*shape, math.prod(grid.shape[len(shape) :]))
            )
        elif isinstance(operation, Scan):
            value = _scan(operation.kind, value.expand(grid.shape), operation.along)
        out_dtype = operation.out.layout.dtype
        value = value.expand(shape if isinstance(operation, Reduction) else grid.shape).to(out_dtype)
        index = (
            operation.index
            if isinstance(operation, Scatter)
            else operation.out.layout.index([a.symbol for a in operation.axes])
        )
        positions = grid.expression(index).expand(grid.shape)
        if isinstance(operation, Reduction):
            positions = positions[(..., *([0] * len(reduce_axes)))] if grid.numel else positions.new_zeros(shape)
            if not grid.numel:
                positions = _Grid(self, operation.axes).expression(index).expand(shape)
        memory = self.allocate(operation.out)
        mode = operation.mode if isinstance(operation, Scatter) else "set"
        _write(memory, positions.reshape(-1), value.reshape(-1), mode)


def _write(memory: torch.Tensor, positions: Any, values: Any, mode: str) -> None:
    if mode == "set":
        for_ties = torch.arange(len(positions))
        last = torch.full((len(memory),), -1, dtype=torch.int64)
        last.scatter_reduce_(0, positions, for_ties, "amax")
        chosen = last >= 0
        memory[chosen] = values[last[chosen]]
    elif mode == "add" and memory.dtype is torch.bool:
        memory |= torch.zeros_like(memory, dtype=torch.int64).index_add_(0, positions, values.long()) > 0
    elif mode == "add":
        memory.index_add_(0, positions, values)
    else:
        name = {"mul": "prod", "min": "amin", "max": "amax"}[mode]
        memory.scatter_reduce_(0, positions, values, name)


class _Grid:
    """Evaluates expressions and scalars at every point of some axes at once. ``known`` are the ``reduced`` values there."""

    def __init__(
        self, machine: _Machine, axes: Sequence[Axis], known: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self.known = known or {}
        self.machine = machine
        self.shape = [machine.integer(axis.size) for axis in axes]
        self.numel = math.prod(self.shape)
        self.axes = {}
        for n, axis in enumerate(axes):
            view = [1] * len(axes)
            view[n] = -1
            self.axes[axis.symbol.name] = torch.arange(self.shape[n]).view(view)
        self.memo: dict[Any, Any] = {}
        #: Whether positions are checked: not where there are no elements, nor under a condition.
        self.checks = self.numel > 0

    def expression(self, e: Expr) -> torch.Tensor:
        """An index expression as an int64 grid."""
        values: dict[Expr, Any] = {}
        for symbol in free_symbols(e):
            if symbol.definition is not None:
                values[symbol] = self.scalar(symbol.definition)
            elif symbol.name in self.axes:
                values[symbol] = self.axes[symbol.name]
            else:
                values[symbol] = torch.tensor(self.machine.symbols[symbol.name])
        return torch.as_tensor(_tensor_evaluate(e, values))

    def scalar(self, node: Scalar) -> torch.Tensor:
        """A scalar node as a grid of its dtype."""
        found = self.memo.get(node)
        if found is None:
            found = self.memo[node] = self._scalar(node)
        return found

    def _scalar(self, node: Scalar) -> torch.Tensor:
        if node.kind == "constant":
            return torch.tensor(node.args[0], dtype=node.dtype)
        if node.kind == "index":
            return self.expression(node.index).to(node.dtype)
        if node.kind == "parameter":
            return torch.tensor(self.machine.parameters[node.args[0]], dtype=node.dtype)
        if node.kind == "reduced":
            return self.known[node.args[0]]
        if node.kind == "load":
            memory = self.machine.flat(node.buffer)
            position = self.expression(node.index)
            outside = (position < 0) | (position >= len(memory))
            inside = position.masked_fill(outside, 0)
            if len(memory) == 0:
                return torch.zeros(position.shape, dtype=node.dtype)
            # Outside positions are only legal under a mask; a NaN (or a wild value) makes a missing mask visible.
            value = memory[inside]
            return torch.where(outside, _poison(node.dtype), value) if bool(outside.any()) else value
        if node.kind == "masked":
            condition, body, other = node.args
            return torch.where(self.scalar(condition), self._unchecked(body), self.scalar(other))
        if node.op == "check_bounds" and not self.checks:
            return self.scalar(node.children[0])
        operands = [self.scalar(part) for part in node.children]
        return scalar_op(node.op).reference(*operands, dtype=node.dtype)

    def _unchecked(self, body: Scalar) -> torch.Tensor:
        """The value under a condition: elsewhere its positions may lie anywhere. What stands outside of it, too, is checked there."""
        before = self.memo, self.checks
        if self.checks:
            self.memo, self.checks = dict(self.memo), False
        try:
            return self.scalar(body)
        finally:
            self.memo, self.checks = before


def _poison(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor(float("nan"), dtype=dtype)
    return torch.tensor(True if dtype is torch.bool else torch.iinfo(dtype).max, dtype=dtype)


def _tensor_evaluate(e: Expr, values: dict[Expr, Any]) -> Any:
    if e.op == "int":
        return torch.tensor(e.args[0])
    if e.op == "symbol":
        return values[e]
    if e.op == "add":
        total: Any = torch.tensor(e.args[0])
        for term, c in e.args[1]:
            total = total + c * _tensor_evaluate(term, values)
        return total
    parts = [_tensor_evaluate(child, values) for child in e.args]
    if e.op == "mul":
        return math.prod(parts[1:], start=parts[0])
    table = {
        # A branch that is not chosen is evaluated all the same, and may divide by the size of an empty dimension.
        "floordiv": lambda a, b: torch.div(a, torch.where(b == 0, 1, b), rounding_mode="floor"),
        "mod": lambda a, b: torch.remainder(a, torch.where(b == 0, 1, b)),
        "min": torch.minimum,
        "max": torch.maximum,
        "eq": lambda a, b: (a == b).long(),
        "lt": lambda a, b: (a < b).long(),
        "le": lambda a, b: (a <= b).long(),
        "and": lambda a, b: a * b,
        "not": lambda a: 1 - a,
        "select": lambda c, a, b: torch.where(c.bool(), a, b),
    }
    return table[e.op](*parts)


def _reduce(kind: str, rows: torch.Tensor) -> torch.Tensor:
    if kind in ("sum", "prod"):
        return getattr(rows, kind)(-1, dtype=rows.dtype)
    if kind in ("max", "min") and rows.shape[-1] == 0:
        extreme = float("-inf") if kind == "max" else float("inf")
        return rows.new_full(rows.shape[:-1], extreme)
    if kind in ("max", "min"):
        return getattr(rows, f"a{kind}")(-1)
    if kind == "xor_sum":
        total = torch.zeros(rows.shape[:-1], dtype=rows.dtype)
        for n in range(rows.shape[-1]):
            total = total ^ rows[..., n]
        return total
    return getattr(rows, kind)(-1)


def _scan(kind: str, value: torch.Tensor, along: int) -> torch.Tensor:
    if kind == "sum":
        return value.cumsum(along, dtype=value.dtype)
    if kind == "prod":
        return value.cumprod(along, dtype=value.dtype)
    if kind == "logaddexp":
        return value.logcumsumexp(along)
    return getattr(value, f"cum{kind}")(along).values
