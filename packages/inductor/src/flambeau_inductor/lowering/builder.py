"""The state of one lowering and the verbs that rules use: build lazily, reduce, realise, call the library.

In: ``TensorValue``s. Out: operations appended in order, and new ``TensorValue``s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from ..errors import UnsupportedGraphError
from ..expr import ONE, ZERO, Expr, SymbolTable, UnsupportedExpression, as_expr, free_symbols, hint
from ..ir import scalar as sc
from ..ir.layout import Buffer, Layout, Ref, Sizes, contiguous_strides, strides_in_order
from ..ir.loops import SHORT_ROW, Extern, Operation, Pointwise, Reduction, Scan, Scatter, make_axes
from ..ir.scalar import Scalar
from ..ops.dtypes import EIGHTHS, HALVES, NARROW
from .one_hot import sum_along
from .provenance import Provenance
from .registry import Decline
from .values import Index, Positions, TensorValue, broadcast_index, canonical_index, compute_dtype


class Builder:
    """Collects the operations of one graph. ``node`` is the FX node being lowered."""

    def __init__(self, context: CompileContext, symbols: SymbolTable) -> None:
        self.context = context
        self.symbols = symbols
        self.operations: list[Operation] = []
        self.buffers: dict[str, Buffer] = {}
        self.node: fx.Node | None = None
        self.provenance = Provenance({})
        #: What the rule that runs says of positions; see ``positions.py``.
        self.positions: list[Positions] = []
        self.known_symbols: set[str] = set()
        #: Of the symbols that have values those that come from outside.
        self.outside: frozenset[str] = frozenset()
        #: The symbols of integers that the program reads out of tensors.
        self.read: set[str] = set()
        #: The floats that the program reads out of tensors, by their symbols.
        self.floats: dict[str, Scalar] = {}
        self._count = 0

    # Sizes.

    def expr(self, value: Any) -> Expr:
        """An int, SymInt or Expr as an expression; UnsupportedGraphError where it is no integer arithmetic."""
        try:
            return self.symbols(value)
        except UnsupportedExpression as error:
            raise UnsupportedGraphError(f"symbolic size {value}: {error}") from error

    def exprs(self, values: Sequence[Any]) -> Sizes:
        """Several sizes at once."""
        return tuple(self.expr(value) for value in values)

    @property
    def out(self) -> torch.Tensor:
        """The fake tensor of the current node's result."""
        assert self.node is not None
        value = self.node.meta["val"]
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{self.node} gives {type(value).__name__}, not one tensor")
        return value

    @property
    def out_sizes(self) -> Sizes:
        """The current node's result shape."""
        return self.exprs(self.out.shape)

    def may_loop(self, device: torch.device) -> bool:
        """Whether kernels may be generated for ``device``."""
        return device_of(device).enabled(self.context.config)

    # Names.

    def new_name(self) -> str:
        """A fresh buffer name."""
        name = f"buf{self._count}"
        self._count += 1
        return name

    def new_buffer(self, layout: Layout, storage: str = "") -> Buffer:
        """A fresh buffer (in place over ``storage`` when given)."""
        name = self.new_name()
        buffer = Buffer(name, layout, storage or name)
        self.buffers[name] = buffer
        return buffer

    def root(self, name: str) -> str:
        """The buffer whose memory ``name`` lies in."""
        while (storage := self.buffers[name].storage) != name:
            name = storage
        return name

    @property
    def origins(self) -> tuple[str, ...]:
        """The names of the node that is lowered, and of those that are computed where it reads them."""
        return () if self.node is None else self.provenance.of(self.node)

    # Lazy values.

    def lazy(
        self, sizes: Sequence[Expr | int], dtype: torch.dtype, device: torch.device, producer: Callable[[Index], Scalar]
    ) -> TensorValue:
        """A tensor given by its elements."""
        return TensorValue([as_expr(s) for s in sizes], dtype, device, producer)

    def pointwise(
        self,
        function: Callable[..., Scalar],
        *operands: TensorValue | Scalar,
        sizes: Sizes,
        dtype: torch.dtype,
        device: torch.device,
        compute: torch.dtype,
        through: torch.dtype | None = None,
    ) -> TensorValue:
        """``function`` of the broadcast operands, each converted to ``compute`` first, the result converted to ``dtype``.

        Tensor operands are converted to ``through`` (their common dtype) before that, as eager does.
        """

        def at(index: Index) -> Scalar:
            parts = []
            for operand in operands:
                if isinstance(operand, TensorValue):
                    part = operand.at(broadcast_index(operand.sizes, sizes, index))
                    part = part if through is None else self.convert(part, through)
                else:
                    part = operand
                parts.append(self.convert(part, compute))
            return self.convert(function(*parts), dtype)

        return self.lazy(sizes, dtype, device, at)

    def convert(self, value: Scalar, dtype: torch.dtype) -> Scalar:
        """``to_dtype``; a constant is converted now; with ``numerics="fast"`` widening undoes an earlier narrowing."""
        if value.dtype is dtype:
            return value
        if value.kind == "constant" and dtype not in NARROW:
            return sc.constant(_fold(value, dtype), dtype)
        if value.op == "to_dtype":
            inner = value.children[0]
            fast = self.context.config.numerics == "fast"
            widened = inner.dtype in HALVES and value.dtype in (torch.float32, torch.float64)
            narrowed = fast and value.dtype.is_floating_point and value.dtype not in EIGHTHS
            if inner.dtype is dtype and (widened or narrowed):
                return inner
        return sc.op("to_dtype", value, dtype=dtype)

    def constant(self, value: Any, dtype: torch.dtype) -> Scalar:
        """A number argument (int, float, bool, Expr, or a run-time Scalar) as a scalar of ``dtype``."""
        if isinstance(value, Scalar):
            return self.convert(value, dtype)
        if isinstance(value, Expr):
            if value.is_int:
                return self.constant(value.args[0], dtype)
            if dtype is torch.int64:
                return sc.index_value(value, torch.int64)
            return self.convert(sc.index_value(value, torch.int64), dtype)
        if dtype in NARROW:
            return self.convert(sc.constant(value, torch.float32), dtype)
        return sc.constant(_wrap(value, dtype), dtype)

    # Stored values.

    def realise(self, value: TensorValue, strides: Sizes | None = None) -> Ref:
        """Store ``value`` in a buffer of its own (once) and return the window on it."""
        if value.ref is not None and strides is None:
            return value.ref
        wanted = strides or value.strides or contiguous_strides(value.sizes)
        layout = Layout(value.sizes, wanted, ZERO, value.dtype, value.device)
        if value.dtype.is_complex and value.ref is not None:
            return self._copied_by_library(value.ref, layout)
        # No element is computed, so nothing that the body checks may be.
        body = self.constant(0, value.dtype) if ZERO in value.sizes else value.body()
        buffer = self.new_buffer(layout)
        self.operations.append(Pointwise(buffer, make_axes(value.sizes), body, self._origins_of(value)))
        ref = Ref.whole(buffer)
        if strides is None:
            value.become(ref)
        return ref

    def _origins_of(self, value: TensorValue) -> tuple[str, ...]:
        node = value.node or self.node
        if node is None:
            return ()
        return self.provenance.of(node) if value.ref is None else (node.name,)

    def copy(self, value: TensorValue, strides: Sizes) -> Ref:
        """A window on memory of its own that holds what ``value`` holds now."""
        layout = Layout(value.sizes, strides, ZERO, value.dtype, value.device)
        return (
            self.realise(value, strides)
            if self.may_compute(layout)
            else self._copied_by_library(self.ref(value), layout)
        )

    def may_compute(self, layout: Layout) -> bool:
        """Whether kernels may fill a tensor like this."""
        return self.holds(layout.dtype, layout.device) and self.may_loop(layout.device)

    def holds(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether kernels on ``device`` read and write memory of ``dtype``."""
        kind = device_of(device)
        if dtype in EIGHTHS:
            return kind.language(self.context.config).eighths and kind.facts(device).eighth_products > 0
        return dtype in kind.dtypes

    def _copied_by_library(self, ref: Ref, layout: Layout) -> Ref:
        """A copy in another layout of what no kernel can hold; equal elements that share a place are copied once."""
        repeated = {
            d
            for d, (size, stride) in enumerate(zip(layout.sizes, layout.strides))
            if stride is ZERO and size is not ONE
        }
        if repeated:
            sizes = tuple(ONE if d in repeated else size for d, size in enumerate(layout.sizes))
            once = self._copied_by_library(
                Ref(ref.buffer, sizes, ref.strides, ref.offset, ref.dtype, ref.device),
                Layout(sizes, layout.strides, ZERO, layout.dtype, layout.device),
            )
            return Ref(once.buffer, layout.sizes, layout.strides, once.offset, once.dtype, once.device)
        room = self.new_buffer(layout)
        made = {"dtype": layout.dtype, "device": layout.device}
        shape = (tuple(layout.sizes), tuple(layout.strides))
        self.operations.append(
            Extern(torch.ops.aten.empty_strided.default, shape, made, (room,), (), (), "layout", self.origins)
        )
        filled = self.new_buffer(layout, storage=room.name)
        self.operations.append(
            Extern(
                torch.ops.aten.copy_.default, (Ref.whole(room), ref), {}, (None,), (filled,), (), "layout", self.origins
            )
        )
        return Ref.whole(filled)

    def is_costly(self, value: TensorValue) -> bool:
        """True when computing an element again for each reader costs more than storing it."""
        body = value.body()
        config = self.context.config
        if len({n.buffer for n in sc.loads(body)}) > config.realize_reads_threshold:
            return True
        if sc.op_count(body) > config.realize_opcount_threshold:
            return True
        device = device_of(value.device)
        return sc.recomputing(body, device.costs) > device.storing

    def reused(self, value: TensorValue) -> TensorValue:
        """``value``, stored if it is costly: for rules that read an operand in several passes."""
        if value.ref is None and value.base is None and self.is_costly(value):
            self.realise(value)
        return value

    def ref(self, value: TensorValue) -> Ref:
        """A window that holds ``value``: the base's for a view (realising the base), else its own buffer."""
        found = value.known_ref()
        if found is not None:
            return found
        if value.base is not None and value.window is not None:
            found = value.window(self.ref(value.base))
            if found is not None:
                value.become(found)
                return found
        return self.realise(value)

    def contiguous(self, value: TensorValue) -> Ref:
        """A row-major window on ``value``, copied where it is not one yet."""
        ref = self.ref(value)
        return ref if ref.layout().is_contiguous else self.realise(value, contiguous_strides(value.sizes))

    def reduce(
        self,
        value: TensorValue,
        dims: Sequence[int],
        kind: str,
        *,
        dtype: torch.dtype,
        compute: torch.dtype | None = None,
        keepdim: bool = False,
        finish: Callable[[Scalar], Scalar] | None = None,
    ) -> TensorValue:
        """Reduce ``dims``; accumulates in ``compute``. ``finish`` maps the accumulated scalar to the element (lazily)."""
        kept = [d for d in range(value.rank) if d not in dims]
        accumulate = compute or compute_dtype(dtype)
        stored = torch.int64 if kind.startswith("arg") else accumulate if finish is not None else dtype
        if self.context.config.batch_invariant and kind == "sum" and accumulate is torch.float32:
            # One sum in the order of its terms errs by more than those of several lanes.
            accumulate = torch.float64
        kept_sizes = tuple(value.sizes[d] for d in kept)
        reduced_sizes = tuple(value.sizes[d] for d in dims)
        reduce_axes = make_axes(reduced_sizes, "r")
        inner = [ZERO if s is ONE else a.symbol for a, s in zip(reduce_axes, reduced_sizes, strict=True)]
        position: list[Expr] = [ZERO] * value.rank
        for d, e in zip(kept, canonical_index(kept_sizes), strict=True):
            position[d] = e
        for d, e in zip(dims, inner, strict=True):
            position[d] = e
        # Of no elements nothing is read: what is the same for all of them would be computed before their loop, and could refuse an index.
        element = sc.constant(0, accumulate) if ZERO in reduced_sizes else value.at(tuple(position))
        body = self.convert(element, accumulate)
        long = [d for d in dims if value.sizes[d] is not ONE]
        total = sum_along(body, position[long[0]], value.sizes[long[0]]) if kind == "sum" and len(long) == 1 else None
        if total is not None:
            result = self._lazily_at(self.convert(total, stored), kept_sizes, stored, value.device)
        else:
            buffer = self.new_buffer(Layout.contiguous(kept_sizes, stored, value.device))
            self.operations.append(Reduction(buffer, make_axes(kept_sizes), reduce_axes, kind, body, self.origins))
            result = TensorValue.of_ref(Ref.whole(buffer))
        if finish is not None:
            source, last = result, finish
            result = self.lazy(kept_sizes, dtype, value.device, lambda i: self.convert(last(source.at(i)), dtype))
        return self.keep_dimensions(result, value.sizes, dims) if keepdim else result

    def _lazily_at(self, body: Scalar, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> TensorValue:
        """A tensor given by its element at the canonical index."""
        axes = canonical_index(sizes)

        def at(index: Index) -> Scalar:
            return sc.substitute(body, {a: i for a, i in zip(axes, index, strict=True) if a is not ZERO})

        return self.lazy(sizes, dtype, device, at)

    def keep_dimensions(self, value: TensorValue, sizes: Sizes, dims: Sequence[int]) -> TensorValue:
        """Put the reduced dimensions back with size one."""
        kept = [d for d in range(len(sizes)) if d not in dims]
        new_sizes = [ONE if d in dims else sizes[d] for d in range(len(sizes))]

        def window(ref: Ref) -> Ref:
            strides = contiguous_strides(new_sizes)
            merged = [ref.strides[kept.index(d)] if d in kept else strides[d] for d in range(len(sizes))]
            return Ref(ref.buffer, new_sizes, merged, ref.offset, ref.dtype, ref.device)

        return TensorValue(
            new_sizes,
            value.dtype,
            value.device,
            lambda index: value.at(tuple(index[d] for d in kept)),
            base=value,
            window=window,
        )

    def looks_at(self, index: TensorValue, limit: Expr, *, wrap: bool = True, sizes: Sizes | None = None) -> None:
        """Note that every element of ``index`` (at the points of ``sizes``) has to be a position below ``limit``."""
        if self.node is None or not self.node.meta.get("backward"):
            self.positions.append(Positions(index, index.sizes if sizes is None else sizes, limit, wrap, self.origins))

    def scan(self, value: TensorValue, dim: int, kind: str, dtype: torch.dtype, compute: torch.dtype) -> TensorValue:
        """An inclusive scan along ``dim``."""
        one_by_one = device_of(value.device).kernels.scans_one_by_one and hint(value.sizes[dim]) < SHORT_ROW
        if one_by_one and dim == value.rank - 1 and sc.has_function(value.body()):
            self.realise(value)  # it has a vector form
        body = self.convert(value.body(), compute)
        if kind == "sum" and body.kind == "constant" and body.args[0] == 0:
            return self.lazy(value.sizes, dtype, value.device, lambda index: self.constant(0, dtype))
        buffer = self.new_buffer(Layout.contiguous(value.sizes, dtype, value.device))
        self.operations.append(Scan(buffer, make_axes(value.sizes), dim, kind, body, self.origins))
        return TensorValue.of_ref(Ref.whole(buffer))

    def scatter(
        self,
        initial: TensorValue,
        sizes: Sizes,
        position: Callable[[Index], Index],
        value: Callable[[Index], Scalar],
        mode: str,
    ) -> TensorValue:
        """A copy of ``initial`` into which, for every point of ``sizes``, ``value`` goes to ``position``."""
        if ZERO in sizes:
            return self.lazy(initial.sizes, initial.dtype, initial.device, initial.at)
        if not device_of(initial.device).kernels.scatters_in_order and torch.are_deterministic_algorithms_enabled():
            raise Decline("deterministic algorithms are asked for: colliding writes come in any order")
        start = Buffer("", Layout.contiguous(initial.sizes, initial.dtype, initial.device))
        base = self.new_buffer(start.layout)
        self.operations.append(Pointwise(base, make_axes(initial.sizes), initial.body(), self.origins))
        out = self.new_buffer(start.layout, storage=base.name)
        axes = make_axes(sizes)
        at = canonical_index(sizes)
        index = out.layout.index(position(at))
        body = self.convert(value(at), initial.dtype)
        self.operations.append(Scatter(out, axes, index, body, mode, self.origins))
        return TensorValue.of_ref(Ref.whole(out))

    # Library calls.

    def library(
        self,
        op: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        val: Any,
        reason: str,
        changed: tuple[Buffer, ...] = (),
        keeps: int | None = None,
    ) -> Any:
        """Call ``op`` on realised tensors; ``val`` is the fake result (tensor, sequence of them, or a symbolic scalar)."""
        self.context.note_library_call(str(op), reason)
        given = tuple(self.argument(a) for a in args)
        named = {k: self.argument(v) for k, v in kwargs.items()}
        results = list(val) if isinstance(val, tuple | list) else [val] if op._schema.returns else []
        outs = tuple(self._out_buffer(item) for item in results)
        binds = self.binds(results)
        checks = self.node is not None and not {"checks", "raises"}.isdisjoint(self.node.meta)
        self.operations.append(Extern(op, given, named, outs, changed, binds, reason, self.origins, keeps, checks))
        values = [None if out is None else TensorValue.of_ref(Ref.whole(out)) for out in outs]
        for n, item in enumerate(results):
            if isinstance(item, torch.SymInt):
                values[n] = self.expr(item)  # type: ignore[call-overload]
        return tuple(values) if isinstance(val, tuple | list) else values[0] if values else None

    def lying_as(self, value: TensorValue, val: torch.Tensor) -> Ref:
        """A window on ``value`` with the strides of ``val``, copied where it lies otherwise. UnsupportedGraphError where a copy is not all of the
        memory that a reader by strides may mean: of a part of a buffer, or of elements that share memory."""
        ref, strides = self.ref(value), self.exprs(val.stride())
        if ref.lies_as(strides):
            return ref
        if ref != Ref.whole(self.buffers[ref.buffer]):
            raise UnsupportedGraphError("a view in strides of a part of what lies otherwise in eager")
        if any(stride is ZERO and size is not ONE for stride, size in zip(strides, value.sizes, strict=True)):
            raise UnsupportedGraphError("a view in strides of elements that share memory")
        return self.copy(value, strides)

    def argument(self, value: Any) -> Any:
        """An argument as a library call takes it: tensors as windows, symbolic ints as expressions."""
        if isinstance(value, TensorValue):
            return self.ref(value)
        if isinstance(value, torch.SymInt):
            return self.expr(value)
        if isinstance(value, Expr):
            return value.args[0] if value.is_int else value
        if isinstance(value, tuple | list):
            return tuple(self.argument(part) for part in value)
        return value

    def require_strided(self, val: torch.Tensor) -> None:
        """UnsupportedGraphError for a tensor that has no strides."""
        if val.layout is not torch.strided:
            raise UnsupportedGraphError(f"a tensor of layout {val.layout}")
        if val.device.type == "meta":
            raise UnsupportedGraphError("a tensor on meta has no data to compute with")

    def _out_buffer(self, val: Any) -> Buffer | None:
        if not isinstance(val, torch.Tensor):
            return None
        self.require_strided(val)
        sizes, strides = self.exprs(val.shape), self.exprs(val.stride())
        if any(stride is ZERO and size is not ONE for size, stride in zip(sizes, strides, strict=True)):
            # Should the call lay it out otherwise, it could not be copied into memory that elements share.
            strides = contiguous_strides(sizes)
        return self.new_buffer(Layout(sizes, strides, ZERO, val.dtype, val.device))

    def binds(self, results: Sequence[Any]) -> tuple[tuple[Expr, int, int | None], ...]:
        """The symbols that a call's fake ``results`` define: each with the result, and the dimension in it."""
        found: list[tuple[Expr, int, int | None]] = []
        for n, item in enumerate(results):
            dims: list[tuple[Any, int | None]] = [(item, None)] if isinstance(item, torch.SymInt) else []
            if isinstance(item, torch.Tensor):
                dims = [(size, d) for d, size in enumerate(item.shape)]
            for size, d in dims:
                e = self.expr(size)
                if e.is_symbol and e.name not in self.known_symbols:
                    self.known_symbols.add(e.name)
                    found.append((e, n, d))
        return tuple(found)

    # Layouts.

    def wanted_strides(self, val: torch.Tensor) -> Sizes | None:
        """The strides of a fake tensor, those of dimensions of one element included; None where it is not dense.

        A buffer has them exactly: they cost nothing there, and library calls and callers see them.
        """
        strides, sizes = self.exprs(val.stride()), self.exprs(val.shape)
        if any(size is ZERO for size in sizes):
            return None
        order = sorted(range(val.dim()), key=lambda d: (-hint(strides[d]), d))

        def agrees(dense: Sizes) -> bool:
            return all(a is b or n is ONE for a, b, n in zip(dense, strides, sizes, strict=True))

        return strides if agrees(contiguous_strides(sizes)) or agrees(strides_in_order(sizes, order)) else None

    def is_given(self, e: Expr) -> bool:
        """Whether an expression is one of numbers that are known before the program runs: the caller's guards hold for them."""
        return all(symbol.name not in self.known_symbols or symbol.name in self.outside for symbol in free_symbols(e))

    def note_symbols(self, *found: Expr) -> None:
        """These symbols have values from here on."""
        for e in found:
            self.known_symbols.update(s.name for s in free_symbols(e))


def _wrap(value: Any, dtype: torch.dtype) -> Any:
    """A number as eager converts it to ``dtype`` (integers wrap)."""
    if dtype is torch.bool or dtype.is_floating_point or isinstance(value, bool):
        return value
    return torch.tensor(int(value), dtype=torch.int64).to(dtype).item()


def _fold(value: Scalar, dtype: torch.dtype) -> Any:
    return torch.tensor(value.args[0], dtype=value.dtype).to(dtype).item()
