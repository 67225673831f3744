"""Members of enums whose special methods the program wrote, replaces or adds between two calls: each operator and function asks them every time."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import heapq
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

#: Special method -> what it gives of a number that changes, and what asks for it.
ASKED: dict[str, tuple[Callable[..., Any], list[Callable[[Any], Any]]]] = {
    "__str__": (lambda m: f"s{STATE[0]}", [str, lambda m: f"{m}", lambda m: operator.mod("%s", m), "{}".format, lambda m: f"{[m]}{m!s:>5}"]),
    "__repr__": (lambda m: f"é{STATE[0]}", [repr, ascii, lambda m: f"{m!r}", lambda m: operator.mod("%r", m), lambda m: str([m]), lambda m: str({m: 1})]),
    "__format__": (lambda m, spec: f"f{STATE[0]}{spec}", [lambda m: f"{m:x}", lambda m: format(m, "y"), "{:>5}".format]),
    "__add__": (lambda m, other: STATE[0], [lambda m: m + 1, lambda m: functools.reduce(operator.add, [m, m]), lambda m: sum([m, m])]),
    "__radd__": (lambda m, other: STATE[0], [lambda m: 1 + m, lambda m: 1.5 + m, lambda m: sum([m])]),
    "__iadd__": (lambda m, other: STATE[0], [lambda m: operator.iadd(m, 1)]),
    "__or__": (lambda m, other: STATE[0], [lambda m: m | m]),
    "__mod__": (lambda m, other: STATE[0], [lambda m: m % 2]),
    "__rmod__": (lambda m, other: STATE[0], [lambda m: 5 % m, lambda m: operator.mod("%s", m)]),
    "__rmul__": (lambda m, other: [STATE[0]], [lambda m: 2 * m, lambda m: [1] * m]),
    "__neg__": (lambda m: STATE[0], [lambda m: -m]),
    "__invert__": (lambda m: STATE[0], [lambda m: ~m]),
    "__eq__": (lambda m, other: STATE[0] > 1, [lambda m: m == 1, lambda m: m != 1, lambda m: m in [1, 2], lambda m: [3, m].index(m), lambda m: {1: m} == {1: 1}, lambda m: collections.deque([m]) == collections.deque([1])]),
    "__ne__": (lambda m, other: STATE[0] > 1, [lambda m: m != 1]),
    "__lt__": (lambda m, other: STATE[0] > 1, [lambda m: m < 3, lambda m: sorted([m, m]), lambda m: (m, 1) < (3, 2), lambda m: max(m, m), lambda m: heapq.nsmallest(1, [m, m])]),
    "__hash__": (lambda m: STATE[0], [hash, lambda m: {m: 1}[m], lambda m: m in {m}, lambda m: hash((m, 1))]),
    "__bool__": (lambda m: STATE[0] > 1, [bool, lambda m: not m, lambda m: 1 if m else 2, lambda m: all([m])]),
    "__len__": (lambda m: STATE[0], [len, bool]),
    "__iter__": (lambda m: iter([STATE[0], 2]), [list, lambda m: [*m], sum, lambda m: dict.fromkeys(m), lambda m: 1 in m]),
    "__contains__": (lambda m, other: STATE[0] > 1, [lambda m: 3 in m]),
    "__getitem__": (lambda m, place: STATE[0], [lambda m: m[0]]),
    "__call__": (lambda m, *args: STATE[0], [lambda m: m(), lambda m: list(map(m, [1])), callable]),
    "__index__": (lambda m: STATE[0], [operator.index, lambda m: "abcdefg"[m], lambda m: [1, 2, 3][m:], range, lambda m: torch.ones(m).shape]),
    "__float__": (lambda m: float(STATE[0]), [float, math.sqrt]),
    "__round__": (lambda m, *args: STATE[0], [round]),
    "__copy__": (lambda m: STATE[0], [copy.copy]),
    "__deepcopy__": (lambda m, memo: STATE[0], [copy.deepcopy, lambda m: copy.deepcopy([m])]),
    "extra": (lambda m: STATE[0], [lambda m: m.extra(), lambda m: hasattr(m, "extra"), lambda m: getattr(m, "extra", int)()]),
    "upper": (lambda m: STATE[0], [lambda m: m.upper()]),
}  # fmt: skip
STATE = [1]


def _class(kind: str, members: dict[str, Any]) -> Any:
    bases: dict[str, Any] = {
        "plain": (enum.Enum,),
        "text": (str, enum.Enum),
        "integer": (enum.IntEnum,),
    }
    namespace = enum.EnumType.__prepare__("Made", bases[kind])
    namespace["A"], namespace["B"] = ("a", "b") if kind == "text" else (1, 2)
    for name, member in members.items():
        namespace[name] = member
    return enum.EnumType("Made", bases[kind], namespace)


def _told(function: Callable[..., Any], *args: Any) -> tuple[str, list[int]]:
    try:
        answer = repr(function(*args)[1])
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    return answer, list(STATE)


@pytest.mark.parametrize("kind", ["plain", "text", "integer"])
@pytest.mark.parametrize("name", list(ASKED))
@pytest.mark.parametrize("change", ["what it reads", "the method", "a method that was not there"])
@pytest.mark.judges_itself
def test_special_methods(name: str, kind: str, change: str) -> None:
    gives, asking = ASKED[name]
    for place, ask in enumerate(asking):
        STATE[0] = 1
        made = _class(kind, {} if change == "a method that was not there" else {name: gives})
        member = made.A

        def program(t: torch.Tensor, ask: Any = ask, member: Any = member) -> tuple[torch.Tensor, Any]:
            return t + 1, ask(member)

        compiled = make_region(program, eager)
        for call in range(3):
            assert _told(compiled, torch.ones(2)) == _told(program, torch.ones(2)), (place, call)
            if change == "what it reads":
                STATE[0] += 1
            elif call == 0:
                setattr(made, name, lambda m, *args: (STATE.__setitem__(0, 5), gives(m, *args))[1])
            elif name in vars(made):
                delattr(made, name)


def test_members_given_to_what_has_no_hash() -> None:
    made = _class("integer", {})

    def program(t: torch.Tensor) -> tuple[torch.Tensor, Any]:
        by_number = functools.cmp_to_key(lambda a, b: b - a)
        return t + 1, (sorted([made.A, 3, made.B], key=by_number), by_number(made.A) < by_number(2))

    assert _told(make_region(program, eager), torch.ones(2)) == _told(program, torch.ones(2))
