"""Specs become the native guard tree.

In: guard specs and the code object of the frame they are about. Out: a `GuardTree`, and for `RunGraph` the slots where the graph's
inputs lie after a check. Sources become accessor nodes shared by all guards below them, cheap guards go first::

    tree, slots = build(specs, code, inputs=(Local("x"),))
    tree.check({"x": torch.ones(3)}, globals())     # -1, or the index in `specs` of the guard that fails
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from types import CodeType
from typing import Any

from torch.autograd import forward_ad

from ..bytecode.encode import argument_names
from ..errors import GuardBuildError
from ..native import _C
from ..sources import source as src
from . import spec as gs
from .shape_program import UnsupportedExpression, compile_expression


class Access(IntEnum):
    """Kinds of nodes; the order is that of `enum class Access` in csrc/guards/node.hpp."""

    LOCAL = 0
    FREE_VARIABLE = 1
    NAMED_LOCAL = 2
    GLOBAL = 3
    BUILTIN = 4
    PINNED = 5
    NOTHING = 6
    ATTRIBUTE = 7
    INSTANCE_DICT = 8
    SEQUENCE_ITEM = 9
    DICT_ITEM = 10
    ITEM = 11
    DICT_KEY_AT = 12
    TYPE_OF = 13
    CELL_CONTENTS = 14
    TENSOR_SIZE = 15
    TENSOR_STRIDE = 16
    TENSOR_OFFSET = 17
    CALL_RESULT = 18
    STORED_ITEM = 19
    COMPUTED = 20


class LeafKind(IntEnum):
    """Kinds of leaves; the order is that of `enum class LeafKind`."""

    TYPE_IS = 0
    IDENTITY_IS = 1
    CONSTANT_IS = 2
    NOT_CONSTANT = 3
    TENSOR_MATCH = 4
    SEQUENCE_LENGTH = 5
    DICT_KEYS = 6
    CONTAINS = 7
    SET_EQUALS = 8
    HAS_ATTRIBUTE = 9
    FUNCTION_IS = 10
    GLOBAL_STATE = 11
    PYTHON_CHECK = 12
    CLASS_MEMBERS = 13
    MODULE_BINDINGS = 14
    NUMBER_IS = 15


class RelationKind(IntEnum):
    """Kinds of relations; the order is that of `enum class RelationKind`."""

    ALIAS = 0
    NO_ALIAS = 1
    SHAPE = 2
    DISTINCT_STORAGE = 3


_TENSOR_STEPS = {
    src.TensorSize: Access.TENSOR_SIZE,
    src.TensorStride: Access.TENSOR_STRIDE,
    src.TensorOffset: Access.TENSOR_OFFSET,
}


def build(
    specs: Sequence[gs.GuardSpec], code: CodeType | None = None, inputs: Sequence[src.Source] = ()
) -> tuple[_C.GuardTree, tuple[int, ...]]:
    """Build the tree. `code` places locals among the frame's parameters; without it only `tree.check` works.

    Raises GuardBuildError for a spec or source the tree cannot express.
    """
    builder = _Builder(tuple(specs), code)
    for index, spec in enumerate(builder.specs):
        builder.add(index, spec)
    slots = tuple(builder.capture(source, len(builder.specs)) for source in inputs)
    return builder.tree, slots


class _Builder:
    def __init__(self, specs: tuple[gs.GuardSpec, ...], code: CodeType | None) -> None:
        self.specs = specs
        self.tree = _C.GuardTree(specs)
        self.nodes: dict[src.Source, int] = {}
        self.places = _places(code)
        self.nothing: int | None = None

    def add(self, index: int, spec: gs.GuardSpec) -> None:
        match spec:
            case gs.GlobalState():
                self.tree.leaf(self.no_value(index), LeafKind.GLOBAL_STATE, _state_payload(spec), index)
            case gs.ModuleBindings(namespace=namespace, bound=bound):
                self.tree.leaf(self.no_value(index), LeafKind.MODULE_BINDINGS, (namespace, bound), index)
            case gs.AliasOf(source=source, other=other):
                pair = (self.capture(source, index), self.capture(other, index))
                self.tree.relation(RelationKind.ALIAS, pair, index)
            case gs.NoAlias(sources=sources):
                slots = tuple(self.capture(source, index) for source in sources)
                self.tree.relation(RelationKind.NO_ALIAS, slots, index)
            case gs.DistinctStorage(written=written, read=read):
                slots = tuple(self.capture(source, index) for source in (*written, *read))
                self.tree.relation(RelationKind.DISTINCT_STORAGE, (len(written), *slots), index)
            case gs.ShapeExpression():
                self.add_shape(index, spec)
            case gs.SourceGuard(source=source):
                make = _PAYLOADS.get(type(spec))
                if make is None:
                    raise GuardBuildError(f"no leaf for {type(spec).__name__}")
                kind, payload = make(spec)
                self.tree.leaf(self.node(source, index), kind, payload, index)
            case _:
                raise GuardBuildError(f"unknown guard {type(spec).__name__}")

    def no_value(self, index: int) -> int:
        """The node of guards that look at no value of the frame."""
        if self.nothing is None:
            self.nothing = self.tree.node(-1, Access.NOTHING, None, 0, index)
        return self.nothing

    def add_shape(self, index: int, spec: gs.ShapeExpression) -> None:
        symbols: list[tuple[int, int, int]] = []
        for _, source in spec.symbols:
            access = _TENSOR_STEPS.get(type(source))
            if access is None:
                symbols.append((self.capture(source, index), Access.NOTHING, 0))
            else:
                assert isinstance(source, src.Step)
                symbols.append((self.capture(source.base, index), access, getattr(source, "dim", 0)))
        try:
            program = compile_expression(spec.expression, [name for name, _ in spec.symbols])
        except UnsupportedExpression as error:
            raise GuardBuildError(f"no native form for the shape guard {spec.expression!r}: {error}") from error
        self.tree.relation(RelationKind.SHAPE, (tuple(symbols), program), index)

    def capture(self, source: src.Source, index: int) -> int:
        return self.tree.capture(self.node(source, index))

    def node(self, source: src.Source, index: int) -> int:
        known = self.nodes.get(source)
        if known is not None:
            return known
        parent = self.node(source.base, index) if isinstance(source, src.Step) else -1
        access, key, number = self.accessor(source)
        made = self.nodes[source] = self.tree.node(parent, access, key, number, index)
        return made

    def accessor(self, source: src.Source) -> tuple[Access, Any, int]:
        """The node's kind, key and number."""
        match source:
            case src.Local(variable=variable):
                access, number = self.places.get(variable, (Access.NAMED_LOCAL, 0))
                return access, variable, number
            case src.Global(variable=variable):
                return Access.GLOBAL, variable, 0
            case src.Builtin(variable=variable):
                return Access.BUILTIN, variable, 0
            case src.Pinned(value=value):
                return Access.PINNED, value, 0
            case src.Attribute(attribute=attribute):
                return Access.ATTRIBUTE, attribute, 0
            case src.InstanceDict():
                return Access.INSTANCE_DICT, None, 0
            case src.Item(key=key):
                return _item_accessor(key)
            case src.StoredItem(key=key):
                return Access.STORED_ITEM, key, 0
            case src.DictKeyAt(index=index):
                return Access.DICT_KEY_AT, None, index
            case src.TypeOf():
                return Access.TYPE_OF, None, 0
            case src.CellContents():
                return Access.CELL_CONTENTS, None, 0
            case src.TensorSize(dim=dim) | src.TensorStride(dim=dim):
                return _TENSOR_STEPS[type(source)], None, dim
            case src.TensorOffset():
                return Access.TENSOR_OFFSET, None, 0
            case src.CallResult():
                return Access.CALL_RESULT, None, 0
            case src.Computed(function=function):
                return Access.COMPUTED, function, 0
        raise GuardBuildError(f"unknown source {type(source).__name__}")


def _item_accessor(key: Any) -> tuple[Access, Any, int]:
    # An int key may index a sequence or look up a dict: the general subscript decides, unless it fits an exact sequence.
    if type(key) is int and -(2**31) <= key < 2**31:
        return Access.SEQUENCE_ITEM, key, key
    try:
        hash(key)
    except TypeError:
        return Access.ITEM, key, 0
    return Access.DICT_ITEM, key, 0


def _places(code: CodeType | None) -> dict[str, tuple[Access, int]]:
    """Where a frame that has not started keeps each variable that is set."""
    if code is None:
        return {}
    places = {name: (Access.LOCAL, index) for index, name in enumerate(argument_names(code))}
    places.update({name: (Access.FREE_VARIABLE, index) for index, name in enumerate(code.co_freevars)})
    return places


def _identity_payload(spec: gs.IdentityIs) -> Any:
    """The object, or a weak reference in a tuple."""
    return (spec.reference,) if spec.is_weak else spec.expected


def _tensor_payload(spec: gs.TensorMatch) -> Any:
    strides = None if spec.strides is None else tuple(-1 if s is None else s for s in spec.strides)
    sizes = tuple(-1 if s is None else s for s in spec.sizes)
    return (spec.cls, spec.dtype, spec.device, spec.requires_grad, spec.dispatch_keys, sizes, strides, spec.behind)


def _state_payload(spec: gs.GlobalState) -> Any:
    return (
        spec.grad_enabled,
        spec.inference_mode,
        spec.autocast,
        spec.autocast_cache,
        spec.deterministic,
        spec.deterministic_warn_only,
        spec.default_dtype,
        spec.function_modes,
        spec.dispatch_modes,
        spec.function_transform,
        spec.torch_function_enabled,
        sum(allowed << place for place, allowed in enumerate(spec.attention)),
        vars(forward_ad),
        spec.dual_level,
        -1 if spec.tf32_products is None else int(spec.tf32_products),
        spec.recorded,
    )


_Maker = Callable[[Any], tuple[LeafKind, Any]]
_PAYLOADS: dict[type[gs.GuardSpec], _Maker] = {
    gs.TypeIs: lambda s: (LeafKind.TYPE_IS, s.cls),
    gs.NumberIs: lambda s: (LeafKind.NUMBER_IS, (s.cls, s.limit)),
    gs.IdentityIs: lambda s: (LeafKind.IDENTITY_IS, _identity_payload(s)),
    gs.ConstantIs: lambda s: (LeafKind.CONSTANT_IS, s.value),
    gs.NotConstant: lambda s: (LeafKind.NOT_CONSTANT, s.value),
    gs.TensorMatch: lambda s: (LeafKind.TENSOR_MATCH, _tensor_payload(s)),
    gs.SequenceLength: lambda s: (LeafKind.SEQUENCE_LENGTH, s.length),
    gs.DictKeys: lambda s: (LeafKind.DICT_KEYS, tuple(s.keys)),
    gs.Contains: lambda s: (LeafKind.CONTAINS, (s.key, s.present)),
    gs.SetEquals: lambda s: (LeafKind.SET_EQUALS, s.members),
    gs.HasAttribute: lambda s: (LeafKind.HAS_ATTRIBUTE, (s.attribute, s.present)),
    gs.FunctionIs: lambda s: (LeafKind.FUNCTION_IS, (s.code, s.namespace)),
    gs.ClassMembers: lambda s: (
        LeafKind.CLASS_MEMBERS,
        tuple((m.name, m.after, m.owner, m.reference) for m in s.members),
    ),
    gs.PythonCheck: lambda s: (LeafKind.PYTHON_CHECK, s.predicate),
}
