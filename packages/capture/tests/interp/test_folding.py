"""How many arguments a model of a function takes: as Python binds them."""

from __future__ import annotations

import inspect

import pytest

from flambeau_capture.interp.folding import _takes

FUNCTIONS = (
    lambda: 0,
    lambda a: 0,
    lambda a, b=1: 0,
    lambda a, /, b: 0,
    lambda *a: 0,
    lambda a, *more: 0,
    lambda a, *, c=1: 0,
    lambda a, *, c: 0,
    lambda **more: 0,
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(inspect.signature(function)))
def test_a_model_takes_what_its_signature_binds(function):
    for count in range(4):
        for named in ({}, {"c": 1}, {"b": 1}, {"none": 1}):
            try:
                inspect.signature(function).bind(*range(count), **named)
                expected = True
            except TypeError:
                expected = False
            assert _takes(function, *range(count), **named) is expected, (count, named)
