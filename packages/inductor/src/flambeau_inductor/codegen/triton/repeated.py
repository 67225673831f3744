"""A pointwise kernel whose programs do several blocks, one after the other: each is loaded while the one before it is worked on.

In: an emitter whose blocks lie at ``xi``, and what writes a block's statements. Out: the lines of a program. A kernel that computes about as
long as it waits for memory would else do one after the other in every program, and the multiprocessor both only as far as programs happen
to be at different points.

What is loaded ahead is written twice: for the first block, and under names that end in ``_next`` for the one after the block at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.kernel import Statement
from .values import Emitter, Scope

_NEXT = "_next"


def repeat(
    emitter: Emitter, statements: Sequence[Statement], write: Callable[[], None], *, start: str, points: str, count: int
) -> list[str]:
    """The lines of ``count`` blocks, of which the first lies at ``start``. ``write`` writes ``statements`` into the emitter's scope; there are
    ``points`` in all."""
    masks = dict(emitter.masks)

    def loaded(suffix: str) -> Scope:
        emitter.restart(suffix)
        emitter.masks = {prefix: mask + suffix for prefix, mask in masks.items()}
        for statement in statements:
            emitter.emit_loads(statement.value)
        return emitter.scopes[0]

    ahead, first = loaded(_NEXT), loaded("")
    early = list(first.lines)
    names = ["xi", *masks.values(), *dict.fromkeys(value.text for value in first.values.values())]
    first.lines.clear()
    write()
    if_more = f"    if block + 1 < {count}:"
    return [
        f"xi = {start}",
        *(f"{mask} = xi < {points}" for mask in masks.values()),
        *early,
        f"for block in tl.static_range({count}):",
        if_more,
        f"        xi{_NEXT} = xi + XBLOCK",
        *(f"        {mask}{_NEXT} = xi{_NEXT} < {points}" for mask in masks.values()),
        *(f"        {line}" for line in ahead.lines),
        *(f"    {line}" for line in first.lines),
        if_more,
        *(f"        {name} = {name}{_NEXT}" for name in names),
    ]
