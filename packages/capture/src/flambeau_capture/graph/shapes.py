"""Symbolic sizes: which dimensions are dynamic, fakes with symbols, and shape guards as specs.

In: real tensors, marks a user put on them, what changed since the last compile. Out: fakes, `ShapeExpression` specs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch._guards
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import DynamicShapeError
from ..guards.spec import ShapeExpression
from ..library import itertools, math
from ..signals import GraphBreak
from ..sources.source import Source, TensorOffset, TensorSize, TensorStride
from .dimension_marks import Mark, marks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .builder import GraphBuilder


class _SymbolSource(torch._guards.Source):
    """The name under which `ShapeEnv` knows one of our sources."""

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "text", text)

    @property
    def name(self) -> Any:
        return self.text

    @property
    def _name_template(self) -> str:
        return self.text

    @property
    def guard_source(self) -> Any:
        return torch._guards.GuardSource.LOCAL

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SymbolSource) and self.text == other.text


def symbol_value(number: Any) -> Any:
    """A size or number as a term of sympy."""
    import sympy

    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


class _CallableName(str):
    """A name that also answers when called, as older torch versions do."""

    def __call__(self) -> str:
        return str(self)


def symbol_source(source: Source) -> torch._guards.Source:
    """A torch source that stands for one of ours."""
    return _SymbolSource(_CallableName(source.name))


def dynamic_dims_for(
    tensor: torch.Tensor, dynamic: bool | None, changed: frozenset[int], marks: Mapping[int, Mark]
) -> tuple[frozenset[int], frozenset[int]]:
    """Which dimensions of a new input are symbolic, and which of these have no example value."""
    symbolic: set[int] = set()
    unbacked: set[int] = set()
    for dim, size in enumerate(tensor.shape):
        mark = marks.get(dim)
        if mark is not None and mark.kind == "unbacked":
            unbacked.add(dim)
        elif mark is not None and mark.kind == "static":
            continue
        elif (mark is not None and size > 1) or (size > 1 and dynamic is not False and (dynamic or dim in changed)):
            symbolic.add(dim)
    return frozenset(symbolic), frozenset(unbacked)


def _new_size(builder: GraphBuilder, value: int, source: Source) -> Any:
    """A fresh symbolic size or stride."""
    env = builder.need_shape_env()
    symbol, torch_source = _new_symbol(builder, env, value, source, size=True)
    return env.create_symintnode(symbol, hint=value, source=torch_source)


def limit_of(number: float) -> float | None:
    """How large a number may be in later calls of a graph where it is symbolic: what the graph's arithmetic assumes.

    None where it is too large itself, not a number, or so small that sympy rounds it.
    """
    size = abs(number)
    if isinstance(number, float):
        largest, smallest = sys.float_info.max, sys.float_info.min
        return largest if size == 0 or smallest <= size <= largest else None
    return _USUAL if size <= _USUAL else LARGE if size <= LARGE else None


def number_input(builder: GraphBuilder, value: float, source: Source) -> tuple[Any, torch.fx.Node] | None:
    """A fresh symbol for the int or float that `source` names, and the input of the graph for it; None where torch makes a constant of it.

    The caller guards that it is no larger than `limit_of(value)`.
    """
    env = builder.need_shape_env()
    with builder.unpatched:
        symbol, torch_source = _new_symbol(builder, env, value, source, size=False)
        if isinstance(value, int) and abs(value) > _USUAL:
            builder.large_symbols.add(str(symbol))
        create = env.create_symfloatnode if isinstance(value, float) else env.create_symintnode
        number = create(symbol, hint=value, source=torch_source)
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return None
    return number, builder.add_input(source, number, value, static=False, hint="n")


_LONGEST = 256
"""Parts of expressions. Chosen: the sum of a hundred sizes has fewer, what doubles in each round has more after eight."""
LARGE = 2**62
"""Programs and guards compute in 64 bits; larger integers are left to Python, with room for a sum of two."""
_USUAL = 2**48
"""What most numbers of callers are below: a graph that met such ones alone takes no others, and most of its products need not be watched."""


def least(builder: GraphBuilder, number: Any) -> float:
    """A lower bound of a number, symbolic or not."""
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return float(number)
    return float(builder.need_shape_env().bound_sympy(number.node.expr).lower)


def is_large(builder: GraphBuilder, number: torch.SymInt, base: Any, exponent: Any) -> bool:
    """Whether an integer that grew is too large for a graph. One that is not and could be, in another call, is guarded to stay so.

    `exponent` is what it was raised to or shifted by, None for a product.
    """
    if not number.node.has_hint():
        return False
    if abs(int(number.node.hint)) > LARGE:
        return True
    if isinstance(exponent, torch.SymInt):
        # The shape environment solves no equations for exponents.
        if isinstance(base, torch.SymInt):
            return True
        if abs(base) > 1:
            builder.decide(exponent <= int(math.log(LARGE, abs(base)) + 1e-9))
        return False
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    sized = (TensorSize, TensorStride, TensorOffset)
    ordinary, large = ValueRanges(-_USUAL, _USUAL), ValueRanges(-LARGE, LARGE)
    usual = {
        symbol: large if str(symbol) in builder.large_symbols else ordinary
        for symbol in number.node.expr.free_symbols
        if not isinstance(builder.symbol_sources.get(str(symbol)), sized)
    }
    if not usual:
        return False  # of sizes alone: tensors have that many elements
    sizes = {symbol: ValueRanges(0, 2**15) for symbol in number.node.expr.free_symbols - usual.keys()}
    bounds = bound_sympy(number.node.expr, usual | sizes)
    if bounds.upper > LARGE:
        builder.decide(number <= LARGE)
    if bounds.lower < -LARGE:
        builder.decide(number >= -LARGE)
    return False


def is_long(*numbers: Any) -> bool:
    """Whether the expressions of some symbolic numbers have more than `_LONGEST` parts together, a part that stands twice counted twice.

    The algebra walks such trees whole, and a loop that computes each number from two before it doubles them each time.
    """
    waiting = [
        number.node.expr for number in numbers if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool))
    ]
    seen = 0
    while waiting and seen <= _LONGEST:
        seen += 1
        waiting.extend(waiting.pop().args)
    return seen > _LONGEST


def is_large_sum(builder: GraphBuilder, number: torch.SymInt) -> bool:
    """The same for what grows by its parts alone: usual numbers leave 64 bits only in sums of their products."""
    terms = (
        (number.node.expr.args if number.node.expr.is_Add else (number.node.expr,)) if number.node.has_hint() else ()
    )
    if all(
        len(term.free_symbols) < 2 and not term.is_Pow and not any(part.is_Pow for part in term.args) for term in terms
    ):
        return bool(terms) and abs(int(number.node.hint)) > LARGE
    return is_large(builder, number, None, None)


def _new_symbol(builder: GraphBuilder, env: Any, value: Any, source: Source, *, size: bool) -> tuple[Any, Any]:
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    torch_source = symbol_source(source)
    make = env.create_symbol if size else env.create_unspecified_symbol
    symbol = make(value, torch_source, dynamic_dim=DimDynamic.DYNAMIC)
    if symbol.is_Symbol:
        builder.symbol_sources[str(symbol)] = source
    return symbol, torch_source


def fake_of(
    builder: GraphBuilder,
    tensor: torch.Tensor,
    source: Source,
    dynamic_dims: frozenset[int],
    unbacked: frozenset[int],
    marks: Mapping[int, Mark],
) -> FakeTensor:
    """A fake tensor like `tensor`, whose dimensions in `dynamic_dims` (or `unbacked`) are fresh symbols.

    It is a leaf where `tensor` is one, or a view of one: eager refuses writes to those. Where `tensor` is a parameter, it counts as one.
    """
    sizes: list[Any] = list(tensor.shape)
    strides: list[Any] = list(tensor.stride())
    for dim in sorted(dynamic_dims):
        sizes[dim] = _new_size(builder, sizes[dim], TensorSize(source, dim))
    for dim in sorted(unbacked):
        sizes[dim] = symint = builder.need_shape_env().create_unbacked_symint(symbol_source(TensorSize(source, dim)))
        builder.symbol_sources[str(symint.node.expr)] = TensorSize(source, dim)
        builder.open_inputs += 1
        if (mark := marks.get(dim)) is not None and mark.shape_id is not None:
            torch._check(symint == builder.sizes_by_name.setdefault(mark.shape_id, symint))
    if dynamic_dims or unbacked:
        strides = _symbolic_strides(builder, tensor, sizes, source)
    _constrain(builder, tensor, sizes, source, marks)
    # Asked outside of the mode: for a view of what was written since, autograd takes the real view anew to answer.
    writable = tensor.requires_grad and _may_be_written(tensor)
    with builder.fake_mode, torch.no_grad():
        fake = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
        if tensor.is_conj():
            fake = fake.conj()
        if tensor.is_neg():
            fake = torch._neg_view(fake)
        if tensor.requires_grad:
            fake.requires_grad_()
            if writable:
                with torch.enable_grad():
                    fake = _History.apply(fake)
    if isinstance(tensor, torch.nn.Parameter):
        fake._is_param = True  # what torch asks of a tensor that is no instance of the class
    return fake


def has_own_elements(tensor: torch.Tensor, fake: torch.Tensor) -> bool:
    """Whether no two elements share memory, told by strides that each pass over all smaller ones; symbolic ones are guarded so."""
    if tensor.numel() == 0:
        return True
    if fake.ndim != tensor.ndim:
        return False
    passed: Any = 1
    for d in sorted(range(tensor.ndim), key=tensor.stride):
        if tensor.shape[d] == 1:
            continue
        try:
            apart = bool(fake.stride(d) >= passed)
        except RuntimeError:  # strides that depend on a size without an example
            return False
        if not apart:
            return False
        passed = fake.shape[d] * fake.stride(d)
    return True


def _may_be_written(tensor: torch.Tensor) -> bool:
    """Whether eager lets a program write to a tensor that requires grad: no leaf, and no view of a leaf."""
    try:
        base = tensor._base
        return not tensor.is_leaf and not (base is not None and base.requires_grad and base.is_leaf)
    except RuntimeError as error:  # one of several views of a tensor that was written since: nobody may use it any more
        raise GraphBreak("unsupported-tensor", str(error).partition("\n")[0]) from None


class _History(torch.autograd.Function):
    """A tensor like the given leaf that can be written in place, as one that the program computed from it; its version is zero."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        """As `Function` defines it."""
        fresh = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
        fresh = fresh.conj() if leaf.is_conj() else fresh
        return (torch._neg_view(fresh) if leaf.is_neg() else fresh).detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """As `Function` defines it."""
        return grad


def behind(tensor: torch.Tensor) -> dict[int, int]:
    """The dimensions that lie directly behind another in memory: their stride is that one's size times its stride."""
    found: dict[int, int] = {}
    real, expected, before = tensor.stride(), 1, -1
    for d in sorted(range(tensor.ndim), key=lambda d: (real[d], tensor.shape[d], -d)):
        if real[d] == expected:
            if before >= 0:
                found[d] = before
        elif tensor.shape[d] == 1 or real[d] == 0:
            continue
        expected, before = real[d] * tensor.shape[d], d
    return found


def _symbolic_strides(builder: GraphBuilder, tensor: torch.Tensor, sizes: list[Any], source: Source) -> list[Any]:
    """Strides as products of sizes where they are; anything else is static. `TensorMatch` guards both."""
    strides: list[Any] = list(tensor.stride())
    known = behind(tensor)
    for d in sorted(range(tensor.ndim), key=lambda d: (strides[d], tensor.shape[d], -d)):
        if d in known:
            strides[d] = strides[known[d]] * sizes[known[d]]
        elif strides[d] > 1 and tensor.shape[d] != 1 and any(isinstance(s, torch.SymInt) for s in sizes):
            strides[d] = _new_size(builder, strides[d], TensorStride(source, d))
    return strides


def _constrain(
    builder: GraphBuilder, tensor: torch.Tensor, sizes: list[Any], source: Source, marks: Mapping[int, Mark]
) -> None:
    for dim, mark in marks.items():
        size = tensor.shape[dim]
        if (mark.min is not None and size < mark.min) or (mark.max is not None and size > mark.max):
            raise DynamicShapeError(
                f"dimension {dim} of {source.name} is {size}, outside the range it is marked with: "
                f"at least {mark.min if mark.min is not None else 0}, at most {mark.max if mark.max is not None else 'anything'}",
                hint="mark the dimension with a range that holds every size it takes",
            )
        if isinstance(sizes[dim], torch.SymInt) and mark.kind in ("dynamic", "unbacked"):
            if mark.min is not None:
                torch._check(sizes[dim] >= mark.min)
            if mark.max is not None:
                torch._check(sizes[dim] <= mark.max)
            if mark.hint is not None:
                builder.need_shape_env().var_to_hint_override[sizes[dim].node.expr] = mark.hint
            for condition in mark.conditions:
                _decide_by(builder, condition, sizes[dim], size)
    builder.note_guards()


def _decide_by(builder: GraphBuilder, condition: Callable[[Any], Any], symint: torch.SymInt, size: int) -> None:
    """Have the code that is compiled know whether sizes meet a condition, which becomes a guard; without an example value it is looked at itself."""
    if symint.node.has_hint():
        builder.decide(condition(symint))
        return
    holds = condition(symint)
    torch._check(holds if condition(size) else torch.sym_not(holds))


def shape_guards(builder: GraphBuilder) -> tuple[ShapeExpression, ...]:
    """Everything the shape environment assumed, as specs over sources."""
    env = builder.shape_env
    if env is None:
        return ()
    import sympy

    found: list[ShapeExpression] = []
    builder.note_guards()
    for guard, position in itertools.zip_longest(env.guards, builder.guard_positions):
        if guard is not None:
            _add(builder, guard.expr, position, found)
    found += open_conditions(builder)
    for symbol, replacement in env.replacements.items():
        if str(symbol) in builder.symbol_sources:
            _add(builder, sympy.Eq(symbol, replacement, evaluate=False), None, found)
    for name, source in builder.symbol_sources.items():
        symbol = next((s for s in env.var_to_range if str(s) == name), None)
        if symbol is None:
            continue
        bounds = env.var_to_range[symbol]
        if isinstance(source, TensorOffset) or bounds.is_float:
            continue
        if _is_small_int(bounds.lower) and (bounds.lower > 0 or not isinstance(source, TensorSize)):
            _add(builder, sympy.Ge(symbol, bounds.lower, evaluate=False), None, found)
        if _is_small_int(bounds.upper):
            _add(builder, sympy.Le(symbol, bounds.upper, evaluate=False), None, found)
    return tuple(dict.fromkeys(found))


def open_conditions(builder: GraphBuilder) -> list[ShapeExpression]:
    """What was put off until sizes are known, because no example decided it, as far as sizes of inputs are concerned.

    It need not hold for the inputs at hand.
    """
    found: list[ShapeExpression] = []
    if builder.shape_env is not None:
        for asserted in itertools.chain.from_iterable(builder.shape_env.deferred_runtime_asserts.values()):
            _add(builder, asserted.expr, None, found)
    return found


def _is_small_int(bound: Any) -> bool:
    try:
        return bool(bound.is_Integer) and abs(int(bound)) < 2**62
    except (AttributeError, TypeError, ValueError, OverflowError):
        return False


def _add(builder: GraphBuilder, expr: Any, position: Any, found: list[ShapeExpression]) -> None:
    symbols = sorted(expr.free_symbols, key=str)
    if not symbols:
        return
    pairs = []
    for symbol in symbols:
        source = builder.symbol_sources.get(str(symbol))
        if source is None:
            return
        pairs.append((str(symbol), source))
    found.append(ShapeExpression(_text_of(expr), tuple(pairs), position=position))


def _text_of(expr: Any) -> str:
    """Sympy's text, but for floats, of which it would drop the last digits."""
    import sympy

    floats = expr.atoms(sympy.Float)
    if not floats:
        return str(expr)
    from sympy.printing.str import StrPrinter

    printer = StrPrinter()
    printer._print_Float = lambda number: repr(float(number))
    return str(printer.doprint(expr))


def check_marks(tensors: list[tuple[torch.Tensor, FakeTensor, Source]]) -> None:
    """Raise DynamicShapeError where a dimension marked dynamic became a constant."""
    for tensor, fake, source in tensors:
        for dim, mark in marks_of(tensor).items():
            size = fake.shape[dim]
            fixed = not isinstance(size, torch.SymInt) or size.node.maybe_as_int() is not None
            asked = any(condition(tensor.shape[dim]) for condition in mark.conditions)
            if mark.kind in ("dynamic", "unbacked") and mark.strict and fixed and not asked and tensor.shape[dim] > 1:
                raise DynamicShapeError(
                    f"dimension {dim} of {source.name} is marked {mark.kind}, but the program needs it to be {tensor.shape[dim]}",
                    hint="use maybe_mark_dynamic, or remove the code that fixes the size",
                )
