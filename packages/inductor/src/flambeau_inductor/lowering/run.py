"""FX graph → loop IR, one node at a time.

In: a functional ATen ``GraphModule`` whose nodes carry ``meta["val"]`` (in-place only as trailing ``aten.copy_`` on inputs).
Out: a ``Graph``. Values stay lazy until somebody needs memory: a library call, a reduction, a graph output, or the heuristics in
``_should_store``.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, getitem
from typing import Any

import torch
from attrs import evolve
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._ops import HigherOrderOperator

from .. import effects
from .. import expr as ex
from ..context import CompileContext
from ..devices import device_of, has_backend
from ..errors import FlambeauInductorError, LoweringError, UnsupportedGraphError
from ..expr import ZERO, Expr, SymbolTable, free_symbols
from ..ir import scalar as sc
from ..ir.graph import ConstantInput, Graph, Input, ScalarInput, TensorInput
from ..ir.layout import Buffer, Layout, Ref, strides_in_order
from ..ir.loops import Extern, Operation, Pointwise, ReadItem, make_axes, written
from ..ir.scalar import Scalar
from ..ir.verify import reads_of, verify
from ..log import KERNEL_DECLINED, LOWERED, logger
from ..ops.aten import Trait, Treatment, aten_op
from ..ops.dtypes import EIGHTHS, LOOP_TYPES
from ..origins import origins
from . import RULES_LOADED, symbolic
from .accumulate import add_in_place
from .assumptions import Assumptions
from .bodies import Bodies, Body, Form
from .builder import Builder
from .fallback import call_library, is_workspace
from .host_scalars import HostScalars
from .in_place import changed_copies, write_in_place
from .nested import Site, lower_nested
from .positions import Checks
from .products import aligned_rows
from .provenance import Provenance
from .registry import LEFT, Decline, rule_for
from .results import Results
from .small_products import small_product
from .values import TensorValue, broadcast_index, canonical_index, traced_sizes
from .writes import call_writing

aten = torch.ops.aten
assert RULES_LOADED

#: The integers of a program: 64 bits with a sign.
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
#: What an op may be that kernels do with floats of 8 bits.
_EIGHTHS_ALLOWED = Trait.MOVES | Trait.CONVERTS


def lower_graph(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    context: CompileContext | None = None,
    *,
    library: frozenset[str] = frozenset(),
) -> Graph:
    """Lower ``gm``. ``inputs`` are the example inputs (fakes); placeholders' ``meta["val"]`` is used where there is one.

    ``library`` names the nodes that must be library calls, because no generator can write their kernels.
    Raises UnsupportedGraphError for a graph that neither loops nor library calls can express.
    """
    lowering = _Lowering(gm, inputs, context or CompileContext(), library)
    graph = lowering.run()
    if lowering.context.config.verify:
        verify(graph)
    logger.debug(LOWERED, operations=len(graph.operations), inputs=len(graph.inputs))
    return graph


class _Lowering:
    """``bodies`` are those of the whole artifact; a body has a ``path`` to its attributes, a ``form`` and symbols known ``outside``."""

    def __init__(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        context: CompileContext,
        library: frozenset[str],
        bodies: Bodies | None = None,
        path: str = "",
        form: Form | None = None,
        outside: frozenset[str] = frozenset(),
    ) -> None:
        self.gm = gm
        self.bodies = bodies or Bodies(self._body)
        self.path, self.form = path, form
        self.borrowed: dict[str, Expr] = {}
        self.library = library
        self.context = context
        self.examples = list(inputs)
        self.builder = Builder(context, SymbolTable())
        self.builder.known_symbols.update(outside)
        self.results = None if form is None else Results(self.builder, form)
        self.host_scalars = HostScalars(self.builder)
        self.assumptions = Assumptions()
        self.checks = Checks(self.builder, first=_writes_at_once(gm))
        self.values: dict[fx.Node, Any] = {}
        self.builder.provenance = Provenance(self.values)
        self.inputs: list[Input] = []
        self.constants: list[ConstantInput] = []
        self.copies: list[tuple[fx.Node, fx.Node]] = []
        self.outputs: Any = ()

    def run(self) -> Graph:
        """All nodes, then the write-backs, then the outputs."""
        nodes = list(self.gm.graph.nodes)
        for node in nodes:
            self.builder.node = node
            try:
                self._node(node)
            except FlambeauInductorError as error:
                error.add_context(f"lowering {node.format_node()}")
                error.add_positions(node.meta.get("stack") or ())
                raise
        self.builder.node = None
        outputs = self._finish()
        operations = _live(self.builder.operations, outputs, self.builder)
        if self.checks.keep(operations):
            operations = _live(self.builder.operations, outputs, self.builder)
        operations = add_in_place(self.builder, operations, outputs)
        return Graph(
            tuple(self.inputs),
            tuple(self.constants),
            operations,
            outputs,
            self.builder.buffers,
            *origins(nodes),
            bodies=self.bodies.graphs,
        )

    def _body(self, gm: fx.GraphModule, path: str, form: Form, outside: frozenset[str]) -> Body:
        """A nested graph, lowered on its own."""
        inner = _Lowering(gm, (), self.context, self.library, self.bodies, f"{path}.", form, outside)
        graph = evolve(inner.run(), bodies={})
        given = {symbol.name for symbol in _given(graph)}
        used = {symbol.name: symbol for symbol in inner.builder.symbols.symbols} | inner.borrowed
        symbols = tuple(symbol for name, symbol in used.items() if name in outside and name not in given)
        return Body(path, graph, graph.constants, symbols, tuple(inner.results.orders if inner.results else ()))

    def _constant(self, name: str, tensor: torch.Tensor) -> Buffer:
        """The buffer of a tensor that the graph closes over, known by its attribute name: so it is found again when an artifact is loaded."""
        known = next((c.buffer for c in self.constants if c.buffer.name == name), None)
        if known is not None:
            return known
        b = self.builder
        layout = Layout(
            b.exprs(tensor.shape),
            b.exprs(tensor.stride()),
            b.expr(tensor.storage_offset()),
            tensor.dtype,
            tensor.device,
        )
        buffer = Buffer(name, layout)
        b.buffers[buffer.name] = buffer
        self.constants.append(ConstantInput(buffer, tensor))
        return buffer

    def _site(self, node: fx.Node) -> Site:
        def constant(found: ConstantInput) -> Ref:
            return Ref.whole(self._constant(found.buffer.name, found.tensor))

        def borrow(symbol: Expr) -> None:
            self.borrowed[symbol.name] = symbol

        return Site(self.builder, self.bodies, node, self.path, borrow, constant)

    def _node(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.values[node] = self._placeholder(node)
            self.assumptions.leave_to_caller(self.builder)
        elif node.op == "get_attr":
            self.values[node] = self._attribute(node)
        elif node.op == "output":
            self.outputs = node.args[0]
        elif node.op == "call_function":
            self.values[node] = value = self._call(node)
            self.assumptions.check(self.builder)
            if isinstance(value, TensorValue) and value.node is None:
                value.node = node
        else:
            raise UnsupportedGraphError(f"a {node.op} node; inductor takes functional ATen graphs")

    def _placeholder(self, node: fx.Node) -> Any:
        val = node.meta.get("val")
        if val is None:
            val = self.examples[len(self.inputs)]
        b = self.builder
        if isinstance(val, torch.Tensor):
            layout = Layout(
                b.exprs(val.shape), b.exprs(val.stride()), b.expr(val.storage_offset()), val.dtype, val.device
            )
            order = self.form.input(len(self.inputs)) if self.form else None
            if order is not None:
                layout = evolve(layout, strides=strides_in_order(layout.sizes, order), offset=ZERO)
            b.note_symbols(*layout.sizes, *layout.strides, layout.offset)
            buffer = Buffer(node.name, layout)
            b.buffers[buffer.name] = buffer
            opaque = is_workspace(node) or bool(node.meta.get("opaque", False))
            self.inputs.append(TensorInput(buffer, bool(node.meta.get("static", False)), opaque))
            return TensorValue.of_ref(Ref.whole(buffer))
        if isinstance(val, bool | float | torch.SymFloat | torch.SymBool):
            dtype = torch.bool if isinstance(val, bool | torch.SymBool) else torch.float64
            self.inputs.append(ScalarInput(node.name, None, dtype))
            return sc.parameter(node.name, dtype)
        if isinstance(val, int | torch.SymInt):
            e = b.expr(val)
            b.note_symbols(e)
            self.inputs.append(ScalarInput(node.name, e, torch.int64))
            return e
        if val is None:
            self.inputs.append(ScalarInput(node.name, ZERO, torch.int64))
            return None
        raise UnsupportedGraphError(f"input {node.name} is a {type(val).__name__}")

    def _attribute(self, node: fx.Node) -> Any:
        name = str(node.target)
        found = attrgetter(name)(self.gm)
        if not isinstance(found, torch.Tensor):
            return found
        inline = self.builder.may_loop(found.device)
        if (
            inline
            and found.dim() == 0
            and device_of(found.device).is_host
            and type(found) is torch.Tensor
            and not found.is_complex()
        ):
            value = found.item()
            dtype = found.dtype
            b = self.builder
            return b.lazy((), dtype, found.device, lambda index: b.constant(value, dtype))
        return TensorValue.of_ref(Ref.whole(self._constant(self.path + name, found)))

    def _call(self, node: fx.Node) -> Any:
        target: Any = node.target
        args = [self._argument(a) for a in node.args]
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        if target is getitem:
            result = args[0][args[1]]
            self._settle(node, result)
            return result
        val = node.meta.get("val")
        if symbolic.is_symbolic_call(target, val):
            return symbolic.evaluate_call(self.builder, node, target, args, kwargs)
        if target is auto_functionalized:
            return call_writing(self.builder, node, args[0], kwargs)
        if isinstance(target, HigherOrderOperator):
            return lower_nested(self._site(node), args)
        if not isinstance(target, torch._ops.OpOverload):
            raise UnsupportedGraphError(f"a call of {target}, which is no ATen overload")
        if aten_op(target).treatment is Treatment.IGNORED:
            return None
        if target is aten.copy_.default and node.args[0].op == "placeholder":
            self.copies.append((node.args[0], node.args[1]))
            return args[1]
        if rule_for(target) is not None:
            args = self.host_scalars.replace(args, val)
        result = self._lower(node, target, args, kwargs)
        self._settle(node, result)
        return result

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.values[value]
        if isinstance(value, tuple | list):
            return [self._argument(part) for part in value]
        if isinstance(value, torch.SymInt):
            return self.builder.expr(value)
        if isinstance(value, slice):
            raise UnsupportedGraphError("a slice argument")
        return value

    def _lower(self, node: fx.Node, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        rule = rule_for(target)
        mark = len(self.builder.operations)
        is_librarys = node.name in self.library or not self.context.allows("lowering")
        reason = LEFT if aten_op(target).treatment is Treatment.LIBRARY else "no rule"
        if rule is not None:
            val = node.meta.get("val")
            reason = (
                "eager refuses these types"
                if node.meta.get("refused")
                else "it is there for what it may raise"
                if "checks" in node.meta
                else self._unsupported(target, [*args, *kwargs.values()], val)
                or ("its kernel was refused" if is_librarys else "")
            )
            # A window on memory needs no kernel, whatever the memory holds.
            view = reason.startswith(("complex", "dtype")) and aten_op(target).shares_memory
            if not reason or view:
                try:
                    result = rule(self.builder, *args, **kwargs)
                    if not _has_sizes(result, val):
                        reason = "its kernel would have other sizes than eager's result"
                    elif self._is_window(result, mark) if view else self._allowed(result, mark):
                        self.checks.settle(mark, self.builder.outside)
                        return self._own(target, args, result)
                    else:
                        reason = reason or "kernels are switched off"
                except Decline as decline:
                    reason = str(decline)
                    if reason != LEFT:
                        logger.info(KERNEL_DECLINED, artifact="perf_hints", op=str(target), reason=reason)
                except FlambeauInductorError:
                    raise
                except Exception as error:
                    raise LoweringError(f"{target}: {type(error).__name__}: {error}") from error
                del self.builder.operations[mark:]
                self.builder.positions.clear()
        elif not is_librarys:
            small = small_product(self.builder, node, args, kwargs)
            if small is not None:
                return small
        return call_library(self.builder, node, target, args, kwargs, reason)

    def _unsupported(self, target: Any, args: Sequence[Any], val: Any) -> str | None:
        """Why no loop can do this: the reason, or None."""
        for value in (*_tensors(args), val):
            dtype = getattr(value, "dtype", None)
            if dtype is None:
                continue
            if dtype.is_complex:
                return "complex"
            if dtype not in LOOP_TYPES and not (dtype in EIGHTHS and aten_op(target).traits & _EIGHTHS_ALLOWED):
                return f"dtype {dtype}"
            if not has_backend(value.device):
                return f"device {value.device.type}"
            if not self.builder.holds(dtype, value.device):
                return f"dtype {dtype} on {value.device.type}"
        if len({t.device for t in _tensors(args) if not t.is_number}) > 1:
            return "operands on different devices"
        if isinstance(val, torch.Tensor) and val.layout is not torch.strided:
            return f"layout {val.layout}"
        for value in args:
            if type(value) is int and not _SMALLEST <= value <= _LARGEST:
                raise UnsupportedGraphError(f"{value} has no place among the integers of a program")
            if type(value) is complex:
                return "complex"  # of which kernels take the real part where the result is real
        return None

    def _own(self, target: Any, args: list[Any], result: Any) -> Any:
        """``result``, but not in the memory of an argument that it merely equals: the caller may write to either."""
        if not any(result is argument for argument in args) or not isinstance(result, TensorValue):
            return result
        if aten_op(target).aliases:
            return result
        return self.builder.lazy(result.sizes, result.dtype, result.device, result.at)

    def _allowed(self, result: Any, mark: int) -> bool:
        """Whether kernels may be generated for ``result``; where they may not, only free views of memory are."""
        tensors = _tensors(list(result) if isinstance(result, tuple) else result)
        return all(self.builder.may_loop(t.device) for t in tensors) or self._is_window(result, mark)

    def _is_window(self, result: Any, mark: int) -> bool:
        """Whether a rule gave nothing but views of memory that is there."""
        tensors = _tensors(list(result) if isinstance(result, tuple) else result)
        return len(self.builder.operations) == mark and all(t.known_ref() is not None for t in tensors)

    def _settle(self, node: fx.Node, result: Any) -> None:
        """Remember the layout eager gives, and store what would cost too much to compute once per user."""
        val = node.meta.get("val")
        if not isinstance(result, TensorValue) or not isinstance(val, torch.Tensor):
            return
        if result.ref is None and result.strides is None and result.base is None:
            result.strides = aligned_rows(node, val) or self.builder.wanted_strides(val)
        if result.base is None and self._should_store(node, result):
            self.builder.realise(result)

    def _should_store(self, node: fx.Node, result: TensorValue) -> bool:
        if result.ref is not None:
            return False
        if node.meta.get("stored"):
            # A rewrite's table, which every element of a result looks into.
            return True
        users = sum(not _reads_sizes(user, node) for user in node.users)
        config = self.context.config
        if users <= 1:
            # One reader may still evaluate it many times (a reduction over a broadcast, a window): only bound the size.
            return sc.op_count(result.body()) > 16 * config.realize_opcount_threshold
        return self.builder.is_costly(result) or _joins_arrays(result)

    # The end of the graph.

    def _finish(self) -> tuple[Any, ...]:
        results = self.outputs if isinstance(self.outputs, tuple | list) else (self.outputs,)
        overwritten = {target.name for target, _ in self.copies}
        outputs = [self._result(value) if self.results else self._output(value, overwritten) for value in results]
        renamed = self._write_back(outputs)
        return tuple(_rename(out, renamed) for out in outputs)

    def _result(self, value: Any) -> Any:
        """What a body returns."""
        assert self.results is not None
        found = self.values[value] if isinstance(value, fx.Node) else None
        if isinstance(found, TensorValue):
            return self.results.tensor(found, value.meta["val"])
        return self.results.number(self._output(value, set()))

    def _output(self, value: Any, overwritten: set[str]) -> Any:
        if not isinstance(value, fx.Node):
            return value
        found = self.values[value]
        if isinstance(found, TensorValue):
            val = value.meta.get("val")
            if value.target is aten.copy_.default:
                return Ref.whole(self.builder.buffers[value.args[0].name])
            return self._output_ref(value, found, val, overwritten)
        if isinstance(found, Expr) and isinstance(value.meta.get("val"), torch.SymBool):
            found = sc.index_value(found, torch.bool)  # expressions are integers, and Python gets a truth value
        if isinstance(found, Scalar):
            return found.args[0] if found.kind in ("parameter", "constant") else found
        if isinstance(found, tuple | list):
            raise UnsupportedGraphError("a tuple as a graph output")
        return found

    def _output_ref(self, node: fx.Node, value: TensorValue, val: Any, overwritten: set[str]) -> Ref:
        b = self.builder
        ref = b.ref(value)
        if isinstance(val, torch.Tensor) and ZERO in ref.sizes:
            # There is nothing to lay out; users see the strides all the same.
            return ref.seen_with(b.exprs(val.stride()))
        if ref.buffer in overwritten and node.op != "placeholder":
            # The input's memory is about to change, and this output is a value from before.
            ref = b.realise(value, value.strides or _strides_of(b, val))
        if not isinstance(val, torch.Tensor):
            return ref
        strides = b.exprs(val.stride())
        if not ref.lies_as(strides):
            ref = b.copy(value, strides)
        return ref.seen_with(strides)

    def _write_back(self, outputs: Sequence[Any]) -> dict[str, str]:
        """Emit the trailing ``copy_``s; returns the new name of each overwritten input."""
        b = self.builder
        targets = {target.name for target, _ in self.copies}
        renamed: dict[str, str] = {}
        values: list[TensorValue] = []
        for target, source in self.copies:
            value = self.values[source]
            if _reads_otherwise(value, targets, self._input_layout(target)):
                # It reads memory that another write-back (or this one, elsewhere) changes: take the value first.
                ref = b.realise(value) if value.ref is None else b.realise(value, value.strides or value.ref.strides)
                value = TensorValue.of_ref(ref)
            values.append(value)
        candidates = changed_copies(b)  # once: a step of an optimizer writes back hundreds of tensors
        for (target, source), value in zip(self.copies, values, strict=True):
            b.node = source
            layout = self._input_layout(target)
            storage = renamed.get(target.name, target.name)
            copy = value.ref if storage == target.name else None
            if copy is not None and copy.buffer in candidates and write_in_place(b, storage, copy, outputs):
                renamed[target.name] = copy.buffer
                continue
            buffer = b.new_buffer(layout, storage=storage)
            if not b.may_compute(layout) or source.name in self.library or not self.context.allows("lowering"):
                window = Ref(storage, layout.sizes, layout.strides, ZERO, layout.dtype, layout.device)
                given = (window, b.ref(value))
                b.operations.append(
                    Extern(aten.copy_.default, given, {}, (None,), (buffer,), (), "write-back", b.origins)
                )
                renamed[target.name] = buffer.name
                continue
            body = _broadcast(value, layout)
            b.operations.append(Pointwise(buffer, make_axes(layout.sizes), b.convert(body, layout.dtype), b.origins))
            renamed[target.name] = buffer.name
        b.node = None
        return renamed

    def _input_layout(self, target: fx.Node) -> Layout:
        return self.builder.buffers[target.name].layout


def _reads_sizes(user: fx.Node, node: fx.Node) -> bool:
    """Whether a rule reads nothing but the sizes of ``node``."""
    target = user.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return [n for n, argument in enumerate(user.args) if argument is node] == [aten_op(target).sizes_of]


def _joins_arrays(value: TensorValue) -> bool:
    """True for a sum and the like of several arrays as large as itself: one array to keep and to read again is less than all."""
    body = value.body()
    axes = {i for i in canonical_index(value.sizes) if i is not ZERO}
    whole = {node.buffer for node in sc.walk(body) if node.kind == "load" and axes <= free_symbols(node.index)}
    return len(whole) > 1 and not any(node.kind == "masked" for node in sc.walk(body))


def _broadcast(value: TensorValue, layout: Layout) -> Scalar:
    return value.at(broadcast_index(value.sizes, layout.sizes, canonical_index(layout.sizes)))


def _reads_otherwise(value: TensorValue, targets: set[str], layout: Layout) -> bool:
    """True when the value reads an overwritten input anywhere but at the very element it is written to."""
    body = _broadcast(value, layout)
    own = layout.index(canonical_index(layout.sizes))
    touched = [node for node in sc.loads(body) if node.buffer in targets]
    return (
        any(node.index is not own for node in touched)
        or len({node.buffer for node in touched}) > 1
        or (len(targets) > 1 and bool(touched))
    )


def _writes_at_once(gm: fx.GraphModule) -> bool:
    """Whether the graph writes to inputs in memory that the caller finds as it was where the graph raises."""
    copies = gm.graph.find_nodes(op="call_function", target=aten.copy_.default)
    targets = [node.args[0].meta["val"] for node in copies if node.args[0].op == "placeholder"]
    return any(not device_of(target.device).queues for target in targets)


def _has_sizes(result: Any, val: Any) -> bool:
    """Whether what a rule made has the sizes that tracing saw, as far as they have hints. Sizes of one do not count: tracing is
    wrong about those of some ops on tensors without dimensions."""
    if isinstance(result, tuple | list):
        return not isinstance(val, tuple | list) or all(map(_has_sizes, result, val))
    if not isinstance(result, TensorValue) or not isinstance(val, torch.Tensor):
        return True
    traced = traced_sizes(val)
    return traced is None or [n for n in map(ex.hint, result.sizes) if n != 1] == [n for n in traced if n != 1]


def _strides_of(b: Builder, val: Any) -> tuple[Expr, ...] | None:
    return b.wanted_strides(val) if isinstance(val, torch.Tensor) else None


def _rename(out: Any, renamed: dict[str, str]) -> Any:
    if isinstance(out, Ref) and out.buffer in renamed:
        return Ref(renamed[out.buffer], out.sizes, out.strides, out.offset, out.dtype, out.device)
    return out


def _tensors(value: Any) -> list[TensorValue]:
    if isinstance(value, TensorValue):
        return [value]
    if isinstance(value, tuple | list):
        return [t for part in value for t in _tensors(part)]
    return []


def _live(operations: Sequence[Operation], outputs: tuple[Any, ...], g: Builder) -> tuple[Operation, ...]:
    """Operations whose results somebody uses; assertions, random draws and write-backs to inputs always stay."""
    needed = {ref.buffer for ref in outputs if isinstance(ref, Ref)}
    symbols = {s.name for out in outputs if isinstance(out, Expr) for s in free_symbols(out)}
    kept: list[Operation] = []
    inputs = {name for name in g.buffers if not name.startswith("buf")}
    for operation in reversed(operations):
        outs = written(operation)
        used = any(out.name in needed or g.root(out.name) in inputs for out in outs)
        if not outs or used or _has_effect(operation) or symbols:
            kept.append(operation)
            needed.update(reads_of(operation))
            needed.update(out.storage for out in outs)
    return tuple(reversed(kept))


def _given(graph: Graph) -> set[Expr]:
    """The symbols that a graph's inputs and operations define."""
    found: set[Expr] = set()
    for entry in graph.inputs:
        layout = entry.buffer.layout if isinstance(entry, TensorInput) else None
        found |= {*layout.sizes, *layout.strides} if layout else {e for e in (entry.value,) if e is not None}  # type: ignore[union-attr]
    for operation in graph.operations:
        if isinstance(operation, Extern):
            found |= {symbol for symbol, _, _ in operation.binds if isinstance(symbol, Expr)}
        elif isinstance(operation, ReadItem) and operation.symbol is not None:
            found.add(operation.symbol)
    return {e for e in found if e.is_symbol}


def _has_effect(operation: Operation) -> bool:
    if not isinstance(operation, Extern):
        return effects.checks(operation)
    return bool(operation.binds) or operation.checks or effects.has_effect(operation.op)
