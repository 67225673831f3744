"""Guard specs: what a compiled entry assumes, as frozen records.

In: a `Source` (or several) and what was seen while tracing. Out: plain data that `guards/build.py` turns into the native tree,
`guards/check.py` checks in Python and `guards/explain.py` puts into words. Every spec carries the user's position that made the
assumption, as `(file, line, function)`, or None.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch
from attrs import field, frozen

from ..library import weakref
from ..sources.source import Source

Position = tuple[str, int, str]


@frozen(kw_only=True)
class GuardSpec:
    """Abstract. `position` is the user's `(file, line, function)` that caused the guard."""

    position: Position | None = field(default=None, eq=False)


@frozen
class SourceGuard(GuardSpec):
    """Abstract. A guard about one source."""

    source: Source


@frozen
class TypeIs(SourceGuard):
    """`type(value) is cls`."""

    cls: type


@frozen
class NumberIs(SourceGuard):
    """`type(value) is cls and abs(value) <= limit`: of a float, that it is a finite number."""

    cls: type[int] | type[float]
    limit: float


class _Strong:
    """Holds what cannot be held weakly; called like a weak reference."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


def _weakly(expected: Any) -> Callable[[], Any]:
    # A guard must not keep a user's model alive, nor the classes and functions of a module that is reloaded.
    try:
        return weakref.ref(expected)
    except TypeError:
        return _Strong(expected)


@frozen
class IdentityIs(SourceGuard):
    """`value is expected`; held weakly where the object allows it, and a dead object never matches."""

    reference: Callable[[], Any] = field(alias="expected", converter=_weakly, eq=lambda reference: id(reference()))

    @property
    def expected(self) -> Any:
        """The object, or None once it is gone."""
        return self.reference()

    @property
    def is_weak(self) -> bool:
        """Whether the object may go while the guard stays."""
        return isinstance(self.reference, weakref.ref)


@frozen
class ConstantIs(SourceGuard):
    """Exactly this constant, types included: 1 is not True, 0.0 is not -0.0, nan is nan.

    Constants are None, Ellipsis, bool, int, float, complex, str, bytes, `torch.device`, and tuples and frozensets of these
    (`torch.Size` and slices and ranges too); types, dtypes, layouts, memory formats and enum members match by identity.
    """

    value: Any


@frozen
class NotConstant(SourceGuard):
    """The value is anything but this constant (used for `is not None`)."""

    value: Any


@frozen
class TensorMatch(SourceGuard):
    """A tensor with these properties; a None size or stride is free.

    `dispatch_keys` is `torch._C._dispatch_keys(tensor).raw_repr()`, so conjugation, negation, subclass, functorch and inference bits
    are part of it. `strides` is None where the layout has none (sparse). `behind`: for free strides, pairs of dimensions: the first one's
    stride is the size of the second times its stride.
    """

    cls: type
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    dispatch_keys: int
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    behind: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        source: Source,
        tensor: torch.Tensor,
        *,
        dynamic_sizes: Iterable[int] = (),
        dynamic_strides: Iterable[int] = (),
        behind: Mapping[int, int] | None = None,
        position: Position | None = None,
    ) -> TensorMatch:
        """The guard a real tensor satisfies now, with the dimensions named in `dynamic_*` left free."""
        free_sizes, free_strides = set(dynamic_sizes), set(dynamic_strides)
        strided = tensor.layout is torch.strided and not tensor.is_nested
        return cls(
            source,
            type(tensor),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            torch._C._dispatch_keys(tensor).raw_repr(),
            tuple(None if i in free_sizes else int(s) for i, s in enumerate(tensor.shape)),
            tuple(None if i in free_strides else int(s) for i, s in enumerate(tensor.stride())) if strided else None,
            tuple(pair for pair in (behind or {}).items() if pair[0] in free_strides),
            position=position,
        )

    def misplaced(self, tensor: Any) -> list[tuple[int, int, int, int]]:
        """Of the pairs in `behind` those that do not hold: both dimensions, the stride that the first should have, the one it has."""
        found = ((d, other, tensor.shape[other] * tensor.stride(other), tensor.stride(d)) for d, other in self.behind)
        return [place for place in found if place[2] != place[3]]


@frozen
class SequenceLength(SourceGuard):
    """`len(value) == length`, for lists, tuples, dicts, sets and other sized objects."""

    length: int


_KEYED: tuple[Any, ...] = (OrderedDict, dict, set, frozenset)
_CONTAINERS: tuple[Any, ...] = (list, tuple, *_KEYED)


def own_keys(value: Any) -> tuple[Any, ...]:
    """The keys of a dict in order, or the members of a set, whatever its class says when it is iterated over; the members of anything else."""
    base = _own_base(value, _KEYED)
    return tuple(value if base is None else base.__iter__(value))


def own_length(value: Any) -> int:
    """The number of elements of a container, whatever its class says when it is asked."""
    base = _own_base(value, _CONTAINERS)
    return len(value) if base is None else base.__len__(value)


def has_key(value: Any, key: Any) -> bool:
    """Whether a dict or a set has a key, whatever its class says; the same of anything else that can be asked."""
    base = _own_base(value, _KEYED)
    return key in value if base is None else bool(base.__contains__(value, key))


def _own_base(value: Any, bases: tuple[Any, ...]) -> Any:
    return next((kind for kind in bases if issubclass(type(value), kind)), None)


@frozen
class DictKeys(SourceGuard):
    """The dict, its read-only proxy or the set has exactly these keys in this order; keys compare as constants, others by identity."""

    keys: tuple[Any, ...]


@frozen
class Contains(SourceGuard):
    """Whether a dict, its proxy, a set or a frozenset contains a key."""

    key: Any
    present: bool


@frozen
class SetEquals(SourceGuard):
    """A set or frozenset with exactly these members."""

    members: frozenset[Any]


@frozen
class HasAttribute(SourceGuard):
    """Whether `hasattr(value, attribute)`."""

    attribute: str
    present: bool


@frozen
class FunctionIs(SourceGuard):
    """A Python function with this code object and these globals, whatever closure it carries."""

    code: CodeType = field(eq=id)
    namespace: dict[str, Any] = field(eq=id, repr=False)


@frozen
class AliasOf(SourceGuard):
    """`value is other's value`."""

    other: Source


@frozen
class NoAlias(GuardSpec):
    """All these sources hold different objects."""

    sources: tuple[Source, ...]


@frozen
class DistinctStorage(GuardSpec):
    """No tensor of `written` shares its storage with another of them or with one of `read`; those may share theirs."""

    written: tuple[Source, ...]
    read: tuple[Source, ...]


def _weakly_if_function(code: Any) -> Any:
    return weakref.ref(code) if type(code) is FunctionType else code


@frozen
class ClassMember:
    """One answer of a class: which class of its resolution order has `name`, from behind `after` for a `super()` search.

    `owner` is None where no class has it. `code` is the very object where it is a function, a property or another descriptor, else None:
    data has guards of its own. A function is held weakly, so that it goes when the program puts another in its place.
    """

    name: str
    after: type | None
    owner: type | None
    reference: Any = field(alias="code", converter=_weakly_if_function, eq=id)

    def allows(self, found: Any) -> bool:
        """Whether the owner may have this under the name."""
        reference = self.reference
        return reference is None or (reference() if type(reference) is weakref.ref else reference) is found


@frozen
class ClassMembers(SourceGuard):
    """What a class was asked for is where it was. Holds at once while the class and its bases have not been written to."""

    members: tuple[ClassMember, ...]


@frozen
class ModuleBindings(GuardSpec):
    """A module's namespace binds these names to these very objects: `(name, object)`, or `(name,)` for one that is not there.

    Holds at once while the namespace has not been written to, so that it costs next to nothing for modules that hardly anybody patches.
    """

    namespace: dict[str, Any] = field(eq=id)
    bound: tuple[tuple[Any, ...], ...] = field(eq=lambda bound: tuple(tuple(map(id, pair)) for pair in bound))


@frozen
class GlobalState(GuardSpec):
    """The state of torch that changes what a graph means.

    `autocast` lists `(device type, dtype)` for the device types where autocast is on; `function_modes` are the objects
    on the `__torch_function__` mode stack, compared by identity (a default device is one, which stands here as the `torch.device` itself, and one whose
    answers are traced as its class),
    `dispatch_modes` is the depth of the stack of `__torch_dispatch__` modes, `function_transform` whether one of functorch's (vmap, grad, …) is active,
    `attention` which implementations `scaled_dot_product_attention` may choose: flash, memory-efficient, math, cuDNN's,
    `dual_level` the level of forward-mode differentiation (-1: none, tensors have no tangents), `tf32_products` whether products of float32 on a GPU
    may round to TF32 (None where the process had not used a GPU when the guard was made: anything will do), `recorded` what the scopes around the
    frame say of recording its forward and backward as CUDA graphs.
    """

    grad_enabled: bool
    inference_mode: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    autocast_cache: bool
    deterministic: bool
    deterministic_warn_only: bool
    default_dtype: torch.dtype
    function_modes: tuple[Any, ...]
    dispatch_modes: int
    function_transform: bool
    torch_function_enabled: bool
    attention: tuple[bool, bool, bool, bool]
    dual_level: int
    tf32_products: bool | None
    recorded: tuple[bool | None, bool | None]


@frozen
class ShapeExpression(GuardSpec):
    """A boolean expression over integers: Python text as sympy prints it, with the source of each symbol in it.

    Example: `ShapeExpression("Eq(Mod(s0, 8), 0)", (("s0", TensorSize(Local("x"), 0)),))`. A source is an int (or bool, float)
    or a `TensorSize`, `TensorStride`, `TensorOffset`.
    """

    expression: str
    symbols: tuple[tuple[str, Source], ...]


@frozen
class PythonCheck(SourceGuard):
    """The last resort: a Python predicate over the value. Counted, because it enters the interpreter."""

    predicate: Callable[[Any], bool] = field(eq=id)
    description: str
