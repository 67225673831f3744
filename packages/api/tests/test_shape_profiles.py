"""A job's records are those of code, known again in every process."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

from flambeau.shape_profiles import ShapeProfile
from flambeau_runtime.cache import Store


def test_a_process_that_hashes_otherwise_finds_what_was_written(tmp_path: Path) -> None:
    """The order of a set of constants follows from the hashes of its texts; here, of numbers that fall into one place, from how it was made."""
    profile = ShapeProfile(Store(tmp_path), ("job",), ("job",), "", False)
    code = _code("lambda x: x in {'set'}")
    one, other = (_with_set(code, frozenset(numbers)) for numbers in ((0, 8), (8, 0)))
    assert one.co_consts == other.co_consts and repr(one.co_consts) != repr(other.co_consts)
    profile.write(one, {"sizes": [3]})
    assert profile.read(other) == [{"sizes": [3]}]
    assert not profile.read(_with_set(code, frozenset((0, 9))))


def test_the_places_of_constants_count(tmp_path: Path) -> None:
    """Code that differs in the order of its numbers alone is other code."""
    profile = ShapeProfile(Store(tmp_path), ("job",), ("job",), "", False)
    one, other = (_code(f"lambda x: x * {a} + {b}") for a, b in ((2, 3), (3, 2)))
    assert one.co_code == other.co_code
    profile.write(one, {"sizes": [3]})
    assert profile.read(one) and not profile.read(other)


def _code(text: str) -> CodeType:
    code: CodeType = eval(text).__code__
    return code


def _with_set(code: CodeType, numbers: frozenset[int]) -> CodeType:
    """The code with other numbers in place of its sets, also of one within a tuple."""
    nested = (1, numbers)
    return code.replace(co_consts=(*(numbers if isinstance(c, frozenset) else c for c in code.co_consts), nested))
