"""Generators that are not run to their end: one graph where nobody can see when Python ends them."""

from __future__ import annotations

import collections.abc
import contextlib

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import GraphBreakError, make_region

NOTES: list[str] = []


def _first_part(x, made):
    """Takes one element of what may have more."""
    for scale, part in zip((2,), made()):
        x = x * scale + part
    return x, len(NOTES)


class Layers(collections.abc.Sequence):
    """Its `__iter__` is Python's own generator, which waits in a `try`."""

    def __getitem__(self, index):
        if index >= 3:
            raise IndexError(index)
        return index + 1

    def __len__(self):
        return 3


def _takes_one_class():
    try:
        yield 1
        yield 2
    except IndexError:
        NOTES.append("index")


def _takes_several():
    try:
        yield 1
        yield 2
    except (ValueError, KeyError) as error:
        NOTES.append(str(error))
    except Exception:
        NOTES.append("another")


def _nested():
    try:
        try:
            yield 1
            yield 2
        except ValueError:
            NOTES.append("inner")
    except TypeError:
        NOTES.append("outer")


UNSEEN = [Layers, _takes_one_class, _takes_several, _nested]


@pytest.mark.parametrize("made", UNSEEN, ids=lambda made: made.__name__)
def test_handlers_that_do_not_take_the_end(made):
    region = make_region(_first_part, eager, fullgraph=True)
    for _ in range(2):
        assert_equal(region(torch.ones(3), made), _first_part(torch.ones(3), made))
    assert not NOTES


def _at_last():
    try:
        yield 1
        yield 2
    finally:
        NOTES.append("finally")


def _takes_all():
    try:
        yield 1
        yield 2
    except BaseException:
        NOTES.append("all")
        raise


def _takes_the_end():
    try:
        yield 1
        yield 2
    except (ValueError, GeneratorExit):
        NOTES.append("end")


def _bare():
    try:
        yield 1
        yield 2
    except:  # noqa: E722 - what is tested
        NOTES.append("bare")


def _within():
    with contextlib.suppress(ValueError):
        yield 1
        yield 2


def _around():
    try:
        try:
            yield 1
            yield 2
        except ValueError:
            NOTES.append("inner")
    finally:
        NOTES.append("outer")


LookupError = BaseException  # noqa: A001 - takes what the class of that name does not


def _shadowed():
    try:
        yield 1
        yield 2
    except LookupError:
        NOTES.append("shadowed")
        raise


SEEN = [_at_last, _takes_all, _takes_the_end, _bare, _within, _around, _shadowed]


@pytest.mark.parametrize("made", SEEN, ids=lambda made: made.__name__)
def test_handlers_that_may_do_something_at_the_end(made):
    found = []
    for run in (_first_part, make_region(_first_part, eager)):
        NOTES.clear()
        found.append((outcome(run, torch.ones(3), made), outcome(run, torch.ones(3), made), list(NOTES)))
    assert_equal(found[1], found[0])
    NOTES.clear()
    with pytest.raises(GraphBreakError):
        make_region(_first_part, eager, fullgraph=True)(torch.ones(3), made)
    NOTES.clear()
