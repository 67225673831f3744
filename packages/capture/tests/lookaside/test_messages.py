"""What a program logs tells the places of its calls, in a graph and around breaks."""

from __future__ import annotations

import io
import logging

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

LOGGER = logging.getLogger("flambeau.tests.messages")


class Placed(logging.Logger):
    """Finds its place in its own way."""

    def findCaller(self, *args, **kwargs):
        return "elsewhere", 7, "nowhere", None


def _inner(x):
    LOGGER.warning("from inside %s", 1)
    return x + 1


def in_one_graph(x, logger):
    y = _inner(x * 2)
    logger.info("%d %s", 3, "a")
    logger.debug("not told")
    logger.log(35, "with a level")
    logger.error(
        "over %s lines",
        3,
    )
    return y * 2


def around_breaks(x, logger):
    y = x + 1
    print("a break", end="")
    logger.info("after it")
    logging.getLogger("flambeau.tests.messages").critical("found again")
    for i in range(2):
        y = y * 2
        print("another", end="")
        logger.info("of a round")
        logger.info("%s", [i])
    try:
        1 / (i - 1)
    except ZeroDivisionError:
        logger.exception("handled")
    try:
        logger.log("no level", "text")
    except TypeError as error:
        logger.info(str(error))
    return y * 2


@pytest.fixture
def told():
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(filename)s %(funcName)s %(lineno)d %(message)s"))
    placed = Placed("flambeau.tests.placed", logging.INFO)
    for logger in (LOGGER, placed):
        logger.addHandler(handler)
        logger.propagate = False
    LOGGER.setLevel(logging.INFO)

    def run(function, logger):
        text.seek(0)
        text.truncate()
        function(torch.ones(2), placed if logger == "placed" else LOGGER)
        # Where in the line the error is cannot be told of code that was written anew.
        return [line for line in text.getvalue().splitlines() if line.strip("^~ ")]

    yield run
    LOGGER.removeHandler(handler)


@pytest.mark.parametrize("logger", ["usual", "placed"])
@pytest.mark.parametrize("function", [in_one_graph, around_breaks])
def test_messages_tell_where_they_were_logged(function, logger, told):
    expected = told(function, logger)
    records = []
    region = make_region(function, eager, observer=records.append, suppress_errors=False)
    for _ in range(2):
        assert told(region, logger) == expected
    assert len(records) == 1 or function is around_breaks or logger == "placed"


def test_a_logger_that_is_changed_later_is_asked(told, monkeypatch):
    expected = told(in_one_graph, "usual")
    region = make_region(in_one_graph, eager, suppress_errors=False)
    assert told(region, "usual") == expected
    monkeypatch.setattr(logging.Logger, "findCaller", Placed.findCaller)
    assert told(region, "usual") == told(in_one_graph, "usual") != expected
