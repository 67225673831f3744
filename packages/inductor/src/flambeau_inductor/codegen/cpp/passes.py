"""How many times the inner loops run, what each pass computes, and what is kept between passes.

In: the statements of a ``KernelBody``. Out: pass numbers, and the expensive values that a later pass needs again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from ...ir.kernel import Reduce, ScanStep, Statement, Store
from ...ir.layout import Buffer
from ...ir.scalar import Scalar, cost, walk
from ...schedule.nest import values

#: A store to and a load from memory that a core has in its nearest cache, in simple instructions.
_KEEPING = 4


@frozen
class Passes:
    """``inner[p]`` are the statements of pass ``p``; ``after[p]`` the outer statements that follow it (index 0: before all)."""

    inner: tuple[tuple[Statement, ...], ...]
    after: tuple[tuple[Store, ...], ...]


def plan_passes(statements: Sequence[Statement], buffers: Mapping[str, Buffer]) -> Passes:
    """Give each statement the earliest pass in which all it uses is known; in-place stores go last."""
    ready: dict[str, int] = {}
    placed: list[tuple[int, Statement]] = []
    late: list[Store] = []
    outer: list[tuple[int, Store]] = []
    for statement in statements:
        at = max((ready[name] for name in uses(statement)), default=0)
        if isinstance(statement, Reduce):
            placed.append((at, statement))
            ready[statement.name] = at + 1
        elif isinstance(statement, ScanStep):
            placed.append((at, statement))
            ready[statement.name] = at
        elif statement.level == "inner":
            if buffers[statement.buffer].in_place:
                late.append(statement)
            else:
                placed.append((at, statement))
        else:
            outer.append((at, statement))
    count = max([at for at, _ in placed], default=-1) + 1
    for store in late:
        count = max(count, max((ready[name] for name in uses(store)), default=0) + 1)
    placed += [(count - 1, store) for store in late]
    # An in-place outer store waits for every pass: an earlier one may read what it overwrites.
    outer = [(count if buffers[s.buffer].in_place else at, s) for at, s in outer]
    inner = tuple(tuple(s for at, s in placed if at == p) for p in range(count))
    after = tuple(tuple(s for at, s in outer if at == p) for p in range(count + 1))
    return Passes(inner, after)


def scan_levels(scans: Sequence[ScanStep]) -> list[list[ScanStep]]:
    """The scans of one pass in groups, each of which needs those of earlier groups alone."""
    level: dict[str, int] = {}
    groups: list[list[ScanStep]] = []
    for scan in scans:
        level[scan.name] = at = max((level[name] + 1 for name in uses(scan) if name in level), default=0)
        if at == len(groups):
            groups.append([])
        groups[at].append(scan)
    return groups


def uses(statement: Statement) -> set[str]:
    """Reduced names a statement needs."""
    return {n.args[0] for v in values(statement) for n in walk(v) if n.kind == "reduced"}


def is_dear(node: Scalar) -> bool:
    """True when computing the node again costs more than keeping it."""
    total = 0
    for part in walk(node):
        if part.op != "to_dtype":
            total += cost(part, "cpu")
        if total >= _KEEPING:
            return True
    return False


def kept_values(passes: Passes, worth: Callable[[Scalar], bool]) -> dict[Scalar, int]:
    """Node -> the pass that computes it first, for nodes (largest first) that later passes use and ``worth`` accepts."""
    first: dict[Scalar, int] = {}
    kept: dict[Scalar, int] = {}
    for number, statements in enumerate(passes.inner):
        roots = [v for s in statements for v in values(s)]
        stack = list(roots)
        seen: set[Scalar] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if first.get(node, number) < number and worth(node):
                kept[node] = first[node]
                continue
            stack.extend(node.children)
        for node in walk(*roots):
            first.setdefault(node, number)
    return kept
