"""Calls that run behind the graph show what they would have shown in their place, and are those of the objects that the call was given."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

X = torch.arange(3.0)


class Notes:
    """Keeps what it is told."""

    def __init__(self):
        self.seen = []

    def tell(self, x):
        self.seen.append(x.tolist())


def moving(function, *told, **options):
    return make_region(function, eager, reorderable_logging_functions=frozenset(told), **options)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("write", [lambda y: y.data.mul_(3), lambda y: y.mul_(3), lambda y: y.detach()[1:].mul_(3)])
def test_tensors_are_shown_as_they_were(mode, write):
    notes = Notes()

    def function(x):
        y = x * 2
        notes.tell(x)
        notes.tell(y)
        write(y)
        notes.tell(y)
        return y

    region = moving(function, notes.tell, fullgraph=True)
    told = []
    for called in (function, region, region):
        notes.seen.clear()
        with mode():
            result = called(X)
        told.append((result.tolist(), notes.seen.copy()))
    assert told == [told[0]] * 3


def test_another_object_of_the_class_is_told_itself():
    one, other = Notes(), Notes()

    def function(x, notes):
        notes.tell(x)
        return x + 1

    region = moving(function, one.tell)
    for notes in (one, other, one):
        assert region(X, notes).equal(X + 1)
    assert (len(one.seen), len(other.seen)) == (2, 1)


def test_another_function_of_the_code_is_called_itself():
    def noting(seen):
        def note(x):
            seen.append(x.tolist())

        return note

    one, other = [], []
    first, second = noting(one), noting(other)

    def function(x, note):
        note(x)
        return x + 1

    region = moving(function, first)
    for note in (first, second, first):
        assert region(X, note).equal(X + 1)
    assert (len(one), len(other)) == (2, 1)
