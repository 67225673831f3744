"""Graph operations: values to nodes and fakes, results back to values.

In: a torch callable or method and its arguments as values. Out: a node in the graph and a value for its result.
"""

from __future__ import annotations

import enum
import types
from operator import getitem, setitem
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_module, type_name
from ..constant_objects import PLACEMENTS
from ..graph.dimension_marks import address_mark
from ..graph.resizing import SCALES_SIZES
from ..library import functools, operator
from ..refusal import CannotCapture
from ..signals import GraphBreak, TensorsAsNumbers
from ..sources.source import TensorOffset
from ..values.base import MISSING, Value
from ..values.builtins import RealValue
from ..values.constants import ConstantValue, plain
from ..values.mappings import DictValue, DictView
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, SliceValue, TupleValue
from ..values.sets import SetValue
from ..values.subclasses import SubclassValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .messages import tell_of_operation
from .numpy_numbers import as_numbers, refuse_other_numbers, with_index_arrays
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch.fx

    from ..sources.source import Source


_MESHES = "torch.distributed.device_mesh"
_OFFSETS = {"as_strided": 3, "as_strided_": 3, "as_strided_copy": 3, "as_strided_scatter": 4}
"""Where among the arguments stands how far from the beginning of its tensor's memory a view begins."""
_NUMBERS = (int, float, bool)
_DTYPES: dict[Any, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
"""What classes of Python's numbers are as a `dtype=`."""
_FACTS_OF_RESULTS = (
    int, float, complex, type(None), type(NotImplemented), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip
"""What an operation may return beside tensors, and be right of the tensors that the fakes stand for."""
_TENSOR_CLASSES = type(torch.FloatTensor)
_SPECIAL_METHODS: dict[Any, str] = (
    {
        getattr(operator, name): name
        for name in dir(operator)
        if name.startswith("__")
        and name.endswith("__")
        and callable(getattr(operator, name))
        and name not in dir(object)
    }
    | {getattr(operator, name): name for name in ("__lt__", "__le__", "__eq__", "__ne__", "__ge__", "__gt__")}
    | {abs: "__abs__"}
)
"""Operators and the method of the left operand that does them; that of the right one has an `r` in front."""


_OVERLAPS = 1
"""What `torch._debug_has_internal_overlap` answers where it is sure."""


def _has_placement(constant: Any) -> bool:
    if type(constant) is tuple:
        return any(map(_has_placement, constant))
    return class_module(type(constant)) == PLACEMENTS


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in an argument or a result, in order."""
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in _tensors_in(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def _memory(fake: torch.Tensor) -> int:
    return fake.untyped_storage()._cdata


def _layout(fake: torch.Tensor) -> tuple[Any, ...]:
    return (fake.shape, fake.stride(), fake.storage_offset())


def _is_elementwise(function: Any) -> bool:
    """Whether torch tags the op of this name as one that computes each element from those at its place."""
    packet = getattr(torch.ops.aten, getattr(function, "__name__", ""), None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, name).tags for name in packet.overloads())


def _class_as_written(cls: type) -> Any:
    """What stands in a graph's code for a class, for which there is no literal, and means the same to torch."""
    return f"{cls.__module__}.{cls.__name__}" if isinstance(cls, _TENSOR_CLASSES) else _DTYPES.get(cls, cls)


class Recorder(Part):
    """Operations on tensors and symbols that become nodes of the graph."""

    def record(self, kind: str, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Run an operation on fakes, add its node, wrap its result."""
        answer = self.t.overrides.instead(kind, target, args, kwargs)
        if answer is not None:
            return answer
        kwargs = self.t.devices.with_device(target, kwargs)
        if target in (getitem, setitem):
            args = with_index_arrays(self.t, args)
        if target in SCALES_SIZES:
            args, kwargs = self._with_plain_factors(target, args, kwargs)
        nodes, fakes = self.arguments(args)
        keyword = {name: self.argument(value) for name, value in kwargs.items()}
        refuse_other_numbers(self.t, kind, target, fakes, {name: fake for name, (_, fake) in keyword.items()})
        fakes = as_numbers(fakes)
        keyword = {name: (node, as_numbers(fake)) for name, (node, fake) in keyword.items()}
        if _tensors_in(out := keyword.get("out", (None, None))[1]):
            self._check_out(kind, target, out, fakes, {k: fake for k, (_, fake) in keyword.items() if k != "out"})
        self._note_member(kind, target, args)
        before = self._grad_state()
        if not self.t.frames.caught:
            self.t.frames.note_handlers()
        written = self._resizable(kind, target, args)
        named = {k: fake for k, (_, fake) in keyword.items()}
        self._note_start(target, fakes, named)
        try:
            node, result = self.t.graph.call(
                kind, target, nodes, {k: n for k, (n, _) in keyword.items()}, (fakes, named)
            )
        except TensorsAsNumbers as read:
            given = [self._with_numbers(value, read.tensors) for value in args]
            more = {name: self._with_numbers(value, read.tensors) for name, value in kwargs.items()}
            if all(map(operator.is_, (*args, *kwargs.values()), (*given, *more.values()))):
                raise GraphBreak(
                    "data-dependent-value", f"{getattr(target, '__name__', target)} reads the values of a tensor"
                ) from None
            return self.record(kind, target, given, more)
        if self.t.graph.heard or self.t.graph.kernels:
            tell_of_operation(self.t, functools.partial(self.t.graph.run, kind, target, fakes, named))
        if before != self._grad_state():
            raise GraphBreak("unsupported-call", f"{getattr(target, '__name__', target)} changes the grad mode")
        changed = [tensor for tensor, layout in written if _layout(tensor) != layout]
        if changed:
            # What takes a leaf's gradient knows the size that the leaf had when it was made, and lives as long as what was computed of the leaf:
            # of a cut frame's variables that are read no more, not as long as plain Python's.
            raise GraphBreak(
                "external-mutation",
                f"{getattr(target, '__name__', target)} gives a tensor another size",
                whole=any(tensor.requires_grad and tensor.is_leaf for tensor in changed),
            )
        if isinstance(result, torch.Tensor) and result.requires_grad:
            self._note_new_leaf(target, result)
        return self.wrap_result(result, node)

    def _with_numbers(self, value: Value, tensors: Sequence[torch.Tensor]) -> Value:
        """The same argument with the numbers that are in these tensors, of which operations assume something, so that it is checked."""
        value = value.realise(self.t)
        if isinstance(value, TensorValue):
            return value.call_method(self.t, "item", [], {}) if any(value.fake is t for t in tensors) else value
        if not isinstance(value, (TupleValue, ListValue)) or value.cls not in (tuple, list):
            return value
        items = [self._with_numbers(item, tensors) for item in value.items]
        if all(map(operator.is_, items, value.items)):
            return value
        return ListValue(items) if isinstance(value, ListValue) else TupleValue(items, tuple)

    def _note_new_leaf(self, target: Any, result: torch.Tensor) -> None:
        """A new leaf that requires grad is one made with `requires_grad=True`. (A view that was taken without grad may not even be asked
        whether it is one after a write.)"""
        if id(result) not in self.t.wrapper.fake_owner and not result._is_view() and result.is_leaf:
            if self.t.graph.bodies or not self.t.graph.may_make_leaves:
                name = getattr(target, "__name__", target)
                raise GraphBreak("autograd-call", f"{name} makes a tensor that requires grad")
            self.t.graph.has_leaves = True

    def _with_plain_factors(
        self, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> tuple[Sequence[Value], Mapping[str, Value]]:
        """Factors of sizes as numbers: times a symbol, every size would be a constant."""
        place, name = SCALES_SIZES[target]
        if name in kwargs:
            return args, {**kwargs, name: self._plain_factor(kwargs[name])}
        return [self._plain_factor(value) if at == place else value for at, value in enumerate(args)], kwargs

    def _plain_factor(self, value: Value) -> Value:
        value = value.realise(self.t)
        if isinstance(value, SymbolicValue) and isinstance(value.symbol, torch.SymFloat):
            return ConstantValue(value.concrete(self.t))
        if isinstance(value, (TupleValue, ListValue)) and any(isinstance(item, SymbolicValue) for item in value.items):
            return TupleValue([self._plain_factor(item) for item in value.items], tuple)
        return value

    def _check_out(self, kind: str, target: Any, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Eager resizes, converts or refuses an `out=` that is not as the result would be: only one that is stays in the graph.

        It may be an argument of an op that computes element by element, as in place, in none of whose other arguments it lies.
        """
        made = _tensors_in(self.t.graph.run(kind, target, args, kwargs))
        given = _tensors_in(out)
        others = _tensors_in([args, list(kwargs.values())])
        if _is_elementwise(target):
            own = [(_memory(tensor), _layout(tensor)) for tensor in given]
            others = [tensor for tensor in others if (_memory(tensor), _layout(tensor)) not in own]
        taken = {_memory(tensor) for tensor in others}
        fits = len(made) == len(given) and all(
            (ours.dtype, ours.device, ours.layout) == (theirs.dtype, theirs.device, theirs.layout)
            and ours.ndim == theirs.ndim
            and all(self.t.graph.decide(a == b) for a, b in zip(ours.shape, theirs.shape, strict=True))
            and _memory(ours) not in taken
            and torch._debug_has_internal_overlap(ours) != _OVERLAPS
            for ours, theirs in zip(given, made, strict=True)
        )
        if not fits or len({_memory(tensor) for tensor in given}) < len(given):
            name = getattr(target, "__name__", target)
            reason = GraphBreak(
                "unsupported-argument", f"out= of {name} is not as the result is, or is an argument too"
            )
            if any(tensor.requires_grad for tensor in given):
                # Its history keeps the shape that it was made with, and eager's gradients have that one.
                raise CannotCapture(reason, recursive=True)
            raise reason

    def _note_start(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Guard that an argument begins where its memory does, if an offset is given that counts from there: what is compiled knows only
        the argument."""
        name = (target if isinstance(target, str) else getattr(target, "__name__", "")).partition(".")[0]
        place = _OFFSETS.get(name)
        if place is None or (args[place] if place < len(args) else kwargs.get("storage_offset")) is None:
            return
        memory = _memory(args[0] if args else kwargs["self" if "self" in kwargs else "input"])
        for real, fake, source in self.t.wrapper.tensor_inputs:
            if _memory(fake) == memory:
                if real.storage_offset():
                    raise GraphBreak(
                        "unsupported-argument", f"an offset for {name} in memory within which an argument begins"
                    )
                self.t.guards.constant(TensorOffset(source), 0)

    def _note_member(self, kind: str, target: Any, args: Sequence[Value]) -> None:
        """Guard the method of the tensor's class that decides; one that the program put there is no node."""
        if kind == "call_method":
            self.t.members.refuse_patched(args[0], target)
        elif target in _SPECIAL_METHODS:
            special = _SPECIAL_METHODS[target]
            for value, name in zip(args, (special, f"__r{special[2:]}"), strict=False):
                self.t.members.refuse_patched(value, name)
        if type(target) is types.FunctionType:
            self.t.members.note_callees(target)

    def _resizable(self, kind: str, target: Any, args: Sequence[Value]) -> Any:
        """The tensors from outside that the operation may give another size, and how they are laid out before."""
        name = str(target if kind == "call_method" else getattr(target, "__name__", ""))
        if not args or not name.endswith("_") or name.endswith("__"):
            return []
        owner = args[0].realise(self.t)
        return (
            [(owner.fake, _layout(owner.fake))] if isinstance(owner, TensorValue) and owner.source is not None else []
        )

    def _grad_state(self) -> Any:
        return torch.is_grad_enabled()

    def arguments(self, args: Sequence[Value]) -> tuple[list[Any], list[Any]]:
        pairs = [self.argument(value) for value in args]
        return [n for n, _ in pairs], [f for _, f in pairs]

    def decided(self, value: Value) -> Value:
        """The constant for a symbolic truth value whose inputs are known, by a guard."""
        if (
            isinstance(value, SymbolicValue)
            and isinstance(value.symbol, torch.SymBool)
            and value.symbol.node.has_hint()
        ):
            return ConstantValue(value.truth(self.t))
        return value

    def argument(self, value: Value) -> tuple[Any, Any]:
        """What a value is in the graph, and on fakes."""
        value = self.decided(value.realise(self.t))
        if isinstance(value, TensorValue):
            return self.node_of(value), value.fake
        if isinstance(value, SymbolicValue):
            if (
                self.t.graph.bodies
                and not isinstance(value.symbol, torch.SymInt)
                and not self.t.graph.is_here(value.node)
            ):
                number = value.concrete(self.t)  # operators hand tensors and integers to bodies
                return number, number
            return value.node, value.symbol
        if value.is_constant():
            constant = plain(value.constant())
            if _has_placement(constant):
                return self.t.graph.object_constant(constant), constant
            if isinstance(constant, enum.Enum):
                raise GraphBreak("unsupported-call", f"an operation takes {value.describe()}")
            return as_numbers(constant), constant
        if isinstance(value, DictView) or (isinstance(value, ListValue) and value.cls is not list):
            # torch takes lists and tuples alone; what of it is Python may take others, in plain Python.
            raise GraphBreak(
                "unsupported-argument", f"a {type_name(value.python_type())} is an argument of a tensor operation"
            )
        if isinstance(value, (TupleValue, ListValue)):
            if value.items and all(item.is_constant() and _has_placement(item.constant()) for item in value.items):
                placements = tuple(item.constant() for item in value.items)
                return self.t.graph.object_constant(placements), placements
            pairs = [self.argument(item) for item in value.items]
            if isinstance(value, ListValue):
                return [n for n, _ in pairs], [f for _, f in pairs]
            if hasattr(value.cls, "_fields"):
                return tuple(n for n, _ in pairs), value.cls(*(f for _, f in pairs))
            return tuple(n for n, _ in pairs), tuple(f for _, f in pairs)
        if isinstance(value, DictValue):
            entries = {key: self.argument(v) for key, (_, v) in value.items.items()}
            return {k: n for k, (n, _) in entries.items()}, {k: f for k, (_, f) in entries.items()}
        if isinstance(value, SliceValue):
            pairs = [self.argument(part) for part in value.parts]
            return slice(*(n for n, _ in pairs)), slice(*(f for _, f in pairs))
        if isinstance(value, SetValue):
            raise GraphBreak("unsupported-argument", "a set is an argument of a tensor operation")
        if isinstance(value, RealValue) and not isinstance(value, ObjectValue):
            real = value.real()
            if isinstance(real, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
                raise GraphBreak("unsupported-argument", f"{value.describe()} is an argument of a tensor operation")
            return (_class_as_written(real) if isinstance(real, type) else real), real
        if isinstance(value, ObjectValue) and value.storage is not None and value.storage.is_constant():
            return value.storage.constant(), value.storage.constant()
        if isinstance(value, ObjectValue) and value.object is not MISSING and class_module(value.cls) == _MESHES:
            self.t.guards.identity(value.source, value.object)
            return self.t.graph.object_constant(value.object), value.object
        raise GraphBreak("unsupported-argument", f"{value.describe()} is an argument of a tensor operation")

    def node_of(self, value: TensorValue) -> torch.fx.Node:
        """The node of a tensor, lifted to an input on first use."""
        if value.node is None:
            assert value.source is not None
            value.node = self.t.graph.add_input(
                value.source, value.fake, value.tensor, static=value.static, hint=_hint(value.source)
            )
            if address_mark(value.tensor) is not None:
                value.node.meta["stays"] = True
        return value.node

    def wrap_result(self, result: Any, node: torch.fx.Node) -> Value:
        """A value for what an operation returned."""
        if isinstance(result, torch.Tensor):
            owner = self.t.wrapper.fake_owner.get(id(result))
            if owner is not None:
                return owner
            made = TensorValue(result, node)
            self.t.wrapper.fake_owner[id(result)] = made
            return made
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.number(result, lambda: node)
        if isinstance(result, (tuple, list)):
            items = [
                self.wrap_result(item, self.t.graph.derive(getitem, (node, i), item))
                if isinstance(item, (torch.Tensor, tuple, list, torch.SymInt, torch.SymFloat))
                else self.t.wrapper.from_python(item)
                for i, item in enumerate(result)
            ]
            return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
        if isinstance(result, dict):
            return DictValue(
                {
                    k: (self.t.wrapper.from_python(k), self.wrap_result(v, self.t.graph.derive(getitem, (node, k), v)))
                    for k, v in result.items()
                },
                type(result),
            )
        if not isinstance(result, _FACTS_OF_RESULTS):
            # A text or an object that tells of the fakes, not of the tensors.
            raise GraphBreak("unsupported-call", f"{node.target} returned {type_name(type(result))}")
        return self.t.wrapper.from_python(result)

    def number(self, symbol: Any, node: Any) -> Value:
        """A value for a number that may be symbolic; `node` makes the node that computes it."""
        if isinstance(symbol, _NUMBERS):
            return ConstantValue(symbol)
        expression = symbol.node.expr
        if expression.is_number or not expression.free_symbols:
            known = symbol.node.maybe_as_int() if isinstance(symbol, torch.SymInt) else None
            return ConstantValue(known if known is not None else self.t.graph.specialise(symbol))
        return SymbolicValue(symbol, node())

    def has_tensor(self, args: Sequence[Value], kwargs: Mapping[str, Value]) -> bool:
        """Whether a tensor or a symbol is among the arguments, containers looked into."""
        return any(self._holds(value) for value in (*args, *kwargs.values()))

    def _holds(self, value: Value, depth: int = 0) -> bool:
        value = value.realise(self.t)
        if isinstance(value, (TensorValue, SymbolicValue, SubclassValue)):
            return True
        if depth > 4:
            return False
        if isinstance(value, (TupleValue, ListValue)):
            return any(self._holds(item, depth + 1) for item in value.items)
        if isinstance(value, DictValue):
            return value.origin is None and any(self._holds(v, depth + 1) for _, v in value.items.values())
        if isinstance(value, SliceValue):
            return any(self._holds(part, depth + 1) for part in value.parts)
        return False


def _hint(source: Source) -> str:
    text = "".join(
        c if c.isalnum() else "_"
        for c in source.name.replace("__dict__", "")
        .replace("_parameters", "")
        .replace("_buffers", "")
        .replace("_modules", "")
    )
    while "__" in text:
        text = text.replace("__", "_")
    return "in_" + text.strip("_")[:60].lower()
