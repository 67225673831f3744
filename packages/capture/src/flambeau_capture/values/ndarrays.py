"""`ArrayValue`: an array of NumPy's, or one of its numbers that the graph computes.

In: a tensor in whose memory the array lies, or an array that the trace made of constants. Out: attributes that are facts of the tensor; methods and operators
are asked of the functions of NumPy under that name (`lookaside/arrays`).

An array of constants stays one as long as nothing of the graph is written to its memory: NumPy itself computes with it, views and writes included, while
tracing. Then its memory becomes a constant of the graph, copied at each call, and it and all that lie in that memory are views of that.
"""

from __future__ import annotations

from math import prod
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any

import torch

from ..numpy_classes import (
    ARRAY,
    DTYPES,
    SCALARS,
    TORCH_DTYPES,
    as_array,
    as_scalar,
    fresh_copy,
    numpy,
    offset_in,
    view_of,
)
from ..signals import GraphBreak
from ..sources.source import Pinned
from .base import Value
from .bound import BoundBuiltin
from .builtins import BuiltinValue
from .constants import ConstantValue
from .symbolic import SymbolicValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer

_SYMBOLS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "true_divide", "//": "floor_divide", "%": "remainder", "**": "power", "@": "matmul",
    "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "left_shift", ">>": "right_shift",
    "<": "less", "<=": "less_equal", "==": "equal", "!=": "not_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
_UNARY = {"-": "negative", "+": "positive", "~": "invert"}
_POWERS = {2: "square", 0.5: "sqrt", -1: "reciprocal"}
"""What the operator computes for these exponents of floats, where it is not what `numpy.power` does."""
_WITH_TENSORS = {"+": add, "-": sub, "*": mul, "/": truediv}
"""Operators between a tensor and a number of NumPy's that the graph computes."""


class MemoryValue(Value):
    """The memory of an array that the trace made, as the array that owns it; `tensor` once it belongs to the graph."""

    __slots__ = ("arrays", "root", "tensor")

    def __init__(self, root: Any) -> None:
        super().__init__()
        self.root = root
        self.tensor: TensorValue | None = None
        #: All that lie in it.
        self.arrays: list[ArrayValue] = []

    def python_type(self) -> type:
        return type(self.root)

    def rebuild(self, e: Any) -> None:
        e.pinned(fresh_copy)
        e.pinned(self.root)
        e.call(1)

    def to_graph(self, t: Tracer) -> TensorValue:
        """The tensor that each call makes anew in its place."""
        if self.tensor is None:
            if self.root.dtype not in DTYPES:
                raise GraphBreak("numpy", f"a tensor of {self.root.dtype}")
            kept = torch.from_numpy(fresh_copy(self.root))
            node, fake = t.graph.constant(kept)
            made = t.recorder.record("call_method", "clone", [TensorValue(fake, node)], {})
            assert isinstance(made, TensorValue)
            self.tensor = made
            for array in self.arrays:
                array.tensor(t)
        return self.tensor


class ArrayValue(Value):
    """An array, or (`is_scalar`) a number of one of NumPy's classes. `known`: the real one that the trace made, with the memory it lies in."""

    __slots__ = ("_tensor", "is_scalar", "known", "memory")

    def __init__(
        self,
        tensor: TensorValue | None,
        *,
        is_scalar: bool = False,
        source: Source | None = None,
        known: Any = None,
        memory: MemoryValue | None = None,
    ) -> None:
        super().__init__(source)
        self._tensor = tensor
        self.is_scalar = is_scalar
        self.known = known
        self.memory = memory
        if memory is not None:
            memory.arrays.append(self)

    def python_type(self) -> type:
        return self.dtype().type if self.is_scalar else ARRAY

    def describe(self) -> str:
        return f"a numpy.{self.python_type().__name__}"

    def real_now(self) -> Any:
        """The real array, None once its memory belongs to the graph or where it always has."""
        return None if self.memory is None or self.memory.tensor is not None else self.known

    def dtype(self) -> Any:
        """NumPy's dtype."""
        return self.known.dtype if self._tensor is None else TORCH_DTYPES[self._tensor.fake.dtype]

    def tensor(self, t: Tracer) -> TensorValue:
        """The tensor in whose memory it lies."""
        if self._tensor is None:
            assert self.memory is not None
            whole = self.memory.to_graph(t)
            if self.known is self.memory.root:
                self._tensor = whole
            else:
                size = self.known.itemsize
                place = (
                    self.known.shape,
                    tuple(stride // size for stride in self.known.strides),
                    offset_in(self.memory.root, self.known) // size,
                )
                if self.known.dtype != self.memory.root.dtype or min(self.known.strides, default=0) < 0:
                    raise GraphBreak("numpy", "a view of an array that torch has none for")
                given = [t.wrapper.from_python(part) for part in place]
                made = t.recorder.record("call_function", torch.as_strided, [whole, *given], {})
                assert isinstance(made, TensorValue)
                self._tensor = made
        return self._tensor

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            super().rebuild(e)
        elif self.real_now() is None:
            e.pinned(as_scalar if self.is_scalar else as_array)
            e.value(self._tensor)
            e.call(1)
        elif self.memory is not None and self.known is self.memory.root:
            e.value(self.memory)
        else:
            assert self.memory is not None
            e.pinned(view_of)
            e.value(self.memory)
            for part in (offset_in(self.memory.root, self.known), self.known.shape, self.known.strides):
                e.const(part)
            e.pinned(self.known.dtype)
            e.call(5)

    # what it answers

    def get_attribute(self, t: Tracer, name: str) -> Value:
        known = self.real_now()
        if name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "T", "mT", "real", "imag"):
            if known is not None and name not in ("T", "mT", "real", "imag"):
                return t.wrapper.from_python(getattr(known, name))
            return self._fact(t, name)
        found = getattr(self.python_type(), name, None)
        if callable(found):
            return BoundBuiltin(self, name)
        if found is None:
            raise t.exceptions.raised(AttributeError(f"'{self.describe()[2:]}' object has no attribute '{name}'"))
        raise GraphBreak("numpy", f"attribute {name!r} of {self.describe()}")

    def _fact(self, t: Tracer, name: str) -> Value:
        """An attribute, by the tensor."""
        if name in ("T", "mT", "real", "imag"):
            return self._ask(t, name)
        if name == "dtype":
            return t.wrapper.from_python(self.dtype())
        if name == "itemsize":
            return ConstantValue(self.dtype().itemsize)
        tensor = self.tensor(t)
        if name == "ndim":
            return ConstantValue(tensor.fake.ndim)
        if name == "shape":
            return t.wrapper.sequence([tensor.size(t, d) for d in range(tensor.fake.ndim)], tuple)
        if name == "size":
            return t.recorder.number(*self._count(t, tensor))
        sizes = (*tensor.fake.shape, *tensor.fake.stride())
        if any(isinstance(size, torch.SymInt) for size in sizes) or name == "strides":
            raise GraphBreak("numpy", f"{name} of {self.describe()}")
        return ConstantValue(prod(tensor.fake.shape) * self.dtype().itemsize)

    def _count(self, t: Tracer, tensor: TensorValue) -> tuple[Any, Any]:
        count = tensor.fake.numel()
        return count, lambda: t.graph.derive("numel", (t.recorder.node_of(tensor),), count, "call_method")

    def _ask(self, t: Tracer, name: str, *args: Value, **kwargs: Value) -> Value:
        """A member of the class by that name, as a function."""
        return call_numpy(t, getattr(ARRAY, name), [self, *args], kwargs)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return self._ask(t, name, *args, **kwargs)

    def get_item(self, t: Tracer, key: Value) -> Value:
        return self._ask(t, "__getitem__", key)

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        self._ask(t, "__setitem__", key, value)

    def length(self, t: Tracer) -> Value:
        if self._rank() == 0:
            what = "object of type 'numpy.{}' has no len()" if self.is_scalar else "len() of unsized object"
            raise t.exceptions.raised(TypeError(what.format(self.python_type().__name__)))
        known = self.real_now()
        return ConstantValue(len(known)) if known is not None else self.tensor(t).size(t, 0)

    def _rank(self) -> int:
        return int(self.known.ndim) if self._tensor is None else self._tensor.fake.ndim

    def truth(self, t: Tracer) -> bool:
        known = self.real_now()
        if known is None or known.size != 1:
            raise GraphBreak("data-dependent-branch", f"the truth of {self.describe()}")
        return bool(known)

    def contains(self, t: Tracer, item: Value) -> bool:
        raise GraphBreak("data-dependent-branch", f"membership in {self.describe()}")

    def iterate(self, t: Tracer) -> Value:
        from .iterators import SequenceIterator

        if self._rank() == 0:
            raise t.exceptions.raised(TypeError("iteration over a 0-d array"))
        count = t.folder.concrete(self.length(t))
        if count > t.config.unroll_limit:
            raise GraphBreak("too-long", "an array longer than the unroll limit")
        return SequenceIterator([self.get_item(t, ConstantValue(place)) for place in range(count)])


def without_masks(parts: Sequence[Value], sizes: Sequence[Any]) -> list[Value]:
    """The parts of a subscript of what has these sizes; in place of a mask that is known while tracing, which elements it selects: how many these are
    is known then. A mask of another length stays, and is refused."""
    found, dim = list(parts), 0
    for place, part in enumerate(parts):
        known = part.real_now() if isinstance(part, ArrayValue) else None
        if (
            known is not None
            and known.dtype == bool
            and known.ndim == 1
            and dim < len(sizes)
            and len(known) == sizes[dim]
        ):
            chosen = numpy.flatnonzero(known)
            found[place] = ArrayValue(None, known=chosen, memory=MemoryValue(chosen))
        if part.is_constant() and part.constant() is ...:
            break
        dim += not (part.is_constant() and part.constant() is None)
    return found


def call_numpy(t: Tracer, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Call one of NumPy's functions."""
    return t.caller.call_builtin(BuiltinValue(function, Pinned(function)), function, args, kwargs).realise(t)


def operated(t: Tracer, symbol: str, values: Sequence[Value]) -> Value | None:
    """What an operator gives that has an array, or a number that the graph computes, among its operands; None where there is none. So it is of a scalar
    of NumPy's and a symbolic number, which has no arithmetic for that."""
    kinds = [isinstance(value, ArrayValue) for value in values]
    is_mixed = any(isinstance(value, SymbolicValue) for value in values) and any(map(_is_scalar, values))
    if not any(kinds) and not is_mixed:
        return None
    if any(isinstance(value, TensorValue) for value in values):
        return _with_tensor(t, symbol, values)
    for value in values:
        is_plain = isinstance(value, (ArrayValue, SymbolicValue)) or value.is_constant()
        if not is_plain and value.python_type() not in (list, tuple):
            raise GraphBreak("numpy", f"{symbol} of {values[0].describe()} and {values[-1].describe()}")
    inplace = len(values) > 1 and symbol.endswith("=") and symbol not in _SYMBOLS
    names = _UNARY if len(values) == 1 else _SYMBOLS
    plain = symbol[:-1] if inplace else symbol
    function, target = getattr(numpy, names[plain]), values[0]
    if plain == "**" and kinds[0]:
        assert isinstance(target, ArrayValue)
        power = values[1].constant() if values[1].is_constant() else None
        if target.dtype().kind not in "iuf":
            raise GraphBreak("numpy", f"a power of {target.dtype()}")
        if type(power) in (int, float) and power in _POWERS and (target.dtype().kind == "f" or power == 2):
            function, values = getattr(numpy, _POWERS[power]), values[:1]
    if inplace and isinstance(target, ArrayValue) and not target.is_scalar:
        return call_numpy(t, function, values, {"out": target})
    return call_numpy(t, function, values, {})


def _is_scalar(value: Value) -> bool:
    return value.is_constant() and type(value.constant()) in SCALARS


def _with_tensor(t: Tracer, symbol: str, values: Sequence[Value]) -> Value:
    """A tensor and a number that the graph computes: to torch the number is one of Python's, whose dtype does not count."""
    left, right = values
    tensor, number = (left, right) if isinstance(left, TensorValue) else (right, left)
    fits = isinstance(tensor, TensorValue) and tensor.fake.is_floating_point() and tensor.fake.ndim > 0
    is_real = isinstance(number, ArrayValue) and number.is_scalar and number.dtype().kind == "f"
    if not fits or not is_real or symbol not in _WITH_TENSORS:
        raise GraphBreak("numpy", f"{symbol} of {left.describe()} and {right.describe()}")
    given = [value.tensor(t) if isinstance(value, ArrayValue) else value for value in values]
    return t.recorder.record("call_function", _WITH_TENSORS[symbol], given, {})
