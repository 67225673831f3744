"""Which calls eager refuses for the types of their operands, where a run on fakes lets them pass.

In: a call of torch with fakes. Out: True where eager raises for the dtypes or numbers given. Kernels alone know (products of two types, integers in a
function of floating-point numbers), so the call is made for real, once for each combination, with tensors of two elements a dimension; and differentiated,
where an operand needs a gradient: a loss takes targets of a type that its derivative refuses. It counts only where the same call with float32, or with
whole numbers, passes. A refused call ends the graph in front of it: it runs for real, its error comes out of the user's own line, or of its own
node in the backward, and what was written before it is written. Without that, the compiled graph would raise, and nobody could tell what eager had done by then.
So does a write to a tensor whose elements share memory.

Autograd asks the same of the operators in a graph, which may come from elsewhere, for another end: a refused one stays a call of the library there. The two
packages know nothing of each other.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import getitem, setitem
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .quiet import no_warnings

_EXTENT = 2
#: Every kernel of floating-point numbers knows these, alone.
_COMMON = frozenset({torch.float32, torch.float64})
#: Of names of calls that are for whole numbers.
_OF_WHOLE_NUMBERS = re.compile("bitwise|gcd|lcm|shift|and_|or_|xor|invert")
KNOWN = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex32, torch.complex64, torch.complex128),
    }
)
#: Of names of calls that are never made with made-up operands: kernels that read workspaces, trust pivots (LAPACK's) or need a device, and what is no computation.
_NEVER = re.compile("ldl_solve|lu_solve|lstm|gru|rnn|mkldnn|cudnn|miopen|quant|cuda|memory|hook|resize|set_|grad")

#: Calls of several products, whose operands depend on each other in size: all of one type, but for masks.
_OF_ONE_TYPE = frozenset(
    {
        *("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"),
        *("multi_head_attention_forward", "_native_multi_head_attention"),
    }
)
#: What autocast makes one type of, whichever that is.
_CAST = frozenset({torch.float16, torch.bfloat16, torch.float32})
_WRITING_OPERATORS = frozenset(
    ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift")
)

#: Functions of `operator` that are named so since their names are Python's words: they write nothing.
_KEYWORDS = frozenset(("and_", "or_", "not_", "is_"))

#: Calls of one operand that no kernel refuses, whatever the sizes and strides of a floating-point one are.
_TOTAL = frozenset(
    (
        *("abs", "cos", "erf", "exp", "expm1", "gelu", "log", "log1p", "mean", "neg", "pos", "reciprocal", "relu", "rsqrt", "sigmoid", "sign"),
        *("silu", "sin", "sqrt", "square", "sum", "tan", "tanh"),
    )
)  # fmt: skip
#: The same of two operands, or of one and a number.
_TOTAL_OF_TWO = frozenset(("add", "div", "maximum", "minimum", "mul", "sub", "truediv"))

#: Calls that take masks for positions, and the types of masks.
_INDEXED = frozenset(("getitem", "setitem", "index_put", "index_put_", "__getitem__", "__setitem__"))
_OF_MASKS = frozenset((torch.bool, torch.uint8))
_answers: dict[Any, bool] = {}


def is_total(kind: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager takes the call, whatever its operands are like: most calls of a program, about which nothing need be asked."""
    if kwargs or name_of(kind, target) not in (_TOTAL if len(args) == 1 else _TOTAL_OF_TWO):
        return False
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.dtype not in _COMMON or value.layout is not torch.strided:
                return False
        elif type(value) is not int and type(value) is not float:
            return False
    return kind == "call_method" or _is_of_torch(target)


def refused(kind: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager raises for these types; False where it cannot be told."""
    kinds = set(_dtypes((*args, *kwargs.values())))
    name = name_of(kind, target)
    if len(kinds) == 1 and kinds <= _COMMON and not _OF_WHOLE_NUMBERS.search(name):
        return False
    if not kinds or not kinds <= KNOWN:
        return False
    if name in _OF_ONE_TYPE:
        kinds.discard(torch.bool)
        if any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
            kinds = {torch.float32 if kind in _CAST else kind for kind in kinds}
        return len(kinds) > 1
    if not is_asked(kind, target):
        return False
    if name in _INDEXED and not kinds.isdisjoint(_OF_MASKS):
        return _is_refused_by_mask(args)
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    described = tuple(map(_describe, leaves))
    if None in described:
        return False
    key = (target, spec, described, torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))
    try:
        answer = _answers.get(key)
    except TypeError:
        return False
    if answer is None:
        answer = _answers[key] = _ask(kind, target, spec, described)
    return answer


def _is_refused_by_mask(args: Sequence[Any]) -> bool:
    """Whether what is put where a mask holds is of another type, which eager converts if it is one element. With made-up operands a mask would
    take another number of them."""
    value = args[2] if len(args) > 2 else None
    return isinstance(value, torch.Tensor) and value.dtype is not args[0].dtype and value.numel() != 1


def name_of(kind: str, target: Any) -> str:
    """The name of a call's method or function, in small letters."""
    return str(target if kind == "call_method" else getattr(target, "__name__", "")).lower()


def is_asked(kind: str, target: Any) -> bool:
    """Whether a call may be made with made-up operands, as far as its name tells."""
    return (kind == "call_method" or _is_of_torch(target)) and not _NEVER.search(name_of(kind, target))


def _dtypes(values: Iterable[Any]) -> Iterator[torch.dtype]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value.dtype
        elif isinstance(value, (list, tuple)):
            yield from _dtypes(value)


def is_write(kind: str, target: Any) -> bool:
    """Whether a call writes to its first operand, by its name."""
    name = str(target if kind == "call_method" else getattr(target, "__name__", ""))
    if name in _KEYWORDS:
        return False
    return name in _WRITING_OPERATORS or (name.endswith("_") and not name.endswith("__"))


def takes_numbers(kind: str, target: Any, result: Any) -> bool:
    """Whether numbers that an operation reads out of tensors stand for arguments of its, sizes or positions, and can be given as numbers: those that
    it has for a result are no arguments, an index may be a tensor, and a write is not made twice."""
    if is_write(kind, target) or target in (getitem, setitem) or result is None:
        return False
    return not isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def as_unread(numbers: Iterable[tuple[Any, bool]]) -> list[torch.Tensor]:
    """Fakes that an operation read as numbers. One that nobody had read before is as it was: what the operation assumed of the number is not known
    of the one that is read next."""
    for fake, is_first in numbers:
        if is_first:
            fake.item_memo = None
    return [fake for fake, _ in numbers]


def writes_shared_elements(kind: str, target: Any, args: Sequence[Any]) -> bool:
    """Whether a call writes to a tensor that shows one element several times: most of eager's kernels refuse it, fakes do not look."""
    if not is_write(kind, target):
        return False
    first = args[0] if args else None
    if not isinstance(first, FakeTensor) or any(isinstance(size, int) and size == 0 for size in first.shape):
        return False
    return any(
        isinstance(stride, int) and stride == 0 and size != 1 for size, stride in zip(first.shape, first.stride())
    )


def _is_of_torch(target: Any) -> bool:
    if isinstance(target, types.FunctionType):
        return target.__module__.startswith(("torch.nn.functional", "torch.functional", "torch._tensor"))
    return isinstance(target, (types.BuiltinFunctionType, types.MethodDescriptorType))


def _describe(leaf: Any) -> Any:
    """A leaf as part of a key: what is needed to make a small one of its kind; None where that cannot be done."""
    if isinstance(leaf, torch.Tensor):
        if leaf.layout is not torch.strided or leaf.device.type != "cpu":
            return None
        return (torch.Tensor, leaf.dtype, leaf.ndim, leaf.requires_grad and torch.is_grad_enabled())
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Generator, torch.device)):
        return None
    # 1, 1.0 and True are equal, and different operands.
    return (type(leaf), leaf)


def _ask(kind: str, target: Any, spec: Any, described: tuple[Any, ...]) -> bool:
    first = next(place for place, part in enumerate(described) if part[0] is torch.Tensor)
    numbers = torch.get_rng_state()
    try:
        with _disable_current_modes(), torch.no_grad(), no_warnings():

            def passes(dtype_of: Callable[[int, torch.dtype], torch.dtype]) -> bool:
                return _passes(kind, target, spec, described, dtype_of)

            if passes(lambda place, dtype: dtype):
                return False
            return (
                passes(lambda place, dtype: torch.float32)
                or passes(lambda place, dtype: torch.float32 if place == first else dtype)
                or passes(lambda place, dtype: torch.int64)
            )
    finally:
        torch.set_rng_state(numbers)


def _passes(
    kind: str, target: Any, spec: Any, described: tuple[Any, ...], dtype_of: Callable[[int, torch.dtype], torch.dtype]
) -> bool:
    leaves: list[Any] = []
    wanted: list[torch.Tensor] = []
    for place, part in enumerate(described):
        leaf = part[1]
        if part[0] is torch.Tensor:
            leaf = torch.ones((_EXTENT,) * part[2], dtype=dtype_of(place, part[1]))
            if part[3] and (leaf.is_floating_point() or leaf.is_complex()):
                wanted.append(leaf.requires_grad_())
                # No leaf: it may be written.
                with torch.enable_grad():
                    leaf = leaf.clone()
        leaves.append(leaf)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    try:
        with torch.set_grad_enabled(bool(wanted)):
            result = getattr(args[0], target)(*args[1:], **kwargs) if kind == "call_method" else target(*args, **kwargs)
        _differentiate(result, wanted)
    except (RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, AssertionError, AttributeError):
        return False
    return True


def _differentiate(result: Any, wanted: list[torch.Tensor]) -> None:
    ends = [part for part in pytree.tree_leaves(result) if isinstance(part, torch.Tensor) and part.requires_grad]
    if not ends or not wanted:
        return
    try:
        torch.autograd.grad(ends, wanted, [torch.ones_like(end) for end in ends], allow_unused=True)
    except RuntimeError as error:
        # That a function writes what it has saved autograd says of fakes as well: nothing needs to be found out here.
        if "modified by an inplace operation" not in str(error):
            raise
