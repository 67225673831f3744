"""Smaller scripts that still fail, for what no graph shows by itself: a wrong guard, an effect of the program that is lost.

In: the text of a script, and a question "does this text fail alike?". Out: a text that does, of which no statement or part of an expression that was tried
can be left out. Statements go first, whole blocks before what is in them; then blocks give way to their contents, and calls and operators to their operands.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .delta import fewest

Fails = Callable[[str], bool]
Undo = Callable[[], None]

_BODIES = ("body", "orelse", "finalbody")


def reduced_source(text: str, fails: Fails, tell: Callable[[str], None] = lambda words: None) -> str:
    """The smallest text found; `text` fails."""
    work = _Work(ast.parse(text), fails)
    for step in (_statements, _blocks, _statements, _annotations, _expressions, _parts, _statements):
        step(work)
        tell(f"{step.__name__.strip('_')}: {len(work.text().splitlines())} lines")
    return work.text()


class _Work:
    """The tree, which an attempt changes for good where the text that it gives fails."""

    def __init__(self, tree: ast.Module, fails: Fails) -> None:
        self.tree, self._fails = tree, fails
        self._tried: dict[str, bool] = {}

    def text(self) -> str:
        """The tree as a script."""
        return ast.unparse(ast.fix_missing_locations(self.tree)) + "\n"

    def attempt(self, undo: Undo) -> bool:
        """Whether the text fails after a change; the change is taken back where it does not."""
        try:
            text = self.text()
            ast.parse(text)
        except (SyntaxError, ValueError, TypeError, AttributeError):
            undo()
            return False
        if text not in self._tried:
            self._tried[text] = self._fails(text)
        if not self._tried[text]:
            undo()
        return self._tried[text]

    def change(self, owner: Any, field: str, value: Any) -> bool:
        """Try another value of a field."""
        before = getattr(owner, field)
        setattr(owner, field, value)
        return self.attempt(lambda: setattr(owner, field, before))


def _reached(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, the outer ones first; what was taken out meanwhile is not come to."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        yield node
        pending.extend(ast.iter_child_nodes(node))


def _lists(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for field in _BODIES:
        found = getattr(node, field, None)
        if isinstance(found, list) and found:
            yield node, field


def _statements(work: _Work) -> None:
    """The fewest statements of each block."""
    for node in _reached(work.tree):
        for owner, field in _lists(node):
            statements = getattr(owner, field)
            if _is_pass(statements):
                continue
            if not isinstance(owner, ast.Module) and work.change(owner, field, _block(field, [])):
                continue

            def alone(chosen: Sequence[ast.stmt], owner: ast.AST = owner, field: str = field) -> bool:
                return work.change(owner, field, _block(field, list(chosen)))

            fewest(statements, alone)


def _block(field: str, statements: list[ast.stmt]) -> list[ast.stmt]:
    return statements or ([ast.Pass()] if field == "body" else [])


def _is_pass(statements: Sequence[ast.stmt]) -> bool:
    return len(statements) == 1 and isinstance(statements[0], ast.Pass)


def _blocks(work: _Work) -> None:
    """A block's contents in its place."""
    for node in _reached(work.tree):
        for owner, field in _lists(node):
            for place in reversed(range(len(getattr(owner, field)))):
                statements = getattr(owner, field)
                statement = statements[place]
                if not isinstance(statement, ast.If | ast.With | ast.For | ast.Try):
                    continue
                for inner in (statement.body, getattr(statement, "orelse", [])):
                    if inner and work.change(owner, field, [*statements[:place], *inner, *statements[place + 1 :]]):
                        break


def _annotations(work: _Work) -> None:
    """Without types and decorators."""
    for node in _reached(work.tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            work.change(node, "annotation", None)
        elif isinstance(node, ast.FunctionDef):
            if node.returns is not None:
                work.change(node, "returns", None)
            if node.decorator_list:
                work.change(node, "decorator_list", [])


def _expressions(work: _Work) -> None:
    """Operands in the place of what is made of them."""
    for node in _reached(work.tree):
        for owner, field, place, value in list(_values(node)):
            left: ast.expr | None = value
            while left is not None:
                left = next((part for part in _operands(left) if _replaced(work, owner, field, place, part)), None)


def _values(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            yield node, field, None, value
        elif isinstance(value, list):
            for place, part in enumerate(value):
                if isinstance(part, ast.expr):
                    yield node, field, place, part


def _operands(value: ast.expr) -> list[ast.expr]:
    """What could stand in the place of an expression, the simplest first."""
    match value:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.BoolOp(values=values):
            return list(values)
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case ast.Subscript(value=inner, ctx=ast.Load()):
            return [inner]
        case ast.Call(func=function, args=args, keywords=keywords):
            owner = [function.value] if isinstance(function, ast.Attribute) else []
            given = [*args, *(keyword.value for keyword in keywords)]
            return [*(part for part in (*owner, *given) if not isinstance(part, ast.Starred | ast.Constant))]
    return []


def _replaced(work: _Work, owner: ast.AST, field: str, place: int | None, value: ast.expr) -> bool:
    if place is None:
        return work.change(owner, field, value)
    parts = list(getattr(owner, field))
    return work.change(owner, field, [*parts[:place], value, *parts[place + 1 :]])


def _parts(work: _Work) -> None:
    """Fewer arguments, elements and entries."""
    for node in _reached(work.tree):
        fields = {ast.Call: ("keywords", "args"), ast.Tuple: ("elts",), ast.List: ("elts",), ast.Delete: ("targets",)}
        for field in fields.get(type(node), ()):
            for place in reversed(range(len(getattr(node, field)))):
                parts = getattr(node, field)
                work.change(node, field, [*parts[:place], *parts[place + 1 :]])
        if isinstance(node, ast.Dict):
            for place in reversed(range(len(node.keys))):
                keys, values = node.keys, node.values
                del_keys, del_values = [*keys[:place], *keys[place + 1 :]], [*values[:place], *values[place + 1 :]]
                node.keys, node.values = del_keys, del_values

                def undo(node: ast.Dict = node, keys: Any = keys, values: Any = values) -> None:
                    node.keys, node.values = keys, values

                work.attempt(undo)
