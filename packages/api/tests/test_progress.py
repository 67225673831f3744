"""The line that says what a compile does: on a terminal alone, under what the program prints, gone when the compile ends."""

from __future__ import annotations

import builtins
import io
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from flambeau import log, progress
from flambeau.progress import Board, around
from flambeau.status_line import StatusLine, is_terminal


class Terminal(io.StringIO):
    """A stream that says it is one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error."""
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    # Not of `sys` itself, which pytest sets again before the test runs.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    return stream


class Screen:
    """A terminal that knows the codes of `StatusLine`, and what the program prints."""

    def __init__(self) -> None:
        self.rows, self.row, self.column, self.saved = [""], 0, 0, (0, 0)

    def feed(self, text: str) -> list[str]:
        codes: dict[str, Callable[[], Any]] = {
            "\x1bD": self._down,
            "\n": lambda: (self._down(), setattr(self, "column", 0)),
            "\r": lambda: setattr(self, "column", 0),
            "\x1b[A": lambda: setattr(self, "row", self.row - 1),
            "\x1b7": lambda: setattr(self, "saved", (self.row, self.column)),
            "\x1b8": self._back,
            "\x1b[J": self._clear,
        }
        while text:
            code = next((code for code in codes if text.startswith(code)), None)
            if code is not None:
                codes[code]()
                text = text[len(code) :]
            elif text.startswith("\x1b["):  # colours
                text = text[text.index("m") + 1 :]
            else:
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[: self.column] + text[0] + row[self.column + 1 :]
                self.column += 1
                text = text[1:]
        return [row.rstrip() for row in self.rows]

    def _down(self) -> None:
        self.row += 1
        self.rows += [""] * (self.row + 1 - len(self.rows))

    def _back(self) -> None:
        self.row, self.column = self.saved

    def _clear(self) -> None:
        self.rows = [*self.rows[: self.row], self.rows[self.row][: self.column]]


def until(condition: Callable[[], Any]) -> None:
    """Wait for a thread."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_line_stands_under_what_the_program_writes() -> None:
    """Which is on the screen as it would be without, half a line included."""
    stream, screen = Terminal(), Screen()
    line = StatusLine(stream)

    def shown() -> list[str]:
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return screen.feed(text)

    stream.write("loading ... ")
    line.draw([("compiling f", "bold"), (" · lowering", "dim")])
    rows = shown()
    assert rows[0] == "loading ..." and rows[1].endswith(" compiling f · lowering")
    stream.write("done\nnext")
    line.draw([("compiling g", "")])
    rows = shown()
    assert rows[:2] == ["loading ... done", "next"] and rows[2].endswith(" compiling g")
    line.clear()
    line.clear()
    stream.write("!\n")
    assert shown() == ["loading ... done", "next!", ""]


def test_a_stream_that_refuses_is_left_alone() -> None:
    stream = Terminal()
    line = StatusLine(stream)
    stream.close()
    line.draw([("compiling", "")])
    line.clear()


def test_what_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    closed = Terminal()
    assert is_terminal(closed) and not is_terminal(io.StringIO()) and not is_terminal(None)
    closed.isatty = lambda: (_ for _ in ()).throw(ValueError())  # type: ignore[method-assign]
    assert not is_terminal(closed)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(Terminal())


def test_stages_and_measurements_are_told(terminal: Terminal) -> None:
    """Those of build threads too; Python's random numbers are the program's, and nothing stays behind."""
    random.seed(0)
    board, threads, listeners = Board(), threading.active_count(), list(log.logger._listeners)
    with board.shown("f (a.py:1)", patience=0.0):
        until(terminal.getvalue)
        log.logger.debug("stage_begun", stage="autograd")
        log.logger.debug("stage_begun", stage="joint graph")
        until(lambda: "joint graph" in terminal.getvalue())
        log.logger.debug("stage_ended", stage="joint graph", seconds=0.1)
        log.logger.debug("measured", artifact="benchmarking", seconds=0.1)
        with board.shown("g (a.py:9)"):
            until(lambda: "g (a.py:9)" in terminal.getvalue() and "1 more" in terminal.getvalue())
        until(lambda: "autograd · 1 measured" in Screen().feed(terminal.getvalue())[1])
    assert Screen().feed(terminal.getvalue()) == [""]
    assert threading.active_count() == threads and log.logger._listeners == listeners
    numbers = random.random()
    random.seed(0)
    assert random.random() == numbers


def test_the_thread_leaves_imports_and_random_numbers_to_the_program(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may be in the middle of an import, and waits for the thread; what it draws meanwhile stays drawn. rich is loaded by who compiles."""
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    loaded, load = [], builtins.__import__

    def watched(name: str, *arguments: Any, **named: Any) -> Any:
        before = set(sys.modules)
        module = load(name, *arguments, **named)
        if threading.current_thread() is not threading.main_thread():
            loaded.extend(set(sys.modules) - before)
        return module

    def refused(*arguments: Any) -> Any:
        raise AssertionError("the state of random numbers, from a thread beside the program")

    monkeypatch.setattr(builtins, "__import__", watched)
    state = random.getstate
    main = threading.main_thread()
    monkeypatch.setattr(random, "getstate", lambda: state() if threading.current_thread() is main else refused())
    monkeypatch.setattr(log, "load_structlog", refused)
    with Board().shown("f", patience=0.0):
        until(terminal.getvalue)
        log.logger.debug("stage_begun", stage="autograd")
        until(lambda: "autograd" in terminal.getvalue())
    assert "rich.console" in sys.modules and not loaded


def test_a_compile_goes_on_where_no_thread_can_start(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a line; the next one has a line again."""

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    board, ran = Board(), []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        with board.shown("f", patience=0.0), board.shown("g", patience=0.0):
            ran.append("f")
    assert ran and terminal.getvalue() == "" and not board._going_on
    with board.shown("g", patience=0.0):
        until(terminal.getvalue)
    assert "f" not in terminal.getvalue()


def test_what_has_no_room_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By columns: some letters take two. What is a code of the terminal is none here."""
    stream = Terminal()
    line = StatusLine(stream)
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((20, 5)))
    monkeypatch.setattr(stream, "fileno", lambda: 1)
    line.draw([("火" * 20, "bold"), ("never", "dim")])
    assert "火" * 8 + "…\x1b[0m\x1b8" in stream.getvalue() and "never" not in stream.getvalue()
    stream.truncate(0)
    line.draw([("cafe\u0301 ", ""), ("\x1b[2J\n", "dim"), ("0123456", "")])
    assert "cafe\u0301 \x1b[2m?[2J?\x1b[0m0123456\x1b8" in stream.getvalue()


def test_a_short_compile_shows_nothing(terminal: Terminal) -> None:
    board = Board()
    with board.shown("f", patience=60.0):
        pass
    assert terminal.getvalue() == ""


def test_many_short_ones_are_one_wait(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has its line at once, as the first took all of the patience."""
    monkeypatch.setattr(progress, "_PAUSE_SECONDS", 60.0)
    board = Board()
    with board.shown("f", patience=60.0):
        board._began -= 60.0
    assert terminal.getvalue() == ""
    with board.shown("g", patience=60.0):
        until(lambda: "g" in terminal.getvalue())


def test_where_it_is_off(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the setting, or where standard error is no terminal: then a compile is what it was."""
    assert around(False, None) is None
    wrapped = around("auto", None)
    assert wrapped is not None
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=io.StringIO()))
    monkeypatch.setattr(progress._Process.board, "shown", None)
    with wrapped(None):  # type: ignore[arg-type]
        pass


def test_a_model_is_named_where_its_code_is_a_decorators(terminal: Terminal) -> None:
    def decorated(self: nn.Module) -> None: ...

    wrapped = around(True, None)
    assert wrapped is not None
    for code, whole in ((decorated.__code__, False), (nn.Linear.forward.__code__, True)):
        with wrapped(SimpleNamespace(code=code, locals={"self": nn.Linear(1, 1)})):  # type: ignore[arg-type]
            until(lambda: "Linear" in terminal.getvalue())
            assert ("Linear.forward (linear.py:" in terminal.getvalue()) == whole
            assert "decorated" not in terminal.getvalue()
        terminal.truncate(0)


def test_what_is_compiled_inside_ends_with_an_error(terminal: Terminal) -> None:
    board = Board()
    with pytest.raises(KeyError), board.shown("f", patience=0.0):
        until(terminal.getvalue)
        raise KeyError
    assert Screen().feed(terminal.getvalue()) == [""]


def test_a_child_of_a_fork_has_no_thread_of_its_parent(terminal: Terminal) -> None:
    board = progress._Process.board
    with board.shown("f", patience=60.0):
        child = os.fork()
        if not child:
            os._exit(0 if progress._Process.board is not board else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_rich_is_not_loaded_with_the_package() -> None:
    program = "import sys, flambeau; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
