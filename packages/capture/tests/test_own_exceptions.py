"""An exception of the program is the program's own: type, text, arguments, cause, context and place, with `fullgraph` too."""

from __future__ import annotations

import traceback

import pytest
import torch
from both_ways import assert_equal, eager

from flambeau_capture import make_region
from flambeau_capture.errors import GraphBreakError


class Mine(Exception):
    def __init__(self, first, second=2):
        super().__init__(first, second)
        self.first = first


def raises_mine(x):
    raise Mine(3)


def plain(x):
    y = x * 2
    raise ValueError("mine", y.shape[0])


def in_a_context(x):
    try:
        {}["k"]
    except KeyError:
        raise Mine("in a context", second=5)  # noqa: B904 - the context is what is looked at


def from_another(x):
    y = x + 1
    try:
        {}["k"]
    except KeyError as error:
        raise RuntimeError("outer", y.shape[0]) from error


def below(x):
    y = x * 2
    if x.shape[0] == 3:
        return raises_mine(y)
    return y


def number_of_errno(x):
    raise OSError(2, "no such thing")


PROGRAMS = {
    "plain": plain,
    "in a context": in_a_context,
    "from another": from_another,
    "below": below,
    "errno": number_of_errno,
    "attribute": lambda x: x.nope,
    "name": lambda x: undefined_name + x,  # noqa: F821
    "operator": lambda x: x.view(7),
    "index": lambda x: (x + 1)[10],
    "conversion": lambda x: int("zz") + x,
    "arguments": lambda x: raises_mine(x, 1, surplus=2),
}


def told(error):
    """Everything that a handler can see of an exception and of what led to it."""
    seen = []
    while error is not None:
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
        seen.append((type(error), str(error), error.args, vars(error), error.__suppress_context__, names))
        error = error.__cause__ or error.__context__
    return seen


def raised(function, x):
    try:
        function(x)
    except Exception as error:
        return told(error)
    return None


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_plain_python(name, fullgraph):
    region = make_region(PROGRAMS[name], eager, fullgraph=fullgraph, suppress_errors=False)
    x = torch.ones(3)
    expected = raised(PROGRAMS[name], x)
    assert expected is not None
    for _ in range(2):
        assert raised(region, x) == expected


def test_a_call_that_does_not_raise_is_captured_after_one_that_did():
    records = []

    def function(x, n):
        if n < 0:
            raise ValueError(n)
        return helper(x) + n

    def helper(x):
        return x * 2

    region = make_region(function, eager, fullgraph=True, observer=records.append)
    for n in (-1, 1, -2, 1):
        if n < 0:
            with pytest.raises(ValueError, match=str(n)):
                region(torch.ones(2), n)
        else:
            assert region(torch.ones(2), n).tolist() == [3.0, 3.0]
    assert sum(record.graph is not None for record in records) == 1


def test_a_break_is_still_refused():
    with pytest.raises(GraphBreakError):
        make_region(lambda x: (print(), x + 1)[1], eager, fullgraph=True)(torch.ones(2))


def test_an_exception_of_the_frame_may_be_changed():
    """Its arguments, cause and context are plain values until it leaves the frame; nothing of it breaks the graph."""

    def function(x):
        try:
            error = ValueError("first")
            error.args = ("second", 2)
            error.__cause__ = KeyError("why")
            error.__context__ = LookupError("where")
            error.more = [3]
            raise error
        except ValueError as caught:
            return x + 1, caught.args, str(caught), repr(caught.__cause__), repr(caught.__context__), caught.more

    region = make_region(function, eager, fullgraph=True, suppress_errors=False)
    assert_equal(region(torch.ones(2)), function(torch.ones(2)))


@pytest.mark.parametrize("name", ["args", "__cause__", "__context__"])
def test_one_that_the_caller_has_is_changed_by_python(name):
    """It is the caller's object: the store breaks the graph and is done."""

    def function(x, error, value):
        setattr(error, name, value)
        return x + 1

    value = ("second", 2) if name == "args" else KeyError("why")
    error = ValueError("first")
    region = make_region(function, eager, suppress_errors=False)
    assert region(torch.ones(2), error, value).tolist() == [2.0, 2.0]
    assert getattr(error, name) == value
    with pytest.raises(GraphBreakError, match="existed before the frame"):
        make_region(function, eager, fullgraph=True)(torch.ones(2), error, value)
