"""What the program says about single dimensions of tensors: which are symbolic, which are constants, in which range they lie. And of tensors, that
they stay where they are.

In: marks on a tensor, by our functions or by those of these names in `torch._dynamo`, and names of inputs in the settings. Out: `marks_of`, one `Mark` for each
dimension that something is said of; `Named`, what the settings say of an input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..class_names import class_name
from ..library import functools

MARKS = "_flambeau_dynamic_dims"
"""Attribute of a marked tensor: dict dim -> Mark."""
ADDRESS_MARK = "_dynamo_static_input_type"
"""Attribute of a tensor that stays where it is, the one that `torch._dynamo.mark_static_address` gives it."""
STATIC_MARK = "_dynamo_marked_static"
"""Attribute of a class of modules whose ints are constants, the one that `torch._dynamo.mark_static` gives them."""

Dims = int | Sequence[int]


@frozen
class Mark:
    """What a user said about one dimension.

    Attributes:
        kind: `dynamic`, `maybe`, `static` or `unbacked`.
        min: the smallest size that it takes.
        max: the largest one.
        hint: the size that the stages behind assume where they have to choose.
        conditions: predicates of the size; what is compiled for sizes that meet one knows that they do.
        shape_id: unbacked dimensions of one name have one size.
        strict: whether it is an error that the program makes a constant of it.
    """

    kind: str
    min: int | None = None
    max: int | None = None
    hint: int | None = None
    conditions: tuple[Callable[[Any], Any], ...] = ()
    shape_id: str | None = None
    strict: bool = True


def _mark(t: Any, index: Dims | None, mark: Mark) -> None:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"a tensor is marked, not {class_name(type(t))}")
    if is_traceable_wrapper_subclass(t):
        for name in t.__tensor_flatten__()[0]:
            inner = getattr(t, name)
            if isinstance(inner, torch.Tensor) and inner.dim() == t.dim():
                _mark(inner, index, mark)
    dims = range(t.ndim) if index is None else (index,) if isinstance(index, int) else index
    for dim in dims:
        if not -t.ndim <= dim < t.ndim:
            raise IndexError(f"dimension {dim} of a tensor with {t.ndim} dimensions")
        marks = t.__dict__.setdefault(MARKS, {})
        old = marks.get(dim % t.ndim)
        if mark.kind == "static" and old is not None and old.kind in ("dynamic", "unbacked"):
            continue  # what is said to be symbolic goes before
        marks[dim % t.ndim] = mark


def mark_dynamic(
    t: torch.Tensor,
    index: Dims,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: Sequence[Callable[[Any], Any]] | None = None,
) -> None:
    """Make dimension(s) `index` of `t` symbolic from the first compile; that the program makes a constant of one is an error.

    Args:
        t: the tensor; of a wrapper of tensors those inside are marked, too.
        index: a dimension, or several.
        hint_override: the size for which the stages behind choose, in place of that of the first call.
        min: the smallest size; the compiled code takes no other, and may rely on it.
        max: the largest size.
        specialize_on: predicates of the size, `[lambda n: n == 8]`: sizes that meet one get code of their own, compiled once such a size comes.

    Raises:
        IndexError: for a dimension that the tensor does not have.
        TypeError: for what is no tensor.
    """
    _mark(t, index, Mark("dynamic", min, max, hint_override, tuple(specialize_on or ())))


def maybe_mark_dynamic(t: torch.Tensor, index: Dims) -> None:
    """Like `mark_dynamic`, but the program may make a constant of the dimension."""
    _mark(t, index, Mark("maybe"))


def mark_static(t: Any, index: Dims | None = None) -> Any:
    """Never make dimension(s) `index` of `t` symbolic, all of them for None; in compiled code, sizes that are symbolic become constants.

    Of a class of modules, which comes back: the ints that its instances have as attributes are constants.

    Raises:
        IndexError: for a dimension that the tensor does not have.
        TypeError: for anything else than a tensor and a class of modules.
    """
    if isinstance(t, type) and issubclass(t, torch.nn.Module):
        setattr(t, STATIC_MARK, True)
        return t
    _mark(t, index, Mark("static"))
    return None


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Say that `t` stays where it is: what is written to it between calls is read there by a CUDA graph, which does not copy it.

    Args:
        t: the tensor.
        guard: compile again where it lies elsewhere; else the CUDA graph is recorded again, and after some moves it is copied like the others.

    Raises:
        TypeError: for what is no tensor.
    """
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"a tensor is marked, not {class_name(type(t))}")
    setattr(t, ADDRESS_MARK, "guarded" if guard else "unguarded")


def address_mark(t: Any) -> str | None:
    """`guarded` or `unguarded` where a tensor is said to stay where it is."""
    found: str | None = getattr(t, "__dict__", {}).get(ADDRESS_MARK)
    return found


def mark_unbacked(
    t: torch.Tensor,
    index: Dims,
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: Sequence[Callable[[Any], Any]] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Make dimension(s) `index` of `t` symbolic with no example value: nothing is decided by a size, 0 and 1 included.

    Args:
        t: the tensor.
        index: a dimension, or several.
        hint_override: the size for which the stages behind choose.
        strict: that the program makes a constant of it is an error.
        specialize_on: see `mark_dynamic`.
        shape_id: dimensions of one name, of several tensors, have one size, which each call is checked for.
        min: the smallest size.
        max: the largest size.

    Raises:
        IndexError: for a dimension that the tensor does not have.
        TypeError: for what is no tensor.
    """
    mark = Mark("unbacked", min, max, hint_override, tuple(specialize_on or ()), shape_id, strict)
    _mark(t, index, mark)


def override_optimization_hint(x: Any, val: int) -> None:
    """Give a symbolic number that has no example value the size for which the stages behind choose; nothing for a plain number.

    Raises:
        TypeError: for something else than an integer, or a value that is none.
        ValueError: for a number that has an example value, or is computed from others.
    """
    if not isinstance(val, int) or isinstance(val, bool):
        raise TypeError(f"a hint is an integer, not {class_name(type(val))}")
    if isinstance(x, int):
        return
    if not isinstance(x, torch.SymInt):
        raise TypeError(f"a hint is for an integer, not {class_name(type(x))}")
    symbol, env = x.node.expr, x.node.shape_env
    if not symbol.is_Symbol or not env.is_unbacked_symint(symbol):
        raise ValueError(f"{symbol} is no number without an example value")
    env.var_to_hint_override[symbol] = val


def marks_of(t: torch.Tensor) -> dict[int, Mark]:
    """The marks on `t`; ours go before those of `torch._dynamo`."""
    found: dict[int, Mark] = getattr(t, MARKS, {})
    if not any(name.startswith("_dynamo_") for name in getattr(t, "__dict__", ())):
        return found
    return {**_theirs(t), **found}


def _theirs(t: torch.Tensor) -> dict[int, Mark]:
    """What functions of `torch._dynamo` left on a tensor, as marks of ours."""
    ranges = {part.dim: (part.min, part.max) for part in getattr(t, "_dynamo_dynamic_range", ())}
    ranges |= getattr(t, "_dynamo_unbacked_bounds", {})
    hints, names = getattr(t, "_dynamo_hint_overrides", {}), getattr(t, "_dynamo_shape_ids", {})
    conditions = getattr(t, "_specialize_on", {})
    found: dict[int, Mark] = {}
    for attribute, kind in (
        ("_dynamo_static_indices", Mark("static")),
        ("_dynamo_weak_dynamic_indices", Mark("maybe")),
        ("_dynamo_dynamic_indices", Mark("dynamic")),
        ("_dynamo_unbacked_indices", Mark("unbacked", strict=False)),
        ("_dynamo_strict_unbacked_indices", Mark("unbacked")),
    ):
        for dim in getattr(t, attribute, ()):
            least, most = ranges.get(dim, (None, None))
            found[dim % max(t.ndim, 1)] = evolve(
                kind,
                min=least,
                max=most,
                hint=hints.get(dim),
                conditions=tuple(conditions.get(dim) or ()),
                shape_id=names.get(dim),
            )
    return found


# names in the settings

_DIM = re.compile(r"^(.+):(\d+)$")
_TABLES = re.compile(r"\.__dict__\['(?:_parameters|_buffers|_modules)'\]\['(\w+)'\]")
_DICTS = re.compile(r"\.__dict__\['(\w+)'\]")


@frozen
class Named:
    """What `dynamic_sources`, `unbacked_sources` and `dynamic_values` say.

    Attributes:
        symbolic: patterns of names, each with a dimension or None for all.
        unbacked: the same.
        values: sizes and numbers.
    """

    symbolic: tuple[tuple[str, int | None], ...]
    unbacked: tuple[tuple[str, int | None], ...]
    values: frozenset[int]

    def marks(self, name: str, shape: Sequence[int]) -> dict[int, Mark]:
        """Marks of the dimensions of an input of this name."""
        found = {dim: Mark("maybe") for dim, size in enumerate(shape) if size in self.values}
        for patterns, mark in ((self.symbolic, Mark("maybe")), (self.unbacked, Mark("unbacked", strict=False))):
            for pattern, only in patterns:
                if _is_named(pattern, name):
                    found |= {dim: mark for dim in range(len(shape)) if only in (None, dim)}
        return found

    def is_symbolic(self, name: str, number: Any) -> bool:
        """Whether a number of this name is an input of the graph."""
        return number in self.values or any(_is_named(pattern, name) for pattern, _ in self.symbolic)


def _is_named(pattern: str, name: str) -> bool:
    plain = _DICTS.sub(r".\1", _TABLES.sub(r".\1", name))
    return any(pattern == one or re.match(pattern, one) is not None for one in (name, plain))


@functools.lru_cache(maxsize=64)
def named(symbolic: str, unbacked: str, values: str) -> Named | None:
    """The settings of these texts, taken apart; None where they say nothing. Raises ValueError for a value that is no integer."""
    if not symbolic and not unbacked and not values:
        return None
    numbers = frozenset(int(part) for part in values.replace(" ", "").split(",") if part)
    return Named(_patterns(symbolic), _patterns(unbacked), numbers)


def _patterns(text: str) -> tuple[tuple[str, int | None], ...]:
    found = []
    for part in filter(None, text.replace(" ", "").split(",")):
        cut = _DIM.match(part)
        found.append((cut.group(1), int(cut.group(2))) if cut else (part, None))
        re.compile(found[-1][0])
    return tuple(found)
