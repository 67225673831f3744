"""One kernel's part of a Triton module, so that equal kernels of different graphs and layers are compiled once.

In: the text of a module of ``@triton.jit`` functions and the name of one. Out: a module with that function, what it calls and
the statements that are no functions; its name without the number that made it unique, no comments between functions.
"""

from __future__ import annotations

import ast
import functools
import re

from attrs import frozen

_NUMBER = re.compile(r"_\d+$")


@frozen
class _Module:
    """``functions`` maps a name to (text with decorators, names it mentions); ``rest`` are the other statements."""

    functions: dict[str, tuple[str, frozenset[str]]]
    rest: str


def alone(source: str, entry: str) -> tuple[str, str]:
    """``(source, entry)`` of the kernel on its own; as given where the module does not define it."""
    module = _parse(source)
    if entry not in module.functions:
        return source, entry
    needed = {entry}
    waiting = [entry]
    while waiting:
        for name in module.functions[waiting.pop()][1] - needed:
            needed.add(name)
            waiting.append(name)
    name = _NUMBER.sub("", entry)
    if name in module.functions:
        name = entry
    texts = [text for function, (text, _) in module.functions.items() if function in needed and function != entry]
    texts.append(module.functions[entry][0].replace(f"def {entry}(", f"def {name}(", 1))
    return "\n\n\n".join([module.rest, *texts]) + "\n", name


@functools.lru_cache(maxsize=16)
def _parse(source: str) -> _Module:
    lines = source.splitlines()
    functions: dict[str, tuple[str, frozenset[str]]] = {}
    rest: list[str] = []
    statements = ast.parse(source).body
    defined = {s.name for s in statements if isinstance(s, ast.FunctionDef)}
    for statement in statements:
        first = statement.lineno
        if isinstance(statement, ast.FunctionDef):
            first = min([first, *(decorator.lineno for decorator in statement.decorator_list)])
            mentioned = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            text = "\n".join(lines[first - 1 : statement.end_lineno])
            functions[statement.name] = (text, frozenset(mentioned & defined))
        else:
            rest.append("\n".join(lines[first - 1 : statement.end_lineno]))
    return _Module(functions, "\n".join(rest))
