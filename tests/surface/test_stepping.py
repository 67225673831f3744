"""Rewritten code can be read, and stepped through as the program that it stands for."""

from __future__ import annotations

import io
import pdb
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau import log
from flambeau.compiler import set_logs

from .rows import calls

_STOP = re.compile(r"^(?:\(Pdb\) )?> (\S+)\((\d+)\)(\w+)\(\)", re.MULTILINE)


@pytest.fixture(autouse=True)
def own_debugger(own_tracer: None) -> Iterator[None]:
    """Leave logs, and what `breakpoint()` calls, as they were."""
    before = sys.breakpointhook
    yield
    sys.breakpointhook = before
    set_logs()


def told(value: int) -> int:
    """Runs in Python."""
    print(end="")
    return value + 1


def shifted(x: Tensor) -> Tensor:
    """A graph."""
    return x.cos() + 1


def with_breaks(x: Tensor, n: int) -> Tensor:
    """Two breaks, in a function and in one that it calls."""
    y = x.sin() + n
    print(end="")
    k = told(n)
    z = y * k
    print(end="")
    return z + y


def with_breakpoint(x: Tensor, n: int) -> Tensor:
    """Stops in the debugger."""
    y = x.sin() + n
    breakpoint()
    z = y * 2
    k = told(n)
    z = shifted(z)
    return z + k


def session(function: Callable[..., Any], commands: str, *, attached: bool) -> tuple[str, Tensor]:
    """What pdb says to the commands, and the result of the function."""
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO(commands + "c\n"), stdout=out, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    arguments = torch.ones(2), 2
    if attached:
        result = debugger.runcall(function, *arguments)
    else:
        sys.breakpointhook = lambda: debugger.set_trace(sys._getframe(1))
        try:
            result = function(*arguments)
        finally:
            sys.settrace(None)
    return out.getvalue(), result


def stops(said: str) -> list[tuple[str, int]]:
    """Function and line of each stop in this file's programs."""
    found = [(function, int(line)) for file, line, function in _STOP.findall(said) if file == __file__]
    return [stop for stop in found if stop[0] != "session"]


@pytest.mark.falls_back("a debugger or a trace function is started", "calling _getframe")
@calls("tools", "bytecode_as_source")
@pytest.mark.parametrize(
    "commands",
    [
        "w\np sorted(locals())\ns\ns\ns\nw\nn\nn\nn\np k, z, y, n\nn\nn\n",
        "n\nn\np z, k, y, n\ns\nn\nw\nr\nn\nn\n",
    ],
)
def test_pdb_goes_on_from_a_breakpoint(commands: str) -> None:
    """What leads to `breakpoint()` runs in Python: the whole session is that of plain Python. What is stepped over is compiled."""
    expected, result = session(with_breakpoint, commands, attached=False)
    assert len(stops(expected)) >= 3
    compiled = flambeau.compile(with_breakpoint, backend="eager")
    for _ in range(2):
        said, found = session(compiled, commands, attached=False)
        assert _shown(said) == _shown(expected)
        assert torch.equal(found, result)


@calls("tools", "bytecode_as_source")
@pytest.mark.parametrize("commands", ["s\n" * 10 + "p k, y, z\n", "n\n" * 4 + "p k, y, z\n"])
def test_pdb_steps_into_a_compiled_function(commands: str) -> None:
    """From outside, before and after it was compiled, over its breaks: stops and variables are those of plain Python, and then its graphs run again."""
    graphs: list[torch.fx.GraphModule] = []
    expected, result = session(with_breaks, commands, attached=True)
    assert len(stops(expected)) >= 4
    compiled = flambeau.compile(with_breaks, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    for _ in range(2):
        before = len(graphs)
        said, found = session(compiled, commands, attached=True)
        assert _shown(said) == _shown(expected)
        assert torch.equal(found, result)
        compiled(torch.ones(2), 2)
    assert graphs and len(graphs) == before


def _shown(said: str) -> list[str]:
    """A session without the lines of what calls it."""
    return [line for line in said.splitlines() if "session" not in line and "test_pdb" not in line]


@calls("tools", "bytecode_as_source")
def test_trace_functions_see_the_lines_that_run_in_python() -> None:
    """What is no part of a graph is seen at the program's lines, in its order, with the program's names."""
    compiled = flambeau.compile(with_breaks, backend="eager")
    plain, found = [], []
    with_breaks(torch.ones(2), 2)
    for function, events in ((with_breaks, plain), (compiled, found), (compiled, found)):
        events.clear()
        sys.settrace(_tracer(events))
        try:
            function(torch.ones(2), 2)
        finally:
            sys.settrace(None)
        assert events
    first = with_breaks.__code__.co_firstlineno
    expected = [(function, line) for function, line, _ in plain]
    in_a_graph = ("with_breaks", first + 5)
    assert [(function, line) for function, line, _ in found] == [
        stop for stop in expected if stop != in_a_graph and stop != ("with_breaks", first + 7)
    ]
    assert {"y", "n"} <= found[2][2]


def _tracer(events: list[tuple[str, int, set[str]]]) -> Callable[..., Any]:
    """Keeps function, line and names at each line; a part of a function begins at the line at which the part before it ends."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != __file__ or frame.f_code.co_name in ("session", "trace"):
            return None
        if event == "line":
            outer = frame.f_back
            starts = outer is not None and (outer.f_code.co_name, outer.f_lineno) == (
                frame.f_code.co_name,
                frame.f_lineno,
            )
            if not starts:
                events.append((frame.f_code.co_name, frame.f_lineno, set(frame.f_locals)))
        return trace

    return trace


@calls("tools", "bytecode_as_source")
def test_the_source_has_the_names_of_the_program() -> None:
    """The text of the rewritten code: its parts by the function and the line, what they are given by its names."""
    stream = io.StringIO()
    log.configure(log.parse("bytecode"), stream)
    flambeau.compile(with_breaks, backend="eager", options={"force_disable_caches": True})(torch.ones(2), 2)
    text = stream.getvalue().partition("\n  source:")[2]
    line = with_breaks.__code__.co_firstlineno + 3
    assert f"def with_breaks(x, n):  # {__file__}:" in text
    assert re.search(rf"def with_breaks.resume_at_{line}\(__stack_0, [ny], [ny]\):", text)
    assert re.search(rf"return <\w+ hand_over>\(with_breaks.resume_at_{line}, __temp_\d, [ny], [ny]\)", text)
