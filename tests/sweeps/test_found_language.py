"""Programs that say something by Python's own statements, which a table of these found: each was wrong once."""

from __future__ import annotations

import textwrap

import pytest

from .examine import check

PROGRAMS = {
    "a generator that asks for its own next value": """
        def f(t):
            def g():
                yield next(it)
            it = g()
            try:
                return t, next(it)
            except ValueError as error:
                return t + 1, str(error), next(it, 'ended')
        """,
    "a value for a generator that has not begun": """
        def f(t):
            def g():
                yield 1
            it = g()
            try:
                it.send(2)
            except TypeError as error:
                return t + 1, str(error), next(it)
        """,
    "super() where the first argument is no instance": """
        class A:
            @staticmethod
            def m(number):
                try:
                    return super().nothing
                except TypeError as error:
                    return type(error), number
        def f(t):
            return t + 1, A.m(2)
        """,
    "which attribute a native function did not find": """
        def f(t):
            try:
                return t, '{0.nothing}'.format(3)
            except AttributeError as error:
                return t + 1, str(error), error.name
        """,
    "a property that says that there is none where the class knows what then": """
        class A:
            @property
            def p(self):
                raise AttributeError('p')
            @functools.cached_property
            def c(self):
                return self._nothing + 1
            def __getattr__(self, name):
                if name == '_nothing':
                    raise AttributeError(name)
                return 'found ' + name
        class M(nn.Module):
            @property
            def p(self):
                return self.nothing
        def f(t):
            a = A()
            try:
                M().p
            except AttributeError as error:
                return t + 1, a.p, a.c, getattr(a, '_nothing', 0), str(error)
        """,
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_program(text: str) -> None:
    """Two calls."""
    driver = """
        def drive(compile, call, show, backward):
            g = compile(f)
            call(g, whole((3,)))
            call(g, whole((3,), seed=1))
        """
    check(textwrap.dedent(text) + textwrap.dedent(driver), "eager")
