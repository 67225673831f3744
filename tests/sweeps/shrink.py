"""Make a failing program small: take away statements, take compound statements and expressions apart, again and again.

In: a text and a predicate, which is true for texts that still fail in the same way. Out: a text of a few lines for which it is true.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

Predicate = Callable[[str], bool]

_BODIES = ("body", "orelse", "finalbody", "handlers")


def shrink(source: str, still_fails: Predicate, seconds: float = 20.0) -> str:
    """The smallest text found in that time."""
    until = time.monotonic() + seconds
    best = ast.unparse(ast.parse(source))
    if not still_fails(best):
        return source
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for moves in (_without_runs, _opened, _simpler):
            best, progress = _greedy(best, moves, still_fails, until)
            changed = changed or progress
    return best


def _greedy(
    best: str, moves: Callable[[ast.AST, int], Iterator[str]], still_fails: Predicate, until: float
) -> tuple[str, bool]:
    """Take the first move that still fails, and go on from the same place in the smaller text."""
    progress, place = False, 0
    while time.monotonic() < until:
        found = False
        candidate = best
        for candidate in moves(ast.parse(best), place):
            if time.monotonic() > until:
                break
            place += 1
            if candidate and len(candidate) < len(best) and still_fails(candidate):
                best, progress, found = candidate, True, True
                place -= 1
                break
        if not found:
            break
    return best, progress


def _lists(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    """Every list of statements, the outermost and last first."""
    found = [(node, name) for node in ast.walk(tree) for name in _BODIES if isinstance(getattr(node, name, None), list)]
    return [(node, name) for node, name in found if getattr(node, name)]


def _without_runs(tree: ast.AST, start: int) -> Iterator[str]:
    """Texts without some statements that follow each other: halves first, then fewer, then single ones."""
    moves: list[tuple[int, str, int, int]] = []
    nodes = list(ast.walk(tree))
    numbered = {id(node): number for number, node in enumerate(nodes)}
    for node, name in _lists(tree):
        length = len(getattr(node, name))
        size = length
        while size >= 1:
            moves += [(numbered[id(node)], name, first, size) for first in range(length - size, -1, -size)]
            size //= 2
    moves.sort(key=lambda move: -move[3])
    for number, name, first, size in moves[start:]:
        changed = copy.deepcopy(tree)
        node = list(ast.walk(changed))[number]
        statements = getattr(node, name)
        del statements[first : first + size]
        if not statements and name == "body":
            statements.append(ast.Pass())
        if isinstance(node, ast.Try) and not node.handlers and not node.finalbody:
            continue
        yield _text(changed)


def _opened(tree: ast.AST, start: int) -> Iterator[str]:
    """Texts in which one compound statement is replaced by one of its bodies."""
    moves: list[tuple[int, str, int, str]] = []
    nodes = list(ast.walk(tree))
    numbered = {id(node): number for number, node in enumerate(nodes)}
    for node, name in _lists(tree):
        for place, statement in enumerate(getattr(node, name)):
            if (
                isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.FunctionDef)
                and statement.body
            ):
                bodies = [b for b in ("body", "orelse", "finalbody") if getattr(statement, b, None)]
                if not isinstance(statement, ast.FunctionDef):
                    moves += [(numbered[id(node)], name, place, body) for body in bodies]
    for number, name, place, body in moves[start:]:
        changed = copy.deepcopy(tree)
        statements = getattr(list(ast.walk(changed))[number], name)
        statements[place : place + 1] = getattr(statements[place], body)
        yield _text(changed)


def _simpler(tree: ast.AST, start: int) -> Iterator[str]:
    """Texts in which one expression is replaced by a part of itself, or loses an element, an argument or a decorator."""
    nodes = list(ast.walk(tree))
    moves: list[tuple[int, str, int, int]] = []
    for number, node in enumerate(nodes):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                moves += [(number, field, -1, part) for part in range(len(_inner(value)))]
            elif (
                isinstance(value, list)
                and value
                and isinstance(value[0], ast.expr | ast.keyword | ast.withitem | ast.alias)
            ):
                moves += [(number, field, place, -1) for place in range(len(value))]
                moves += [
                    (number, field, place, part)
                    for place, item in enumerate(value)
                    if isinstance(item, ast.expr)
                    for part in range(len(_inner(item)))
                ]
    for number, field, place, part in moves[start:]:
        changed = copy.deepcopy(tree)
        node = list(ast.walk(changed))[number]
        value = getattr(node, field)
        if place < 0:
            setattr(node, field, _inner(value)[part])
        elif part < 0:
            _remove(node, field, place)
        else:
            value[place] = _inner(value[place])[part]
        yield _text(changed)


def _remove(node: ast.AST, field: str, place: int) -> None:
    for name in ("keys", "values") if isinstance(node, ast.Dict) else (field,):
        del getattr(node, name)[place]


def _inner(value: ast.expr) -> list[ast.expr]:
    """The expressions inside one, largest first."""
    if isinstance(value, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return []
    found = [
        node for node in ast.iter_child_nodes(value) if isinstance(node, ast.expr) and not isinstance(node, ast.Slice)
    ]
    found += [keyword.value for keyword in getattr(value, "keywords", [])]
    return found


def _text(tree: ast.AST) -> str:
    try:
        text = ast.unparse(ast.fix_missing_locations(tree))
        compile(text, "<shrinking>", "exec")
    except (SyntaxError, ValueError, AttributeError, IndexError, TypeError):
        return ""
    return text
