"""How regions are called under each stance of the process: as they are, from the cache alone, elsewhere, after others agreed."""

from __future__ import annotations

import pytest

from flambeau_capture.guards.spec import TypeIs
from flambeau_capture.hook import make_region
from flambeau_capture.native import _C
from flambeau_capture.sources.source import Local

from .regions import replace

DEFAULT, EAGER, ELSEWHERE = 0, 1, 4


@pytest.fixture
def stance():
    """`stance(number, differing_only, agree)` for one region; the default comes back for it afterwards."""
    regions = []

    def change(region, number, differing_only=False, agree=None):
        _C.set_stance(number, differing_only, agree)
        region.adopt_stance()
        regions.append(region)

    yield change
    _C.set_stance(DEFAULT, False, None)
    for region in regions:
        region.adopt_stance()


def plain(x):
    return x + 1


def tens(x):
    return x * 10


def made(seen=None):
    return make_region(plain, replace({"plain": tens}, TypeIs(Local("x"), int), seen=seen))


def test_eager_runs_what_is_wrapped_and_default_the_entry_again(stance):
    seen = []
    region = made(seen)
    assert region(2) == 20
    stance(region, EAGER)
    assert [region(2), region(x=3)] == [3, 4]
    stance(region, DEFAULT)
    assert region(2) == 20
    assert seen == ["plain"]


def test_an_entry_runs_where_it_was_agreed_upon(stance):
    asked = []
    answer = True

    def agree(found):
        asked.append(found)
        return answer

    region = made()
    assert region(2) == 20
    stance(region, DEFAULT, agree=agree)
    assert region(2) == 20
    assert asked == [True]
    answer = False
    region(2)
    assert asked[1] is True


@pytest.mark.parametrize("answer", ["raises", "has no truth"])
def test_what_goes_wrong_while_it_is_agreed_reaches_the_caller(stance, answer):
    class Undecided:
        def __bool__(self):
            raise ValueError("undecided")

    def agree(found):
        if answer == "raises":
            raise ValueError("undecided")
        return Undecided()

    region = made()
    assert region(2) == 20
    stance(region, DEFAULT, agree=agree)
    with pytest.raises(ValueError, match="undecided"):
        region(2)
    stance(region, DEFAULT)
    assert region(2) == 20


def test_of_several_entries_only_what_differs_is_looked_at(stance):
    """And of a single one nothing: it runs for what its guards would refuse."""
    region = made()
    assert region(2) == 20
    stance(region, DEFAULT, differing_only=True)
    assert region(2) == 20
    assert region(2.5) == 25.0


class Handler:
    """Captures nothing, and gives the answers of `answers`, one after the other, when it is asked for a region."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, *frame):
        return None

    def tell_nothing_ran(self, called):
        pass

    def elsewhere(self, region):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_elsewhere_asks_the_handler_for_the_region(stance):
    other = made()
    assert other(2) == 20
    region = _C.Region(plain, Handler(other, tens, LookupError("there is none")))
    stance(region, ELSEWHERE)
    assert region(2) == 20
    with pytest.raises(TypeError, match="a handler names a region"):
        region(2)
    with pytest.raises(LookupError, match="there is none"):
        region(2)
    stance(region, DEFAULT)
    assert region(2) == 3


@pytest.mark.parametrize("number", [-1, 5])
def test_there_is_no_other_stance(number):
    with pytest.raises(ValueError, match="no such stance"):
        _C.set_stance(number, False, None)
