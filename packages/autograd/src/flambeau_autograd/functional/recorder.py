"""The dispatch mode that writes down one functional ATen graph.

In: ATen calls on fake tensors, as they arrive below autograd. Out: nodes in `self.graph`, every one functional: views
keep their alias sets, in-place and out= calls are recorded as their functional twins and the new contents become the
tensor's value (and, through the chain of views, that of everything that shares its storage).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import getitem
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..errors import InternalError, UnsupportedGraph, UnsupportedMutation
from .mutations import Mutations
from .opaque import record_opaque_write, tensors_in
from .ops import Kind, indexes_nothing, kind_of, short_name
from .origins import Origins
from .overlap import lies_within
from .predictions import corrected, is_plain
from .refusals import refused
from .scatter import is_absolute, is_strided
from .special import SPECIAL
from .symbols import SymbolNodes
from .values import Cell, Step, Value

aten = torch.ops.aten
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Recorder(TorchDispatchMode):
    """One graph under construction.

    `table` maps overloads to decompositions. `origins`, `checkpoint` and `backward` are stamped on the nodes recorded
    while they are set. Raises `UnsupportedGraph` for calls that have no functional meaning.
    """

    def __init__(self, fake_mode: FakeTensorMode, table: dict[OpOverload, Callable[..., Any]]) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.table = table
        self.graph = Graph()
        self.symbols = SymbolNodes(self.graph)
        self.constants: dict[str, torch.Tensor | GraphModule] = {}
        #: Bodies of higher-order operators that were traced, for this graph and those inside it.
        self.bodies: dict[Any, Any] = {}
        self.origins = Origins()
        self.checkpoint: int | None = None
        self.backward = False
        #: Whether an input needs a gradient.
        self.differentiates = False
        #: Memory that a gradient's formula reads without a check for writes: the formula's class, and how often it had been written by then.
        self.unchecked: list[tuple[str, Cell, int]] = []
        #: Follows the sums that the engine makes, while it differentiates.
        self.sums: Any = None
        self.mutations = Mutations(self)
        self._rules: dict[Any, Rule] = {}
        self._open: set[OpOverload] = set()
        self._kind_rules: dict[Kind, Rule] = {
            Kind.PURE: self._pure,
            Kind.VIEW: self._view,
            Kind.IDENTITY: self._identity,
            Kind.WRITE: self.mutations.by_call,
            Kind.METADATA_WRITE: self.mutations.of_metadata,
            Kind.OPAQUE_WRITE: lambda func, args, kwargs: record_opaque_write(self, func, args, kwargs),
            Kind.QUERY: self._query,
            Kind.COMPOSITE: self._composite,
            Kind.REFUSED: self._refused,
        }

    # -- the mode ------------------------------------------------------------------------------------------------

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asks torch not to wrap our dispatch function in a guard against another compiler's frame hook."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = self._rules.get(func)
        if rule is None:
            rule = self._rules[func] = self._choose(func)
        return rule(func, args, kwargs or {})

    def call(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Run and record one op from inside a rule."""
        return self.__torch_dispatch__(func, (), args, kwargs)

    def _choose(self, func: Any) -> Rule:
        if isinstance(func, HigherOrderOperator):
            raise UnsupportedGraph(f"the higher-order op {func} is not traced through")
        special = SPECIAL.get(func)
        if special is not None:
            return lambda func, args, kwargs: special(self, func, args, kwargs)
        return self._general(func)

    def without_special(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Run and record one op by the general rules, from inside its special one."""
        return self._general(func)(func, args, kwargs)

    def _general(self, func: Any) -> Rule:
        kind = kind_of(func)
        if func in self.table and kind in (Kind.PURE, Kind.COMPOSITE, Kind.VIEW):
            return self._decompose
        if short_name(func) == "device" and kind is Kind.QUERY:
            return lambda func, args, kwargs: args[0].fake_device
        return self._kind_rules[kind]

    # -- values --------------------------------------------------------------------------------------------------

    def bind_input(self, tensor: torch.Tensor, node: Node, index: int) -> Cell:
        """Input `index` of the graph: its own cell, so that writes to it can be told."""
        cell = Cell(node, tensor, index)
        tensor._flambeau = Value(self, cell, (), node, 0)
        self.symbols.bind_tensor(tensor, node)
        return cell

    def value_of(self, tensor: torch.Tensor) -> Value:
        """The value behind a traced tensor; a tensor from outside becomes a constant of the graph."""
        value = getattr(tensor, "_flambeau", None)
        if value is None or value.owner is not self:
            raise InternalError(f"a tensor of type {type(tensor).__name__} reached the trace without a history")
        return value

    def node_of(self, tensor: torch.Tensor) -> Node:
        """The node that holds the tensor's contents now."""
        value = self.value_of(tensor)
        cell = value.cell
        if value.version != cell.version:
            value.node, value.version = self.from_base(value), cell.version
        return value.node

    def from_base(self, value: Value, strided: bool = False) -> Node:
        """The chain of views taken of the base; `strided`: one more that is told in strides follows."""
        cell, node = value.cell, value.cell.base
        if strided or any(is_strided(step.op) for step in value.chain):
            now, before = node.meta["val"], cell.meta
            if now.stride() != before.stride() or now.storage_offset() != before.storage_offset():
                raise UnsupportedMutation(
                    "a view in strides is taken of a tensor whose memory a write has laid out anew"
                )
        self.refuse_unknown_start(value)
        for step in value.chain:
            if is_strided(step.op):
                self.mutations.refuse_beside(step.source, step.out)
            node = self.replay(step, node)
        return node

    def refuse_unknown_start(self, value: Value) -> None:
        if value.cell.input_index >= 0 and any(is_absolute(step) for step in value.chain):
            raise UnsupportedMutation(
                "a written input has a view at an offset of its storage; where the input starts is not known"
            )

    def laid_out(self, tensor: torch.Tensor) -> Node:
        """The node of the contents, in the tensor's own strides: a view that was written is taken of its base again."""
        value, node = self.value_of(tensor), self.node_of(tensor)
        if value.chain and node.meta["val"] is not tensor and node.meta["val"].stride() != tensor.stride():
            node = value.node = self.from_base(value)
        return node

    def replay(self, step: Step, source: Node) -> Node:
        node = self.add_node(step.op, (source, *self.operands(step.args)), self.operands(step.kwargs), step.out)
        if step.item is not None:
            node = self.add_node(getitem, (node, step.item), {}, step.result)
        return node

    def tensor_at(self, node: Node) -> torch.Tensor:
        """A fake tensor whose contents are `node` whatever happens to other tensors."""
        fake = node.meta["val"]
        value = getattr(fake, "_flambeau", None)
        if value is not None and value.node is node and not value.chain and value.version == value.cell.version:
            return fake
        with self.fake_mode, torch.no_grad():
            fake = torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=fake.device)
        fake._flambeau = Value(self, Cell(node, fake), (), node, 0)
        return fake

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real tensor that the graph refers to: a `get_attr` node, and a fake tensor that stands for it."""
        name = f"_constant{len(self.constants)}"
        self.constants[name] = tensor
        with _disable_current_modes():
            fake = self.fake_mode.from_tensor(tensor.detach(), static_shapes=True)
        node = self.graph.create_node("get_attr", name)
        self._stamp(node, fake)
        fake._flambeau = Value(self, Cell(node, fake), (), node, 0)
        return fake

    def operands(self, value: Any) -> Any:
        """Call arguments with tensors and symbolic numbers replaced by nodes."""
        if isinstance(value, torch.Tensor):
            return self.node_of(value)
        if isinstance(value, (list, tuple)):
            mapped = [self.operands(v) for v in value]
            return tuple(mapped) if isinstance(value, tuple) else mapped
        if isinstance(value, dict):
            return {k: self.operands(v) for k, v in value.items()}
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.symbols.of(value)
        return value

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _stamp(self, node: Node, val: Any) -> None:
        meta = node.meta
        meta["val"] = val
        origin = self.origins.of_gradient() if self.backward else self.origins.now
        meta["stack"] = origin.stack
        if origin.module:
            meta["module"] = origin.module
        if self.backward:
            meta["backward"] = True
        elif self.checkpoint is not None:
            meta["checkpoint"] = self.checkpoint

    def add_node(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any) -> Node:
        """Write down one call of the graph; `val` is its value on fakes."""
        node = self.graph.create_node("call_function", target, args, kwargs)
        self._stamp(node, val)
        return node

    def fresh(self, tensor: torch.Tensor, node: Node) -> None:
        """`tensor` is what `node` gives, in memory of its own."""
        if tensor.layout is not torch.strided:
            raise UnsupportedGraph(f"a tensor of layout {tensor.layout}")
        if tensor.requires_grad:
            # Some of torch's formulas in Python make their result like the argument; whether it has a history autograd decides, above.
            tensor.requires_grad_(False)
        tensor._flambeau = Value(self, Cell(node, tensor), (), node, 0)

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run on fakes and write down a call whose results are new tensors."""
        args, kwargs = self._adopt(args, kwargs)
        with self.python_kernels():
            out = corrected(func, args, kwargs, func(*args, **kwargs))
        node = self.add_node(func, self.operands(args), self.operands(kwargs), out)
        if refused(func, args, kwargs):
            node.meta["refused"] = True
        if isinstance(out, torch.Tensor):
            self.fresh(out, node)
            self.symbols.bind_result(out, node)
        elif isinstance(out, (list, tuple)):
            if any(isinstance(item, (list, tuple)) for item in out):
                raise UnsupportedGraph(f"{func} returns lists of tensors")
            for i, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    self.fresh(item, self.add_node(getitem, (node, i), {}, item))
                    self.symbols.bind_result(item, item._flambeau.node)
        elif isinstance(out, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.symbols.bind(out, node)
        return out

    def python_kernels(self) -> AbstractContextManager[Any]:
        """Where sizes are symbolic, torch's decompositions in Python predict: some kernels in C++ read sizes as numbers (2.11: negative padding)."""
        shapes = self.fake_mode.shape_env
        return enable_python_dispatcher() if shapes is not None and shapes.var_to_range else nullcontext()

    def _adopt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Real tensors among the arguments become constants."""
        if all(isinstance(t, FakeTensor) for t in tensors_in((args, kwargs))):
            return args, kwargs
        return self.adopt_tree(args), self.adopt_tree(kwargs)

    def adopt_tree(self, value: Any) -> Any:
        """`value` with constants for the real tensors in it."""
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return self.constant(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.adopt_tree(v) for v in value)
        if isinstance(value, dict):
            return {k: self.adopt_tree(v) for k, v in value.items()}
        return value

    # -- rules ---------------------------------------------------------------------------------------------------

    def _pure(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.record(func, args, kwargs)

    def _query(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)

    def _refused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise UnsupportedMutation(f"{func} changes a tensor's storage or quantises it", "it runs in eager")

    def _identity(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        if not isinstance(source, FakeTensor):
            if not short_name(func).startswith("lift"):
                return self.constant(source)
            with _disable_current_modes():
                source = source.detach().clone()
            return self.record(aten.clone.default, (self.constant(source),), {})
        out = func(*args, **kwargs)
        if out is not source:
            value = self.value_of(source)
            out._flambeau = Value(self, value.cell, value.chain, value.node, value.version)
            out._is_detached = short_name(func) == "detach" or getattr(source, "_is_detached", False)
        return out

    def _view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(args[0], complex):
            # A number of the program that autograd's formulas take for a tensor, and conjugate.
            with _disable_current_modes():
                args = (torch.tensor(args[0], dtype=torch.complex128), *args[1:])
        args, kwargs = self._adopt(args, kwargs)
        out = corrected(func, args, kwargs, func(*args, **kwargs))
        source = args[0]
        value = self.value_of(source)
        if is_strided(func):
            self.mutations.refuse_beside(source, out)
            value.cell.looked_beside |= bool(value.chain) and not lies_within(out, source)
            if value.cell.version:
                # What a write left as the contents need not lie in memory as the tensor does.
                value.node, value.version = self.from_base(value, strided=True), value.cell.version
        node = self.add_node(func, self.operands(args), self.operands(kwargs), out)
        if isinstance(out, torch.Tensor):
            if out is source:
                return out
            step = Step(func, args[1:], kwargs, None, source, out)
            out._flambeau = Value(self, value.cell, (*value.chain, step), node, value.cell.version)
            self.symbols.bind_result(out, node)
            return out
        for i, item in enumerate(out):
            step = Step(func, args[1:], kwargs, i, source, out)
            getter = self.add_node(getitem, (node, i), {}, item)
            item._flambeau = Value(self, value.cell, (*value.chain, step), getter, value.cell.version)
        return out

    def _composite(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            out = func.decompose(*args, **kwargs)
        if out is NotImplemented:
            return self.record(func, args, kwargs)
        return self.laid_out_as(out, corrected(func, args, kwargs, out))

    def _decompose(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = self._adopt(args, kwargs)
        if refused(func, args, kwargs) or indexes_nothing(func, args):
            # A formula knows nothing of types that the kernel refuses, and looks at indices where it does not.
            return self.record(func, args, kwargs)
        if func in self._open or any(type(part) is complex for part in (*args, *kwargs.values())):
            # A decomposition that comes back to its own op (by a write through a view, say) has not made it simpler. And where the result is real,
            # kernels take the real part of a number, formulas do not.
            return self._kind_rules[kind_of(func)](func, args, kwargs)
        self._open.add(func)
        try:
            with self:
                out = self.table[func](*args, **kwargs)
        except (RuntimeError, ValueError, TypeError, ArithmeticError):
            if kind_of(func) is not Kind.PURE or not _is_torchs(self.table[func]):
                raise
            # A formula of torch may refuse what the kernel takes (complex numbers, factors of other types); the op itself raises where that does too.
            return self.record(func, args, kwargs)
        finally:
            self._open.discard(func)
        if out is NotImplemented:
            return self._kind_rules[kind_of(func)](func, args, kwargs)
        if not is_plain((args, kwargs, out)):
            with self.python_kernels():
                out = self.laid_out_as(out, corrected(func, args, kwargs, func(*args, **kwargs)))
        if kind_of(func) is Kind.COMPOSITE or kind_of(func) is Kind.VIEW:
            return out
        cells = {self.value_of(t).cell for t in tensors_in((args, kwargs))}
        return self._separate(out, cells)

    def laid_out_as(self, out: Any, shown: Any) -> Any:
        """What a formula gave, copied where the op's kernel lays a result out otherwise than the formula did."""
        if isinstance(out, torch.Tensor):
            differs = out.shape == shown.shape and out.stride() != shown.stride()
            return self.with_strides(out, shown.stride()) if differs else out
        if out is shown or not isinstance(out, (list, tuple)):
            return out
        laid = map(self.laid_out_as, out, shown)
        return list(laid) if isinstance(out, list) else tuple(laid)

    def _separate(self, out: Any, cells: set[Cell]) -> Any:
        """Autograd expects new tensors from an op: one that a decomposition passed through is copied, a view it took is none for others."""
        if isinstance(out, torch.Tensor):
            if self.value_of(out).cell in cells:
                return self.record(aten.clone.default, (out,), {})
            return self.on_its_own(out) if out._is_view() else out
        if isinstance(out, (list, tuple)):
            return (
                [self._separate(o, cells) for o in out]
                if isinstance(out, list)
                else tuple(self._separate(o, cells) for o in out)
            )
        return out

    def on_its_own(self, view: torch.Tensor) -> torch.Tensor:
        """The same value in a fake that autograd does not take for a view."""
        with self.fake_mode, torch.no_grad():
            fresh = torch.empty_strided(view.size(), view.stride(), dtype=view.dtype, device=view.device)
        value = self.value_of(view)
        fresh._flambeau = Value(self, value.cell, value.chain, value.node, value.version)
        return fresh

    def with_strides(self, tensor: torch.Tensor, strides: Any) -> Any:
        """A copy that lies so."""
        room = self.call(
            aten.empty_strided.default, list(tensor.shape), list(strides), dtype=tensor.dtype, device=tensor.device
        )
        return self.call(aten.copy.default, room, tensor)


def _is_torchs(formula: Any) -> bool:
    return str(getattr(formula, "__module__", "")).startswith("torch.")
