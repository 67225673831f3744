"""What the newest CPython writes becomes the normalised set on every CPython; shapes that no compiler writes are refused."""

from __future__ import annotations

import pytest

from flambeau_capture.bytecode import normalise
from flambeau_capture.bytecode.behaviour import behaviour_of
from flambeau_capture.bytecode.model import Instruction
from flambeau_capture.bytecode.normalise import UnsupportedCodeError


def normalised(monkeypatch, *raw, version=(3, 13)):
    """Names, arguments and values of the normalised instructions."""
    monkeypatch.setattr(normalise, "BEHAVIOUR", behaviour_of(version, "cpython"))
    instructions = tuple(Instruction(*i) if isinstance(i, tuple) else Instruction(i) for i in raw)
    found = normalise._Normaliser((lambda: None).__code__, instructions).run()
    return [(i.name, i.arg, i.value) for i in found]


@pytest.mark.parametrize(
    ("following", "tests"),
    [("POP_TOP", True), ("RETURN_VALUE", True), ("POP_JUMP_IF_FALSE", False), ("UNARY_NOT", False)],
)
@pytest.mark.parametrize("bit", [0, 16])
def test_a_comparison_that_tests_its_result(monkeypatch, following, tests, bit):
    """The bit asks for a truth value; jumps and `not` take any value as one."""
    found = normalised(
        monkeypatch, ("COMPARE_OP", bit, "<"), "CACHE", (following, 0, None, 0 if "JUMP" in following else None)
    )
    names = [name for name, _, _ in found]
    assert names == ["COMPARE_OP", *(["TO_BOOL"] if tests and bit else []), following]
    assert found[0] == ("COMPARE_OP", 0, "<")


@pytest.mark.parametrize(
    ("version", "method"), [((3, 11), "LOAD_ATTR"), ((3, 12), "LOAD_METHOD"), ((3, 13), "LOAD_METHOD")]
)
def test_a_method_that_an_attribute_is_loaded_as(monkeypatch, version, method):
    """A bit of the argument says so from 3.12 on; 3.11 has an instruction of its own."""
    found = normalised(monkeypatch, ("LOAD_ATTR", 0, "a"), ("LOAD_ATTR", 1, "b"), version=version)
    assert found == [("LOAD_ATTR", 0, "a"), (method, 0, "b")]


def test_keyword_names_go_into_the_call(monkeypatch):
    """The constant that holds them is no instruction any more; what comes before and after stays."""
    found = normalised(
        monkeypatch,
        ("LOAD_FAST", 0, "f"),
        "PUSH_NULL",
        ("LOAD_FAST", 0, "x"),
        ("LOAD_CONST", 3, ("k",)),
        ("CALL_KW", 1),
    )
    assert found == [("LOAD_FAST", 0, "f"), ("PUSH_NULL", 0, None), ("LOAD_FAST", 0, "x"), ("CALL_KW", 1, ("k",))]


def test_what_a_function_has_goes_into_its_making(monkeypatch):
    """Closure and defaults, each an instruction of its own."""
    attributes = [("SET_FUNCTION_ATTRIBUTE", 8), ("SET_FUNCTION_ATTRIBUTE", 1)]
    found = normalised(monkeypatch, ("LOAD_CONST", 0, "code"), "MAKE_FUNCTION", *attributes, "RETURN_VALUE")
    assert found == [("LOAD_CONST", 0, "code"), ("MAKE_FUNCTION", 9, None), ("RETURN_VALUE", 0, None)]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ([("CALL_KW", 1)], "without constant keyword names"),
        ([("LOAD_FAST", 0, "names"), ("CALL_KW", 1)], "without constant keyword names"),
        ([("LOAD_CONST", 0, 1), ("SET_FUNCTION_ATTRIBUTE", 1)], "without MAKE_FUNCTION"),
        (["END_FOR"], "unexpected place"),
        (["NOP", "COPY_FREE_VARS"], "unexpected place"),
        ([("FOR_ITER", 0, None, 1), "POP_TOP"], "does not end in END_FOR"),
    ],
)
def test_other_shapes_are_refused(monkeypatch, raw, reason):
    """They are run by Python."""
    with pytest.raises(UnsupportedCodeError, match=reason):
        normalised(monkeypatch, *raw)
