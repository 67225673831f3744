"""Descent over knobs: it finds the bottom of a bowl, goes no step that gains nothing, and stops when its budget is gone."""

from __future__ import annotations

from attrs import frozen

from flambeau_inductor.autotune.descent import Budget, descend


@frozen
class Bowl:
    """Ways are numbers; neighbours are twice and half of one."""

    bottom: int

    @property
    def neighbours(self):
        return lambda way: [way * 2, *([way // 2] if way > 1 else [])]

    def seconds(self, way):
        return 1.0 + abs(way.bit_length() - self.bottom.bit_length()) * 0.1


def run(bowls, starts, budget, *, drift=1.0, failing=()):
    asked = []

    def time_ways(questions):
        asked.append([(bowl.bottom, list(ways)) for bowl, ways in questions])
        factor = drift ** len(asked)
        return [
            {way: None if way in failing else bowl.seconds(way) * factor for way in ways} for bowl, ways in questions
        ]

    timed = [{start: bowl.seconds(start)} for bowl, start in zip(bowls, starts, strict=True)]
    descend(bowls, timed, time_ways, budget, 0.98)
    best = [min((w for w in times if times[w] is not None), key=lambda w: times[w]) for times in timed]
    return best, asked


def budget(**limits):
    return Budget(**{"programs": 100, "seconds": 10.0, "rounds": 100, "clock": lambda: 0.0, **limits})


def test_all_go_down_together_until_nothing_gains():
    best, asked = run([Bowl(64), Bowl(4)], [8, 8], budget())
    assert best == [64, 4]
    # Both at first, one alone in the end: three steps up, and one that gains nothing.
    assert [len(part) for part in asked] == [2, 2, 1, 1]


def test_a_machine_that_slows_down_misleads_nobody():
    """Each round times the best so far again: only what is faster beside it counts."""
    assert run([Bowl(64)], [8], budget(), drift=1.5)[0] == [64]
    assert run([Bowl(8)], [8], budget(), drift=0.5)[0] == [8]


def test_what_fails_is_not_a_step():
    assert run([Bowl(64)], [8], budget(), failing=(16,))[0] == [8]


def test_the_budget_ends_it():
    assert run([Bowl(1 << 20)], [1], budget(rounds=3))[0] == [8]
    _, asked = run([Bowl(64), Bowl(64)], [8, 8], budget(programs=5))
    assert sum(len(ways) - 1 for part in asked for _, ways in part) == 5
    clock = iter(range(100))
    _, asked = run([Bowl(1 << 30)], [1], budget(clock=lambda: next(clock), seconds=4.0))
    assert len(asked) == 3


def test_what_takes_longest_comes_first():
    _, asked = run([Bowl(16), Bowl(64), Bowl(32)], [8, 8, 8], budget(programs=3))
    assert [bottom for bottom, _ in asked[0]] == [64, 32]


def test_nothing_to_begin_with():
    timed = [{8: None}]
    descend([Bowl(64)], timed, lambda questions: [], budget(), 0.98)
    assert timed == [{8: None}]
