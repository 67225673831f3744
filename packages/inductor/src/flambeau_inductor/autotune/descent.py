"""Coordinate descent: one knob of the best way at a time, as long as that helps and the budget lasts.

In: questions with the times of their ways, a function that times further ones. Out: the times of the ways that were tried on top. All questions go one step at a time
together, so that the kernels of a round are compiled at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
from attrs import define, field

#: Programs that may be made, seconds after which no further round begins, and rounds. A kernel is compiled in about a second on one core.
MOST_PROGRAMS, MOST_SECONDS, MOST_ROUNDS = 48, 4.0, 4

Times = dict[Any, float | None]


class Tuned(Protocol):
    """What has ways, and neighbours of a way."""

    @property
    def neighbours(self) -> Callable[[Any], Iterable[Any]]: ...


@define
class Budget:
    """What a descent may still spend."""

    programs: int = MOST_PROGRAMS
    seconds: float = MOST_SECONDS
    rounds: int = MOST_ROUNDS
    clock: Callable[[], float] = time.monotonic
    _begin: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._begin = self.clock()

    @property
    def is_left(self) -> bool:
        """Whether another round may begin."""
        return self.programs > 0 and self.rounds > 0 and self.clock() - self._begin < self.seconds

    def take(self, wanted: Sequence[Any]) -> Sequence[Any]:
        """As many of ``wanted`` as there is room for."""
        taken = wanted[: self.programs]
        self.programs -= len(taken)
        return taken


def descend(
    questions: Sequence[Tuned],
    timed: Sequence[Times],
    time_ways: Callable[[Sequence[tuple[Any, Sequence[Any]]]], Sequence[Times]],
    budget: Budget,
    noise: float,
    *,
    radius: int = 1,
    all_directions: bool = False,
) -> None:
    """Add to ``timed`` the times of neighbours of each question's best way, of the best among those, and so on: a step must gain more than ``noise``.

    Ways up to ``radius`` steps of one knob away count as neighbours; ``all_directions``: where none of them gains, so do those that differ in two knobs.
    """
    best: dict[int, Any] = {}
    for number, times in enumerate(timed):
        known = {way: taken for way, taken in times.items() if taken is not None}
        if known:
            best[number] = min(known, key=lambda way: known[way])
    wide: set[int] = set()
    while best and budget.is_left:
        budget.rounds -= 1
        asked: list[tuple[int, Sequence[Any]]] = []
        # What takes longest comes first, while there is room.
        for number in sorted(best, key=lambda number: -(timed[number][best[number]] or 0.0)):
            way = best[number]
            near = around(questions[number].neighbours, way, radius, two_knobs=number in wide)
            fresh = [other for other in near if other not in timed[number]]
            taken = budget.take(fresh)
            if taken:
                # Beside the best so far: times of different rounds are not comparable.
                asked.append((number, [way, *taken]))
        rounds = time_ways([(questions[number], ways) for number, ways in asked])
        moved: dict[int, Any] = {}
        for (number, ways), times in zip(asked, rounds, strict=True):
            step = _step(number, ways, times, timed[number], noise)
            if step:
                wide.discard(number)
            elif all_directions and number not in wide:
                wide.add(number)
                step = {number: ways[0]}
            moved |= step
        best = moved


def around(neighbours: Callable[[Any], Iterable[Any]], way: Any, radius: int, *, two_knobs: bool = False) -> list[Any]:
    """The ways up to ``radius`` steps of one knob from ``way``, the nearest first; ``two_knobs``: those that differ from it in two, instead."""
    near = list(neighbours(way))
    if two_knobs:
        beside = dict.fromkeys(near)
        return [other for first in near for other in neighbours(first) if other != way and other not in beside]
    found, last = dict.fromkeys(near), near
    for _ in range(radius - 1):
        further = [other for first in last for other in neighbours(first) if _knobs(way, other) <= _knobs(way, first)]
        last = [other for other in dict.fromkeys(further) if other != way and other not in found]
        found |= dict.fromkeys(last)
    return list(found)


def _knobs(way: Any, other: Any) -> set[str]:
    """The fields in which two ways differ; of a field that is a table each entry counts."""
    found = set()
    for name, value in attrs.asdict(way, recurse=False).items():
        against = getattr(other, name)
        if isinstance(value, Mapping) and isinstance(against, Mapping):
            found |= {f"{name} {key}" for key in {*value, *against} if value.get(key) != against.get(key)}
        elif value != against:
            found.add(name)
    return found


def _step(number: int, ways: Sequence[Any], times: Times, known: Times, noise: float) -> dict[int, Any]:
    """Add the times of a round to those that are known, as a share of what the way before it takes; where to go on from, if there is a better one."""
    before, reference = known[ways[0]], times[ways[0]]
    if reference is None or before is None:
        return {}
    better: dict[Any, float] = {}
    for other in ways[1:]:
        seconds = times[other]
        known[other] = None if seconds is None else seconds * before / reference
        if seconds is not None and seconds < noise * reference:
            better[other] = seconds
    return {number: min(better, key=lambda other: better[other])} if better else {}
