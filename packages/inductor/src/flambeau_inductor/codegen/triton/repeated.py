"""A pointwise kernel whose programs do several blocks, one after the other: each is loaded while the one before it is worked on.

In: the lines that do one block, whose positions are ``xi``. Out: the lines of a program. A kernel that computes about as long as it
waits for memory would else do one after the other in every program, and the multiprocessor both only as far as programs
happen to be at different points.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*) = ")
_LOAD = "tl.load("


def repeat(first: list[str], block: list[str], count: int) -> list[str]:
    """The lines of ``count`` blocks.

    ``first`` are the lines that say where the first block lies, ``xi`` and perhaps its mask; ``block`` those that do one.
    """
    early, rest = _split(block)
    names = [name for line in [*first, *early] for name in _assigned(line)]
    later = re.compile(rf"\b({'|'.join(names)})\b")
    ahead = ["xi_next = xi + XBLOCK", *(later.sub(r"\1_next", line) for line in [*first[1:], *early])]
    if_more = f"    if block + 1 < {count}:"
    return [
        *first,
        *early,
        f"for block in tl.static_range({count}):",
        if_more,
        *(f"        {line}" for line in ahead),
        *(f"    {line}" for line in rest),
        if_more,
        *(f"        {name} = {name}_next" for name in names),
    ]


def _split(block: list[str]) -> tuple[list[str], list[str]]:
    """The loads whose places no other load decides, with what their places are computed from; and the other lines."""
    loaded: set[str] = set()
    places: dict[str, dict[str, None]] = {}
    early: dict[str, None] = {}
    for line in block:
        used, made = _used(line), _assigned(line)
        chain = {place: None for name in sorted(used & places.keys()) for place in places[name]} | {line: None}
        if used & loaded or _LOAD in line:
            early |= chain if not used & loaded else {}
            loaded.update(made)
        else:
            places |= dict.fromkeys(made, chain)
    return [*early], [line for line in block if line not in early]


def _assigned(line: str) -> list[str]:
    match = _ASSIGNED.match(line)
    return [] if match is None else match[1].split(", ")


def _used(line: str) -> set[str]:
    match = _ASSIGNED.match(line)
    return set(_NAME.findall(line if match is None else line[match.end() :]))
