"""Minimum cut of a capacitated graph: the Python twin of `_C.min_cut_side`, and the choice between the two.

In: arcs as three lists. Out: one byte per vertex, 1 on the source side of the minimum cut nearest to the sink.
"""

from __future__ import annotations

from collections import deque

from ..wrappers.native import native_module


def min_cut_side(
    count: int,
    tails: list[int],
    heads: list[int],
    capacities: list[int],
    source: int,
    sink: int,
    *,
    native: bool = True,
) -> bytes:
    """Run the native flow where there is one, else the twin; both give the same answer."""
    module = native_module() if native else None
    if module is not None:
        return module.min_cut_side(count, tails, heads, capacities, source, sink)
    return min_cut_side_py(count, tails, heads, capacities, source, sink)


def min_cut_side_py(
    count: int, tails: list[int], heads: list[int], capacities: list[int], source: int, sink: int
) -> bytes:
    """Shortest augmenting paths (breadth first); arc i ^ 1 is the residual of arc i."""
    arcs: list[list[int]] = [[] for _ in range(count)]
    head: list[int] = []
    room: list[int] = []
    for tail, to, capacity in zip(tails, heads, capacities):
        for start, end, free in ((tail, to, capacity), (to, tail, 0)):
            arcs[start].append(len(head))
            head.append(end)
            room.append(free)
    while True:
        came = _breadth_first(arcs, head, room, source, sink)
        if came is None:
            break
        path = []
        vertex = sink
        while vertex != source:
            arc = came[vertex]
            path.append(arc)
            vertex = head[arc ^ 1]
        amount = min(room[arc] for arc in path)
        for arc in path:
            room[arc] -= amount
            room[arc ^ 1] += amount
    reached = bytearray(count)
    reached[sink] = 1
    queue = [sink]
    while queue:
        for arc in arcs[queue.pop()]:
            start = head[arc]
            if not reached[start] and room[arc ^ 1] > 0:
                reached[start] = 1
                queue.append(start)
    return bytes(1 - flag for flag in reached)


def _breadth_first(
    arcs: list[list[int]], head: list[int], room: list[int], source: int, sink: int
) -> dict[int, int] | None:
    came: dict[int, int] = {source: -1}
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for arc in arcs[vertex]:
            to = head[arc]
            if room[arc] > 0 and to not in came:
                came[to] = arc
                if to == sink:
                    return came
                queue.append(to)
    return None
