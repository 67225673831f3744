"""A slice of every sweep, always the same seeds: each program does compiled what it does plain.

`KNOWN` holds the seeds of the slices whose fault is not mended as yet, with what it is. One that does as plain Python does has to leave the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from .examine import Verdict, examine
from .generators import GENERATORS
from .report import as_test

#: Sweep -> programs of a block, blocks in the quick tests, blocks in the slow ones.
SIZES = {"tensors": (10, 5, 40), "python": (20, 4, 50), "states": (8, 4, 20), "pairs": (40, 3, 40)}
#: Sweep -> seed -> what is wrong.
KNOWN: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "tensors": {},
        "python": {},
        "states": {},
        "pairs": {},
    }
)

QUICK = [(name, block) for name, (_, blocks, _) in SIZES.items() for block in range(blocks)]
SLOW = [(name, blocks + block) for name, (_, blocks, more) in SIZES.items() for block in range(more)]


@pytest.mark.parametrize(("sweep", "block"), QUICK)
def test_a_slice(sweep: str, block: int) -> None:
    """The first programs, with those that are known to fail."""
    seeds = _seeds(sweep, block)
    verdicts = {seed: _verdict(sweep, seed) for seed in seeds}
    failing = {seed: words for seed, verdict in verdicts.items() if (words := _words(sweep, seed, verdict))}
    compiled = [verdict for verdict in verdicts.values() if verdict.graphs > len(verdict.eager)]
    assert len(compiled) * 4 > len(verdicts), "hardly anything was compiled"
    unknown = [words for seed, words in failing.items() if seed not in KNOWN[sweep]]
    assert not unknown, "\n".join(unknown)
    assert [seed for seed in seeds if seed in KNOWN[sweep] and seed not in failing] == [], (
        "these are mended: take them out of KNOWN"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "block"), SLOW)
def test_many(sweep: str, block: int) -> None:
    """Those that follow."""
    failing = [words for seed in _seeds(sweep, block) if (words := _words(sweep, seed, _verdict(sweep, seed)))]
    assert not failing, "\n".join(failing)


def _seeds(sweep: str, block: int) -> range:
    size = SIZES[sweep][0]
    return range(block * size, block * size + size)


def _verdict(sweep: str, seed: int) -> Verdict:
    verdict = examine(GENERATORS[sweep](seed, None))
    assert not verdict.broken, f"{sweep} {seed}: {verdict.broken}"
    return verdict


def _words(sweep: str, seed: int, verdict: Verdict) -> str:
    """What is wrong, with the program; nothing where it does the same."""
    if verdict.failure is None:
        return ""
    program = GENERATORS[sweep](seed, None)
    return f"{verdict.failure}\n{as_test(program, verdict.failure, program.source)}"
