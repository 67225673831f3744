"""Rewritten code in the form of Python: what each statement does is what the code does."""

from __future__ import annotations

from flambeau_capture.rewrite.source_text import source_text


def text_of(function) -> list[str]:
    return [line.partition("  # line")[0].strip() for line in source_text(function.__code__).splitlines()[1:]]


def test_statements():
    def f(x, y):
        z = x.real + y[0]
        z += 1
        x.real = (z, [y], (x,))
        y[x] = x.get(z, 3, key=y)
        print(z < 2)
        return z

    assert text_of(f) == [
        "z = (x.real + y[0])",
        "z = in_place(z + 1)",
        "x.real = (z, [y], (x,))",
        "y[x] = x.get(z, 3, key=y)",
        "print((z < 2))",
        "return z",
    ]


def test_what_has_no_form_is_listed():
    def f(x):
        if x:
            return 1
        return 2

    lines = text_of(f)
    assert lines[0].startswith("# POP_JUMP_IF_FALSE to at_") and lines[-1] == "return 2"


def test_no_code_of_the_program_runs():
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError

    code = (lambda: 0).__code__
    code = code.replace(co_consts=tuple(Loud() if constant == 0 else constant for constant in code.co_consts))
    assert "Loud" in source_text(code)
