"""Rules of CONTRIBUTING.md that no tool checks: what a module opens with, how long things are, words that do not belong."""

from __future__ import annotations

import ast
import re

from .pages import ROOT, tree

SOURCES = [path for path in tree() if re.fullmatch(r"packages/\w+/src/.*\.py|tools/.*\.py|benchmarks/.*\.py", path)]
NATIVE = [path for path in tree() if re.fullmatch(r"(packages/\w+/csrc|native)/.*\.[ch]pp", path)]
#: Around 500 lines a file and 60 a function are meant; beyond these it is no longer a matter of taste.
LINES, FUNCTION_LINES = 600, 75
#: Notes to oneself.
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def test_files_are_short_and_finished() -> None:
    """A file that outgrows this has a part that can stand alone."""
    texts = {path: (ROOT / path).read_text() for path in (*SOURCES, *NATIVE)}
    assert [path for path, text in texts.items() if text.count("\n") > LINES] == []
    assert [path for path, text in texts.items() if UNFINISHED.search(text)] == []


def test_modules_say_what_they_are_for() -> None:
    """A docstring on the first line; functions that fit on a page."""
    silent, long = [], []
    for path in SOURCES:
        module = ast.parse((ROOT / path).read_text())
        if module.body and not ast.get_docstring(module):
            silent.append(path)
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES:
                long.append(f"{path}:{node.name}")
    assert silent == []
    assert long == []
