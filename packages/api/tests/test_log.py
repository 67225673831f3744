"""`FLAMBEAU_LOGS`: parsing, selection, rendering."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import flambeau_autograd
import flambeau_capture
import flambeau_inductor
import flambeau_runtime
from flambeau import log
from flambeau.errors import NotHereYet, UnknownName


@pytest.fixture(autouse=True)
def own_configuration() -> Iterator[None]:
    """Leave logs as they were."""
    yield
    log.configure(log.LogSettings())


def test_parse() -> None:
    """Plus is accepted, minus switches off, debug lowers the level."""
    assert log.parse("graph_breaks,+recompiles").artifacts == {"graph_breaks", "recompiles"}
    assert "guards" not in log.parse("all,-guards").artifacts
    assert log.parse("all,-all,guards").artifacts == {"guards"}
    assert log.parse("debug").level == logging.DEBUG
    with pytest.raises(UnknownName, match="graph_breaks"):
        log.parse("graph_break")
    with pytest.raises(NotHereYet, match="trace_shape_events"):
        log.parse("trace_shape_events")


def test_silent_by_default_and_selected_on_demand() -> None:
    """An artifact's events are shown only when it is enabled; warnings always."""
    stream = io.StringIO()
    log.configure(log.parse("recompiles"), stream)
    logger = log.logger
    logger.debug("recompile", artifact="recompiles", reason="size 0: expected 3, actual 4")
    logger.debug("graph", artifact="graph_code", code="def f(): ...")
    logger.info("stage")
    logger.warning("fallback", operation="aten.mode")
    lines = stream.getvalue().splitlines()
    assert lines == [
        "[flambeau recompiles] recompile reason=size 0: expected 3, actual 4",
        "[flambeau warning] fallback operation=aten.mode",
    ]


def test_multi_line_values_are_indented_blocks() -> None:
    """Code is readable, not a quoted string."""
    stream = io.StringIO()
    log.configure(log.parse("graph_code"), stream)
    log.logger.debug("captured", artifact="graph_code", code="a = 1\nb = 2")
    assert stream.getvalue().splitlines()[1:] == ["  code:", "    a = 1", "    b = 2"]


def test_structlog_of_the_application_is_left_alone() -> None:
    """What it configures shows its own events alone; ours go where ours go, from every package."""
    stream = io.StringIO()
    before = structlog.get_config()
    log.configure(log.parse("guards,caching"), stream)
    assert structlog.get_config() == before
    with structlog.testing.capture_logs() as events:
        for package in (flambeau_autograd, flambeau_capture, flambeau_inductor, flambeau_runtime):
            package.log.logger.debug("ours", artifact="guards", package=package.__name__)
        structlog.get_logger("application").info("theirs")
    assert [event["event"] for event in events] == ["theirs"]
    assert len(stream.getvalue().splitlines()) == 4


def test_the_file_of_copies_changes_while_another_thread_writes(tmp_path: Path) -> None:
    """The one that is closed is written to the end first."""
    output = log._Output("")
    log.copy_to(str(tmp_path / "one"))

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            changing.start()
            changing.join(0.05)  # as long as this thread writes
            return super().write(text)

    changing = threading.Thread(target=log.copy_to, args=(str(tmp_path / "two"),))
    try:
        output.file = Slow()
        output.write("first")
        changing.join()
        output.file = None
        output.write("second")
        output.flush()
        assert [(tmp_path / name).read_text() for name in ("one", "two")] == ["first", "second"]
    finally:
        log.copy_to(None)


def test_structlog_is_loaded_for_an_event_that_is_shown() -> None:
    """Importing it takes longer than most of a warm start, and draws from Python's generator where rich is installed."""
    program = """
        import random, sys
        import torch, flambeau
        numbers = random.getstate()
        flambeau.compile(torch.relu)(torch.ones(2))
        print("structlog" in sys.modules)
        from flambeau.log import logger, set_logs
        logger.info("dropped")
        print("structlog" in sys.modules)
        logger.warning("shown", value=3)
        print("structlog" in sys.modules, random.getstate() == numbers)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True"]
    assert "shown value=3" in done.stderr and "dropped" not in done.stderr
