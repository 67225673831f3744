"""Mutation operators: each finds the places in a module that it can make wrong, and makes one of them wrong.

In: the text of a module. Out: `Fault`s with a name that does not depend on line numbers, and `mutated`, which gives the module's tree
with one of them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

#: Functions whose result is words: no test needs to hold them to every letter.
_WORDS = (
    "describe",
    "explain",
    "text",
    "__repr__",
    "__str__",
    "_tell",
    "log",
    "_text",
    "words",
    "hint",
    "name",
    "message",
    "_label",
    "listing",
    "timed",
    "_around",
)

Edit = Callable[[ast.AST], None]


@frozen
class Fault:
    """One way to make a module wrong.

    Attributes:
        path: the module, relative to the root of the tree.
        where: the function's qualified name, or "<module>".
        operator: what is done.
        detail: the expression before and after.
        number: which of several that are alike.
    """

    path: str
    where: str
    operator: str
    detail: str
    number: int = 0

    @property
    def key(self) -> str:
        """How results and the list of survivors name it."""
        return f"{self.path}::{self.where}::{self.operator}::{self.detail}" + (f"#{self.number}" if self.number else "")


def faults_of(path: str, source: str) -> list[Fault]:
    """Every fault of a module, in the order of the text."""
    return [fault for fault, _ in _places(path, ast.parse(source))]


def mutated(fault: Fault, source: str) -> ast.Module:
    """The module's tree with the fault; `LookupError` when the text has no such place any more."""
    if fault.operator == "text":
        before, after = fault.detail.split(" => ")
        if source.count(before) != 1:
            raise LookupError(f"{fault.path} has {source.count(before)} of {before!r}")
        return ast.parse(source.replace(before, after))
    tree = ast.parse(source)
    for found, edit in _places(fault.path, tree):
        if found == fault:
            edit()
            return ast.fix_missing_locations(tree)
    raise LookupError(f"no such place: {fault.key}")


def _places(path: str, tree: ast.Module) -> Iterator[tuple[Fault, Callable[[], None]]]:
    counted: Counter[tuple[str, str, str]] = Counter()
    for where, node, parent in _nodes(tree, "<module>"):
        for operator, find in OPERATORS.items():
            for detail, edit in find(node, parent):
                same = (where, operator, detail)
                yield Fault(path, where, operator, detail[:160], counted[same]), edit
                counted[same] += 1


def _nodes(parent: ast.AST, where: str) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Nodes of code that runs, with the function they are in and their parent; no annotations, docstrings, assertions or words."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "type_comment", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            inner = where
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                inner = node.name if where == "<module>" else f"{where}.{node.name}"
                if any(node.name.startswith(word) or node.name.endswith(word) for word in _WORDS):
                    continue
            yield inner, node, parent
            yield from _nodes(node, inner)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "log" in ast.unparse(node.value.func):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            value[:] = [new if item is old else item for item in value]


Found = Iterator[tuple[str, Callable[[], None]]]


def _set(target: Any, field: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(target, field, value)


_OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def compare(node: ast.AST, parent: ast.AST) -> Found:
    """Another comparison: an end that is one off, or the opposite."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _OTHER_COMPARISON[type(node.ops[0])]()
        changed = ast.Compare(node.left, [other], node.comparators)
        yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", _set(node, "ops", [other])


def operands(node: ast.AST, parent: ast.AST) -> Found:
    """The operands of a difference, quotient or power change places."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)):
        left, right = node.left, node.right
        if isinstance(left, ast.Constant) and isinstance(left.value, str):
            return

        def swap() -> None:
            node.left, node.right = right, left

        yield f"{ast.unparse(node)} swapped", swap


def condition(node: ast.AST, parent: ast.AST) -> Found:
    """The branch that is not meant."""
    if isinstance(node, (ast.If, ast.IfExp)):
        opposite = ast.UnaryOp(ast.Not(), node.test)
        yield f"if {ast.unparse(node.test)} negated", _set(node, "test", opposite)


def connective(node: ast.AST, parent: ast.AST) -> Found:
    """`and` for `or`."""
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{ast.unparse(node)} with the other connective", _set(node, "op", other)


def off_by_one(node: ast.AST, parent: ast.AST) -> Found:
    """A number in an index, a sum or a range is one too large."""
    if not (isinstance(node, ast.Constant) and type(node.value) is int):
        return
    called = isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("range", "enumerate", "max", "min")
    if called or isinstance(parent, (ast.BinOp, ast.Subscript, ast.Slice)):
        yield f"{node.value} in {ast.unparse(parent)}", _set(node, "value", node.value + 1)


def dropped_call(node: ast.AST, parent: ast.AST) -> Found:
    """A statement that does something is left out: an effect, a guard, a dependency, a write."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"{ast.unparse(node)} left out", lambda: _replace(parent, node, ast.copy_location(ast.Pass(), node))


def dropped_update(node: ast.AST, parent: ast.AST) -> Found:
    """A sum, union or table that is not brought up to date."""
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Subscript)
        and not isinstance(parent, ast.Module)
    ):
        yield f"{ast.unparse(node)} left out", lambda: _replace(parent, node, ast.copy_location(ast.Pass(), node))


def dropped_refusal(node: ast.AST, parent: ast.AST) -> Found:
    """What is not modelled is not refused."""
    if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
        yield (
            f"if {ast.unparse(node.test)}: raise left out",
            lambda: _replace(parent, node, ast.copy_location(ast.Pass(), node)),
        )


def _function(node: ast.AST) -> ast.FunctionDef | None:
    if not isinstance(node, ast.FunctionDef):
        return None
    decorators = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
    yields = any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(node))
    is_stub = ast.unparse(node.body[-1]) == "..."
    return None if decorators & {"overload", "abstractmethod"} or yields or is_stub else node


def _body(source: str) -> list[ast.stmt]:
    return ast.parse(source).body


def constant_answer(node: ast.AST, parent: ast.AST) -> Found:
    """A question that is always answered alike: a mask, an aliasing or a dependency is lost."""
    function = _function(node)
    if function is not None and function.returns is not None and ast.unparse(function.returns) == "bool":
        for answer in ("True", "False"):
            yield f"answers {answer}", _set(function, "body", _within(function, f"return {answer}"))


def idle(node: ast.AST, parent: ast.AST) -> Found:
    """A function that is called for what it does does nothing."""
    function = _function(node)
    if function is not None and function.returns is not None and ast.unparse(function.returns) == "None":
        if function.name not in ("__init__",):
            yield "does nothing", _set(function, "body", _within(function, "return None"))


def stage(node: ast.AST, parent: ast.AST) -> Found:
    """A stage gives back what it was given."""
    function = _function(node)
    if function is None or function.returns is None or not isinstance(parent, ast.Module):
        return
    kind = ast.unparse(function.returns)
    for argument in function.args.args:
        if (
            argument.annotation is not None
            and ast.unparse(argument.annotation) == kind
            and kind not in ("str", "None", "bool")
        ):
            yield f"returns {argument.arg}", _set(function, "body", _within(function, f"return {argument.arg}"))
            return


def raising(node: ast.AST, parent: ast.AST) -> Found:
    """A stage that always fails."""
    function = _function(node)
    if function is not None and isinstance(parent, ast.Module) and not function.name.startswith("_"):
        yield "raises", _set(function, "body", _within(function, "raise RuntimeError('seeded fault')"))


def _within(function: ast.FunctionDef, statement: str) -> list[ast.stmt]:
    body = _body(statement)
    for inner in body:
        for part in ast.walk(inner):
            ast.copy_location(part, function.body[0])
    return body


def table_row(node: ast.AST, parent: ast.AST) -> Found:
    """A row of a table of rules is missing."""
    if (
        isinstance(parent, ast.Module)
        and isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, (ast.Dict, ast.Set))
    ):
        table = node.value
        rows = table.keys if isinstance(table, ast.Dict) else table.elts
        for place in range(0, len(rows), 5):
            row = rows[place]
            if row is not None and len(rows) > 2:
                yield f"without the row {ast.unparse(row)}", _without(table, place)


def _without(table: ast.Dict | ast.Set, place: int) -> Callable[[], None]:
    def drop() -> None:
        if isinstance(table, ast.Dict):
            del table.keys[place], table.values[place]
        else:
            del table.elts[place]

    return drop


def unregistered(node: ast.AST, parent: ast.AST) -> Found:
    """A rule that is written and not registered."""
    if isinstance(node, ast.FunctionDef) and isinstance(parent, ast.Module):
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in (
                "lowers",
                "replaces",
                "handles",
                "register",
            ):
                kept = [other for other in node.decorator_list if other is not decorator]
                yield f"without @{ast.unparse(decorator)}", _set(node, "decorator_list", kept)


OPERATORS: dict[str, Callable[[ast.AST, ast.AST], Found]] = {
    function.__name__: function
    for function in (
        compare, operands, condition, connective, off_by_one, dropped_call, dropped_update, dropped_refusal, constant_answer, idle, stage,
        raising, table_row, unregistered,
    )
}  # fmt: skip
