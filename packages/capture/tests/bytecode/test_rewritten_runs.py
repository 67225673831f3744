"""Functions whose code was normalised and written anew do what they did."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import json.decoder
import json.encoder
import json.scanner
import statistics
import textwrap
import traceback
from types import FunctionType

import pytest

from flambeau_capture.bytecode.encode import spec_of
from flambeau_capture.bytecode.lower import write_code
from flambeau_capture.bytecode.normalise import decode_normalised

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def functions_of(module):
    for owner in (
        module,
        *(v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__),
    ):
        for value in vars(owner).values():
            function = getattr(value, "__func__", value)
            if (
                isinstance(function, FunctionType)
                and function.__module__ == module.__name__
                and not function.__code__.co_flags & SUSPENDS
            ):
                yield function


@pytest.fixture
def rewritten():
    """A function that gives all functions of some modules new code, until the test ends."""
    saved = []

    def rewrite(*modules):
        for function in {f for module in modules for f in functions_of(module)}:
            code = function.__code__
            saved.append((function, code))
            function.__code__ = write_code(decode_normalised(code), spec_of(code))

    yield rewrite
    for function, code in saved:
        function.__code__ = code


def test_textwrap(rewritten):
    text = "the quick brown fox-jumps over  the lazy dog. " * 9
    expected = textwrap.fill(text, 30, subsequent_indent="  "), textwrap.dedent("  a\n   b"), textwrap.shorten(text, 40)
    rewritten(textwrap)
    assert (
        textwrap.fill(text, 30, subsequent_indent="  "),
        textwrap.dedent("  a\n   b"),
        textwrap.shorten(text, 40),
    ) == expected


def test_json(rewritten):
    data = {"a": [1, 2.5, None, True, {"b": "é\n"}], "c": {}, "d": []}
    expected = json.dumps(data, indent=2, sort_keys=True)
    rewritten(json, json.encoder, json.decoder, json.scanner)
    assert json.dumps(data, indent=2, sort_keys=True) == expected
    assert json.loads(expected) == data
    with pytest.raises(json.JSONDecodeError, match="line 1 column 4"):
        json.loads("[1,")


def test_difflib_and_statistics(rewritten):
    a, b = ["one", "two", "three"] * 4, ["one", "tree", "three"] * 4
    expected = difflib.SequenceMatcher(None, a, b).get_opcodes()
    deviation = statistics.stdev([1.5, 2.5, 4.0])
    rewritten(difflib, statistics)
    assert difflib.SequenceMatcher(None, a, b).get_opcodes() == expected
    assert statistics.stdev([1.5, 2.5, 4.0]) == deviation


def test_ast_and_inspect(rewritten):
    source = inspect.getsource(ast.literal_eval)
    expected = ast.unparse(ast.parse(source)), str(inspect.signature(inspect.signature))
    rewritten(ast, inspect)
    assert (ast.unparse(ast.parse(source)), str(inspect.signature(inspect.signature))) == expected


def test_tracebacks_point_at_the_same_place():
    """Line and column of an error survive."""

    def failing(x):
        y = [x, x / 0]
        return y

    def frames(function):
        try:
            function(1)
        except ZeroDivisionError as error:
            return [(f.lineno, f.colno, f.end_colno, f.name) for f in traceback.extract_tb(error.__traceback__)][1:]

    expected = frames(failing)
    failing.__code__ = write_code(decode_normalised(failing.__code__), spec_of(failing.__code__))
    assert frames(failing) == expected
