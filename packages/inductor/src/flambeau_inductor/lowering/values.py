"""Tensors during lowering: what each element is, before anything is stored.

In: sizes and a function from an index to a scalar. Out: ``TensorValue`` cells. A cell starts *lazy* (every reader inlines its
scalar) and may become *realised*: a window on a buffer that every later reader loads from. Views keep their base, so that a
view of a realised tensor is a window too and costs nothing in front of a library call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..expr import ONE, ZERO, Expr, known_eq
from ..ir import scalar as sc
from ..ir.layout import Ref, Sizes
from ..ir.loops import make_axes
from ..ir.scalar import Scalar
from ..ops.dtypes import element_type

Index = tuple[Expr, ...]
Producer = Callable[[Index], Scalar]


class TensorValue:
    """One tensor of the graph while it is being lowered. ``at(index)`` is the element at ``index`` as a scalar."""

    __slots__ = ("_memo", "_producer", "base", "device", "dtype", "node", "ref", "sizes", "strides", "window")

    def __init__(
        self,
        sizes: Sequence[Expr],
        dtype: torch.dtype,
        device: torch.device,
        producer: Producer,
        *,
        ref: Ref | None = None,
        base: TensorValue | None = None,
        window: Callable[[Ref], Ref | None] | None = None,
    ) -> None:
        self.sizes: Sizes = tuple(sizes)
        self.dtype = dtype
        self.device = device
        self._producer = producer
        self._memo: dict[Index, Scalar] = {}
        self.ref = ref
        #: A view: its base, and how a window on the base becomes a window of this view (None answer: it cannot).
        self.base = base
        self.window = window
        #: The strides eager would give it, where they matter (kept when it is realised).
        self.strides: Sizes | None = None
        #: The graph's node whose result it is.
        self.node: fx.Node | None = None

    @classmethod
    def of_ref(cls, ref: Ref) -> TensorValue:
        """A realised tensor."""
        return cls(ref.sizes, ref.dtype, ref.device, reader(ref), ref=ref)

    def at(self, index: Index) -> Scalar:
        """The scalar at ``index`` (one expression per dimension)."""
        found = self._memo.get(index)
        if found is None:
            found = self._memo[index] = self._producer(index)
        return found

    def become(self, ref: Ref) -> None:
        """Realise: from now on every reader loads from ``ref``."""
        self.ref = ref
        self._producer = reader(ref)
        self._memo.clear()

    def body(self) -> Scalar:
        """The scalar at the canonical index ``(i0, i1, …)``."""
        return self.at(canonical_index(self.sizes))

    def known_ref(self) -> Ref | None:
        """The window this tensor is, when no work is needed to say so."""
        if self.ref is None and self.base is not None and self.window is not None:
            below = self.base.known_ref()
            if below is not None:
                self.ref = self.window(below)
        return self.ref

    def is_stored(self) -> bool:
        """Whether a reader loads its elements: it is a window on memory."""
        return self._window() is not None

    def _window(self) -> Ref | None:
        if self.ref is not None or self.base is None or self.window is None:
            return self.ref
        below = self.base._window()
        return None if below is None else self.window(below)

    @property
    def is_number(self) -> bool:
        """True for a 0-d tensor computed from nothing in memory: it may meet tensors of any device."""
        return not self.sizes and self.ref is None and not sc.loads(self.body())

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)


@frozen(eq=False)
class Positions:
    """Positions that a rule looks at: ``index`` at every point of ``sizes``, each of which has to lie below ``limit``; ``wrap``: from
    the end where it is negative."""

    index: TensorValue
    sizes: Sizes
    limit: Expr
    wrap: bool
    origins: tuple[str, ...]

    def at(self, point: Index) -> Scalar | None:
        """The checked position at one point; None where it is certain."""
        value = self.index.at(broadcast_index(self.index.sizes, self.sizes, point))
        checked = sc.indirect(value, self.limit, wrap=self.wrap).definition
        return checked if checked is not None and checked.op == "check_bounds" else None


def canonical_index(sizes: Sequence[Expr]) -> Index:
    """One axis symbol per dimension; a dimension of size one is always at 0."""
    return tuple(
        ZERO if size is ONE else axis.symbol for axis, size in zip(make_axes(tuple(sizes)), sizes, strict=True)
    )


def reader(ref: Ref) -> Producer:
    """Loads through a window."""

    def at(index: Index) -> Scalar:
        position = ref.offset
        for i, stride in zip(index, ref.strides, strict=True):
            position = position + i * stride
        return sc.load(ref.buffer, position, ref.dtype)

    return at


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """What arithmetic on ``dtype`` is done in: float32 for narrow floats, else itself."""
    return element_type(dtype).computed


def broadcast_index(sizes: Sizes, out_sizes: Sequence[Expr], index: Index) -> Index:
    """Where an operand of ``sizes`` is read for the output position ``index``."""
    extra = len(out_sizes) - len(sizes)
    result = []
    for size, out_size, i in zip(sizes, out_sizes[extra:], index[extra:], strict=True):
        result.append(ZERO if size is ONE and out_size is not ONE else i)
    return tuple(result)


def broadcast_sizes(*operands: Sizes) -> Sizes:
    """The common shape; where symbolic sizes differ in form, the first that is not 1 is taken (torch has checked them)."""
    rank = max((len(sizes) for sizes in operands), default=0)
    result: list[Expr] = [ONE] * rank
    for sizes in operands:
        for n, size in enumerate(sizes, rank - len(sizes)):
            if result[n] is ONE or (size is not ONE and not known_eq(size, result[n]) and size.is_int):
                result[n] = size
    return tuple(result)


_CATEGORY = {torch.bool: 0}


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else _CATEGORY.get(dtype, 1)


def _number_dtype(value: Any) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int | Expr):
        return torch.int64
    if isinstance(value, complex):
        return torch.complex128
    if isinstance(value, Scalar):
        return value.dtype
    return torch.float64


def promote(*operands: Any) -> torch.dtype:
    """torch's result dtype of tensors and numbers: tensors with dimensions first, then 0-d tensors, then Python numbers.

    A lower-ranked operand counts only where its category (bool < integer < float < complex) is higher; a float number then
    stands for the default dtype.
    """
    groups: list[list[torch.dtype]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, TensorValue):
            groups[0 if operand.rank else 1].append(operand.dtype)
        else:
            dtype = _number_dtype(operand)
            if dtype is torch.float64:
                dtype = torch.get_default_dtype()
            groups[2].append(dtype)
    result: torch.dtype | None = None
    for group in groups:
        if not group:
            continue
        joined = group[0]
        for dtype in group[1:]:
            joined = torch.promote_types(joined, dtype)
        if result is None or _category(joined) > _category(result):
            result = joined
    return torch.float32 if result is None else result


def traced_sizes(val: torch.Tensor) -> list[int] | None:
    """The sizes that tracing saw; None where one of them has no hint."""
    if not all(isinstance(size, int) or size.node.has_hint() for size in val.shape):
        return None
    return [size if isinstance(size, int) else size.node.hint for size in val.shape]
