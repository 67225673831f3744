# ruff: noqa: E731
"""Random functions, cut at random instructions and with rounds of loops as calls: results, exceptions, prints and mutations are those of
plain Python."""

from __future__ import annotations

import textwrap

from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.rewrite.rounds import separate_rounds

from .cutting import CannotCut, CannotResume, cut, cuttable, with_code
from .programs import Manager
from .test_every_cut import outcome

NAMES = ("a", "b", "c")
name = st.sampled_from(NAMES)
atom = st.one_of(
    name, st.integers(-3, 5).map(str), st.sampled_from(["items[0]", "len(items)", "d.get('k', 0)", "None or 2"])
)


@st.composite
def expression(draw, depth=2):
    if depth == 0:
        return draw(atom)
    part = lambda: draw(expression(depth=depth - 1))
    kind = draw(st.integers(0, 12))
    match kind:
        case 0:
            return f"({part()} {draw(st.sampled_from(['+', '-', '*', '//', '%', '|']))} {part()})"
        case 1:
            return f"({part()} {draw(st.sampled_from(['<', '==', '>=']))} {part()} < {part()})"
        case 2:
            return f"({part()} and {part()} or {part()})"
        case 3:
            return f"({part()} if {part()} else {part()})"
        case 4:
            return f"call({part()}, k={part()})"
        case 5:
            return f"sum([x + {part()} for x in range(3) if x != {draw(atom)}])"
        case 6:
            return f"len(f'{{{part()}!r:>4}} {{{part()}}}')"
        case 7:
            return f"call(*[{part()}], **{{'k': {part()}}})"
        case 8:
            return f"(lambda x={part()}: x + {draw(name)})()"
        case 9:
            return f"items[{part()}:{part()}].__len__()"
        case 10:
            return f"(not {part()})"
        case 11:
            return f"({draw(name)} := {part()})"
        case _:
            return draw(atom)


@st.composite
def block(draw, depth=2, loop=False):
    return "\n".join(draw(statement(depth=depth, loop=loop)) for _ in range(draw(st.integers(1, 3))))


@st.composite
def statement(draw, depth=2, loop=False):
    e = lambda: draw(expression())
    inner = lambda in_loop=loop: textwrap.indent(draw(block(depth=depth - 1, loop=in_loop)), "    ")
    kind = draw(st.integers(0, 16 if depth else 8))
    match kind:
        case 0 | 1:
            return f"{draw(name)} = {e()}"
        case 2:
            return f"{draw(name)} {draw(st.sampled_from(['+=', '-=', '*=']))} {e()}"
        case 3:
            return f"print({e()}, {draw(name)})"
        case 4:
            return f"items.append({e()})"
        case 5:
            return f"d[{e()}] = {e()}"
        case 6:
            return draw(st.sampled_from(["break", "continue"])) if loop else f"print({e()})"
        case 7:
            return draw(
                st.sampled_from(
                    [
                        f"del {draw(name)}",
                        f"assert {e()}, 'no'",
                        f"raise ValueError({e()})",
                        f"return {e()}, {draw(name)}",
                    ]
                )
            )
        case 8:
            return f"{draw(name)}, *rest = {e()}, 1, 2"
        case 9:
            return f"if {e()}:\n{inner()}\nelse:\n{inner()}"
        case 10 | 11:
            return f"for {draw(name)} in range({draw(st.integers(0, 3))}):\n{inner(True)}\nelse:\n{inner()}"
        case 12:
            return f"with Manager('m', {draw(st.booleans())}) as m:\n{inner()}"
        case 13 | 14:
            tail = draw(st.sampled_from(["", "else", "finally"]))
            end = f"\n{tail}:\n{inner(False)}" if tail else ""
            return f"try:\n{inner()}\nexcept (TypeError, ValueError, ArithmeticError) as error:\n    print(type(error).__name__, type(error.__context__).__name__)\n{inner()}{end}"
        case 15:
            return f"try:\n{inner()}\nfinally:\n{inner(False)}"
        case _:
            return f"def get(x):\n    nonlocal c\n    c = x\n    return {draw(name)}\n{draw(name)} = get({e()})"


@st.composite
def function(draw):
    body = "\n".join(draw(statement(depth=2)) for _ in range(draw(st.integers(2, 5))))
    boxed = "nonlocal c" in body
    if boxed:
        body = body.replace("lambda x=", "lambda x=")
    return f"def f(a, b, items, d, c=1):\n{textwrap.indent(body, '    ')}\n    return a, b, c, items, d"


def call(*args, **kwargs):
    print("call", args, kwargs)
    return len(args)


def compiled(source):
    namespace = {"call": call, "Manager": Manager}
    exec(compile(source, "<fuzz>", "exec"), namespace)
    return namespace["f"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(function(), st.data())
def test_random_cuts(source, data):
    try:
        f = compiled(source)
    except SyntaxError:
        return
    args = (1, 2, [1, 2], {"k": 1})
    expected = outcome(f, args)
    places = cuttable(f.__code__)
    for index in (
        data.draw(st.lists(st.sampled_from(places), min_size=3, max_size=8, unique=True)) if len(places) > 8 else places
    ):
        try:
            code = cut(f.__code__, index)
        except (CannotCut, CannotResume):
            continue
        assert outcome(with_code(f, code), args) == expected, f"{source}\ncut at {index}"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(function())
def test_random_rounds(source):
    try:
        f = compiled(source)
    except SyntaxError:
        return
    args = (1, 2, [1, 2], {"k": 1})
    expected = outcome(f, args)
    for index, instruction in enumerate(decode_normalised(f.__code__)):
        if instruction.name == "FOR_ITER":
            try:
                code = separate_rounds(f.__code__, index)
            except CannotResume:
                continue
            assert outcome(with_code(f, code), args) == expected, f"{source}\nloop at {index}"
