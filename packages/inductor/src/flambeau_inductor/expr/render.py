"""Expressions as text: Python, C++ or Triton.

In: an expression, a target, and optionally how a symbol is spelled. Out: one line of source. C++ text assumes 64-bit
integers and the helpers ``fl_floordiv(a, b)``, ``fl_mod(a, b)`` (floor semantics), ``fb::smaller`` and ``fb::larger``; where
both operands are known non-negative plain ``/`` and ``%`` are written. Triton text uses ``//`` and ``%`` (which
truncate there) for non-negative operands and corrects the sign otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from .node import Expr, linear, register_operation

Spelling = Callable[[Expr], str]

_COMPARE = {"eq": "==", "lt": "<", "le": "<="}


def render(e: Expr, target: str = "python", symbol: Spelling | None = None) -> str:
    """``e`` as source text for ``target`` ("python", "cpp" or "triton")."""
    if target not in ("python", "cpp", "triton"):
        raise ValueError(f"unknown target {target!r}")
    spell = symbol or (lambda s: s.name)
    return _render(e, target, spell)[0]


# Each piece of text comes with the binding strength of its outermost operator: 0 sum, 1 product, 2 atom.
def _render(e: Expr, target: str, spell: Spelling) -> tuple[str, int]:
    if e.op == "int":
        n = e.args[0]
        text = f"{n}LL" if target == "cpp" and abs(n) > 2**31 - 1 else str(n)
        return text, 2 if n >= 0 else 0
    if e.op == "symbol":
        return spell(e), 2
    if e.op == "add":
        return _render_sum(e, target, spell), 0
    if e.op == "mul":
        return " * ".join(_wrap(f, target, spell, 2) for f in e.args), 1
    return _render_other(e, target, spell)


def _wrap(e: Expr, target: str, spell: Spelling, at_least: int) -> str:
    text, strength = _render(e, target, spell)
    return text if strength >= at_least else f"({text})"


def _render_sum(e: Expr, target: str, spell: Spelling) -> str:
    constant, terms = linear(e)
    parts: list[str] = []
    for term, c in sorted(terms, key=lambda item: (-abs(item[1]), repr_key(item[0]))):
        body = _wrap(term, target, spell, 2 if abs(c) != 1 and term.op != "mul" else 1)
        scale = "" if abs(c) == 1 else f"{_render_int(abs(c), target)} * "
        sign = "-" if c < 0 else "+"
        parts.append(f"{sign} {scale}{body}")
    if constant:
        parts.append(f"{'-' if constant < 0 else '+'} {_render_int(abs(constant), target)}")
    first = parts[0]
    parts[0] = first[2:] if first.startswith("+") else "-" + first[2:]
    return " ".join(parts)


def _render_int(n: int, target: str) -> str:
    return f"{n}LL" if target == "cpp" and n > 2**31 - 1 else str(n)


def repr_key(e: Expr) -> tuple[str, int]:
    """A readable, stable order of terms."""
    return (e.name if e.op == "symbol" else "~", e.key)


def _render_other(e: Expr, target: str, spell: Spelling) -> tuple[str, int]:
    if e.op in ("floordiv", "mod"):
        return _render_division(e, target, spell)
    texts = [_render(child, target, spell)[0] for child in e.args]
    if e.op in ("min", "max"):
        if target == "cpp":
            return f"fb::{'smaller' if e.op == 'min' else 'larger'}({texts[0]}, {texts[1]})", 2
        name = e.op if target == "python" else f"tl.{e.op}imum"
        return f"{name}({texts[0]}, {texts[1]})", 2
    if e.op in _COMPARE:
        return f"({texts[0]} {_COMPARE[e.op]} {texts[1]})", 2
    if e.op == "not":
        return (f"(1 - {_wrap(e.args[0], target, spell, 2)})" if target != "cpp" else f"!({texts[0]})"), 2
    if e.op == "and":
        return f"({texts[0]} {'&&' if target == 'cpp' else '&' if target == 'triton' else 'and'} {texts[1]})", 2
    if e.op == "select":
        if target == "cpp":
            return f"({texts[0]} ? {texts[1]} : {texts[2]})", 2
        if target == "triton":
            return f"tl.where({texts[0]}, {texts[1]}, {texts[2]})", 2
        return f"({texts[1]} if {texts[0]} else {texts[2]})", 2
    raise ValueError(f"no text for {e.op}")


def _render_division(e: Expr, target: str, spell: Spelling) -> tuple[str, int]:
    a, b = e.args
    plain = a.lo >= 0 and b.lo > 0
    operator = "%" if e.op == "mod" else "//"
    left, right = _wrap(a, target, spell, 2), _wrap(b, target, spell, 2)
    if target == "python" or (target == "triton" and plain):
        return f"({left} {operator} {right})", 2
    if target == "cpp":
        if plain:
            return f"({left} {'%' if e.op == 'mod' else '/'} {right})", 2
        function = "fl_mod" if e.op == "mod" else "fl_floordiv"
        return f"{function}({_render(a, target, spell)[0]}, {_render(b, target, spell)[0]})", 2
    # Triton's // and % truncate: correct towards minus infinity for a positive divisor, the only one that indices have.
    if e.op == "mod":
        return f"(({left} % {right} + {right}) % {right})", 2
    return f"(({left} - (({left} % {right} + {right}) % {right})) // {right})", 2


def _text(e: Expr, _unused: Expr) -> Expr:
    return render(e)  # type: ignore[return-value]


register_operation("text", _text)
