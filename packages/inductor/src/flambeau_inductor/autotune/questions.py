"""Which of several ways to compute the same is the fastest: asked of the store first, then of the clock.

In: ``Question``s, each with the ways that there are, the first of which is taken where nothing is known. Out: an answer for each, a way, or ``UNKNOWN``
where nothing was measured and nothing may be. What has to be measured is measured together: all kernels are compiled at once, and each question's programs are timed in
turn, in another process (``flambeau_runtime.timing``). Answers are kept for the device and the versions, so that a later process measures nothing.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import torch
from attrs import field, frozen

from flambeau_runtime import Artifact, CacheKey, Store, default_store, library_settings
from flambeau_runtime.timing import time_groups

from ..config import Config
from ..devices import device_facts
from ..log import MEASURED, logger
from .descent import Budget, descend
from .progress import Progress

KIND: Final = "tuning"
#: By how much a way must be faster than the first in a measurement: what two runs of one program differ by.
NOISE = 0.98


class Unknown:
    """The answer to a question that nobody has measured."""


UNKNOWN: Final = Unknown()


@frozen(eq=False)
class Question:
    """``asked`` is all that decides the answer, sizes in buckets. A way is None, a text or an attrs record of type ``record``; ``program`` makes a program
    of it (None where it cannot be one), ``neighbours`` the ways that differ from it in one knob."""

    name: str
    asked: str
    device: torch.device
    ways: tuple[Any, ...]
    program: Callable[[Any], Artifact | None]
    record: Callable[..., Any] = dict
    neighbours: Callable[[Any], Iterable[Any]] = field(default=lambda way: ())

    @property
    def key(self) -> CacheKey:
        """Where the answer is kept."""
        return key_of(self.asked, self.device)

    def stored(self, store: Store) -> Any:
        """The answer that is kept."""
        kept = store.get_json(self.key)
        if not isinstance(kept, dict) or "way" not in kept:
            return UNKNOWN
        way = kept["way"]
        if not isinstance(way, dict):
            return way
        try:
            return self.record(**way)
        except (TypeError, ValueError):
            # Another version's.
            return UNKNOWN

    def keep(self, way: Any, store: Store) -> None:
        """Keep the answer."""
        store.put_json(self.key, {"way": attrs.asdict(way) if attrs.has(type(way)) else way})


def anything_stored() -> bool:
    """Whether anything was ever measured: else nothing is worth looking up."""
    return default_store().holds(KIND)


def key_of(asked: str, device: torch.device) -> CacheKey:
    """The place of an answer: what was asked, of which device, with whose library, what that may do, and which generator."""
    versions = f"{torch.__version__} {torch.version.cuda} {_generator()}"
    libraries = repr(library_settings.current())
    facts = {"asked": asked, "device": device_facts(device).name, "libraries": libraries, "versions": versions}
    return CacheKey(KIND, facts)


def answers(questions: Sequence[Question], config: Config, *, measure: bool, subject: str = KIND) -> list[Any]:
    """An answer to each question, under the options ``config``. ``subject`` is what progress calls them."""
    store = default_store() if config.autotune_local_cache else _unkept()
    different = {question.key.digest: question for question in questions}
    found = {digest: question.stored(store) for digest, question in different.items()}
    open_ones = [question for digest, question in different.items() if found[digest] is UNKNOWN]
    if measure and open_ones:
        with Progress(subject, len(open_ones)) as progress:
            measured = _measured(open_ones, config, progress)
            for question, way in zip(open_ones, measured, strict=True):
                question.keep(way, store)
                found[question.key.digest] = way
    return [found[question.key.digest] for question in questions]


@functools.cache
def _unkept() -> Store:
    """Answers that nothing is to be kept of: they last as long as this process."""
    return Store(None)


def _measured(questions: Sequence[Question], config: Config, progress: Progress) -> list[Any]:
    """With ``coordinate_descent_tuning``: look around the best way of each for a better one, as far as a budget goes."""
    timed = time_ways([(question, question.ways) for question in questions], progress)
    if config.coordinate_descent_tuning:
        descend(
            questions,
            timed,
            lambda asked: time_ways(asked, progress),
            Budget(),
            NOISE,
            radius=config.coordinate_descent_search_radius,
            all_directions=config.coordinate_descent_check_all_directions,
        )
    chosen: list[Any] = []
    for question, times in zip(questions, timed, strict=True):
        way = fastest(question.ways[0], times)
        chosen.append(way)
        seconds = {repr(other): taken for other, taken in times.items()}
        logger.info(MEASURED, artifact="autotuning", question=question.name, chosen=way, seconds=seconds)
    return chosen


def fastest(first: Any, times: dict[Any, float | None]) -> Any:
    """The way that takes least time, where that is clearly less than ``first`` takes. Nothing is compared with a ``first`` that has no time."""
    reference = times.get(first)
    known = {way: taken for way, taken in times.items() if taken is not None}
    if reference is None or not known:
        return first
    best = min(known, key=lambda way: known[way])
    return best if known[best] < NOISE * reference else first


def time_ways(asked: Sequence[tuple[Question, Sequence[Any]]], progress: Progress) -> list[dict[Any, float | None]]:
    """Seconds of each of the ways given with a question; None for one that fails or cannot be a program."""
    programs = [{way: question.program(way) for way in ways} for question, ways in asked]
    groups = [[program for program in made.values() if program is not None] for made in programs]
    if not groups:
        return []
    times = time_groups(groups, device=asked[0][0].device, store=default_store(), done=progress.step)
    found: list[dict[Any, float | None]] = []
    for made, taken in zip(programs, map(iter, times), strict=True):
        found.append({way: None if program is None else next(taken) for way, program in made.items()})
    return found


@functools.cache
def _generator() -> str:
    """What decides a kernel's text: answers are those of these very kernels."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for part in ("codegen", "kernel_ir", "autotune"):
        for path in sorted((folder / part).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
