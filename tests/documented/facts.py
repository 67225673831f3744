"""What torch.compile's public documentation says, each as a small program that fails where it does not hold.

In: functions under `@documented("what is said")` in the modules of `programs`, one module a topic, written under torch's names. Out: `facts(compiler)`, which
loads them under the names of one compiler. A program takes nothing, or a parameter `folder`: an empty one.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from .names import renamed

PROGRAMS = Path(__file__).parent / "programs"
COMPILERS = ("flambeau", "torch")
Program = Callable[..., None]


@frozen
class Fact:
    """One program.

    Attributes:
        topic: its module's.
        says: what is documented.
        program: what shows it.
        falls_back: why parts of it run in eager, where that is what is documented (`tests/witness.py`).
        judges_itself: why the witness sees nothing that is compiled in this process, so that the program must tell; empty where it sees it.
    """

    topic: str
    says: str
    program: Program
    falls_back: tuple[str, ...]
    judges_itself: str

    @property
    def name(self) -> str:
        """Module and function."""
        return f"{self.topic.replace(' ', '_')}.{self.program.__name__}"

    def run(self, folder: Path) -> None:
        """Run the program; what does not hold is an error."""
        self.program(**dict.fromkeys(inspect.signature(self.program).parameters, folder))


def documented(says: str, *, falls_back: tuple[str, ...] = (), judges_itself: str = "") -> Callable[[Program], Program]:
    """Mark a program with what it shows, and where that is no compiled program, with the reason."""

    def mark(program: Program) -> Program:
        program.__documented__ = says, falls_back, judges_itself  # type: ignore[attr-defined]
        return program

    return mark


def facts(compiler: str = "flambeau") -> list[Fact]:
    """All of them, in the order of topics and lines."""
    found = []
    for path in sorted(PROGRAMS.glob("*.py")):
        for value in vars(_loaded(path, compiler)).values():
            if (marked := getattr(value, "__documented__", None)) is not None:
                says, *marks = marked
                found.append(Fact(path.stem.replace("_", " "), says, value, *marks))
    return found


def _loaded(path: Path, compiler: str) -> ModuleType:
    """A module of its own for each compiler. The compilers read sources, so that what was replaced is given lines."""
    text = path.read_text()
    if compiler == "flambeau":
        text = renamed(text)
    name = f"documented_{compiler}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_loader(name, None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    file = str(path.with_name(f"{compiler}-{path.name}"))
    module.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[name] = module
    try:
        exec(compile(text, file, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def page() -> str:
    """The table of the documentation, without its heading."""
    lines = ["| topic | what is documented | program |", "| --- | --- | --- |"]
    for path in sorted(PROGRAMS.glob("*.py")):
        topic = path.stem.replace("_", " ")
        lines += [f"| {topic} | {says} | `{name}` |" for name, says in _said(path)]
    return "\n".join(lines) + "\n"


def _said(path: Path) -> Iterator[tuple[str, str]]:
    """Names of programs and what is documented, as it is written there: under torch's names, and nothing is loaded."""
    for node in ast.parse(path.read_text()).body:
        for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
            if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == documented.__name__:
                assert isinstance(node, ast.FunctionDef)
                yield node.name, ast.literal_eval(mark.args[0])


def largest_difference(actual: Any, expected: Any) -> float:
    """Between two tensors of one shape and dtype."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    return float((actual.detach().double() - expected.detach().double()).abs().max())
