"""How many arguments a model of a function takes: as Python binds them. What a pure function makes is made at each call, where a program may write to it."""

from __future__ import annotations

import inspect

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region
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


MADE = {
    "bytearray": lambda: bytearray(b"ab"),
    "bytearray of a number": lambda: bytearray(3),
    "bytearray, from text": lambda: bytearray.fromhex("0a0b"),
    "bytearrays in a list": lambda: [bytearray(b"a"), bytearray(b"b")][0],
    "memoryview": lambda: memoryview(bytearray(b"ab")),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_what_is_written_to_is_made_at_each_call(make):
    def f(x):
        made = make()
        made[0] = made[0] + 1
        return x + 1, bytes(made), made

    records = []
    region = make_region(f, eager, observer=records.append)
    found = [region(torch.ones(1)) for _ in range(3)]
    assert [bytes(row) for _, row, _ in found] == [f(torch.ones(1))[1]] * 3
    assert len({id(made) for *_, made in found}) == 3
    assert records, "nothing was looked at"


def test_an_exception_that_its_class_makes_alone_is_another_each_time():
    def f(x):
        made = BaseException.__new__(ValueError, 1)
        made.seen = getattr(made, "seen", 0) + 1
        return x + 1, made.seen

    region = make_region(f, eager)
    assert [region(torch.ones(1))[1] for _ in range(3)] == [1, 1, 1]
