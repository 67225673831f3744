"""What is known of a block mask that a program brings: whether its arrays call for what a plain mask function alone says.

In: the arrays of a `BlockMask`, as values, and the lengths. Out: options of `flex_attention` for those who compile it, with guards that these very arrays come
again, unwritten. `BLOCKS_ALLOW_CAUSAL`: if the functions say that a query attends to no key behind it, the blocks change nothing about that, as each block that such
a query needs is in them once, and none is called full that is not. `BLOCKS_ALLOW_ALL`: the same of functions that leave out nothing. Nobody has to ask the arrays then.

Where another mask came at the next call nothing is known any more: programs that make a mask for each call are compiled twice, and not again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..sources.source import Attribute
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer, Value
    from .bodies import Body

ALLOW_ALL, ALLOW_CAUSAL = "BLOCKS_ALLOW_ALL", "BLOCKS_ALLOW_CAUSAL"
#: Devices whose libraries have attention that a block mask may speak against, and how many operations scores and masks have at most that they have.
DEVICES = ("cuda",)
_MOST = (1, 12)
#: Where the arrays are in `BlockMask.as_tuple()`: for each block of queries, then for each block of keys, how many others it needs, and which, those that are masked and full ones.
_FIRST, _ARRAYS = 2, 8


def known_of_all(device: torch.device) -> Mapping[str, bool]:
    """What holds where there is no block mask."""
    return {ALLOW_ALL: True, ALLOW_CAUSAL: True} if device.type in DEVICES else {}


def known_blocks(
    t: Tracer, blocks: Sequence[Value], bodies: Sequence[Body], lengths: tuple[Any, Any], sizes: tuple[Any, Any]
) -> Mapping[str, bool]:
    """Options that hold of `blocks`, guarded; none where nothing could come of them. `sizes` are those of a block of queries and of keys."""
    arrays = [value.realise(t) for value in blocks[_FIRST : _FIRST + _ARRAYS]]
    given = [value for value in arrays if isinstance(value, TensorValue)]
    if not all(type(n) is int and n > 0 for n in (*lengths, *sizes)) or not all(map(_has_few, bodies, _MOST)):
        return {}
    if not given or not all(map(_is_readable, given)):
        return {}
    learn = t.frames.break_at is None
    seen = [(str(value.source.name), (id(value.tensor), value.tensor._version)) for value in given if value.source]
    if t.wrapper.numbers.dynamics.see_number(f"contents of {seen[0][0]}", tuple(now for _, now in seen), learn=learn):
        return {}
    with t.graph.unpatched, torch.no_grad():
        found = _said([value.tensor if isinstance(value, TensorValue) else None for value in arrays], lengths, sizes)
    for value in given if found else ():
        assert value.source is not None
        t.guards.identity(value.source, value.tensor)
        t.guards.constant(Attribute(value.source, "_version"), value.tensor._version)
    return dict.fromkeys(found, True)


def _has_few(body: Body, most: int) -> bool:
    """Whether a function could be one that libraries have."""
    return not body.graph.lifted and sum(node.op.startswith("call") for node in body.graph.graph.nodes) <= most


def _is_readable(value: TensorValue) -> bool:
    """Whether an array is one that the caller brings, which the frame has not written to, and may be read now."""
    real, fake = value.tensor, value.fake
    if type(real) is not torch.Tensor or value.source is None or real.device.type not in DEVICES or real.is_inference():
        return False
    if fake._version or real.dtype is not torch.int32:
        return False
    return not (real.is_cuda and torch.cuda.is_current_stream_capturing())


def _said(arrays: list[torch.Tensor | None], lengths: tuple[int, int], sizes: tuple[int, int]) -> tuple[str, ...]:
    """Which options hold."""
    by_query, by_key = arrays[:4], arrays[4:]
    rows, columns = (-(-length // size) for length, size in zip(lengths, sizes, strict=True))
    first = torch.arange(rows).unsqueeze(-1) * sizes[0]
    last = torch.clamp(first + sizes[0], max=lengths[0]) - 1
    from_key = torch.arange(columns) * sizes[1]
    to_key = torch.clamp(from_key + sizes[1], max=lengths[1]) - 1
    needed, whole = from_key <= last, to_key <= first
    found = [_listed(by_query, rows, columns)]
    if any(array is not None for array in by_key):
        turned = _listed(by_key, columns, rows)
        found.append(None if turned is None else (turned[0].mT, turned[1].mT))
    pairs = [pair for pair in found if pair is not None]
    if len(pairs) < len(found):
        return ()
    holds = {
        ALLOW_ALL: all(bool((masked | full).all()) for masked, full in pairs),
        ALLOW_CAUSAL: all(
            bool((masked | full | ~needed).all()) and not bool((full & ~whole).any()) for masked, full in pairs
        ),
    }
    return tuple(name for name, holding in holds.items() if holding)


def _listed(arrays: Sequence[torch.Tensor | None], rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The blocks that are listed as masked and as full, of (…, rows, columns); None where the arrays are no such lists, or have a block twice."""
    masked, full = (_counted(arrays[at], arrays[at + 1], rows, columns) for at in (0, 2))
    if masked is None or full is None or int((masked + full).max()) > 1:
        return None
    return masked > 0, full > 0


def _counted(count: torch.Tensor | None, place: torch.Tensor | None, rows: int, columns: int) -> torch.Tensor | None:
    """How many times each block is listed; None where that is not a list of blocks."""
    if count is None and place is None:
        return torch.zeros(1, 1, rows, columns, dtype=torch.int32)
    if count is None or place is None or count.ndim != 3 or place.shape[:-1] != count.shape or count.shape[-1] != rows:
        return None
    count, place = count.cpu(), place.cpu().long()
    is_listed = torch.arange(place.shape[-1]) < count.unsqueeze(-1)
    if bool((is_listed & ((place < 0) | (place >= columns))).any()) or int(count.max()) > place.shape[-1]:
        return None
    found = torch.zeros(*count.shape, columns, dtype=torch.int32)
    return found.scatter_add_(-1, place.clamp(0, columns - 1), is_listed.int())
