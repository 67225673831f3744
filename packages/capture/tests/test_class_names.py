"""Classes whose names are missing, are no text, or are properties of a metaclass: captured as any other, and no property is asked more often."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from both_ways import assert_equal, eager, outcome
from torch import nn

from flambeau_capture import make_region
from flambeau_capture.class_names import class_module, class_name, class_qualname, full_name, module_name, name_of

ASKED: list[str] = []


class Meta(type):
    @property
    def __name__(cls):
        ASKED.append("name")
        return "another"

    @property
    def __module__(cls):
        ASKED.append("module")
        return "elsewhere"


def _without_module(meta, base):
    return eval("meta('Own', base, {})", {"meta": meta, "base": base})


KINDS = {
    "no module": lambda base: _without_module(type, base),
    "properties of a metaclass": lambda base: Meta("Own", base, {}),
    "no module, properties of a metaclass": lambda base: _without_module(Meta, base),
    "a module that is no text": lambda base: type("Own", base, {"__module__": 7}),
    "a property for a module": lambda base: type("Own", base, {"__module__": property(lambda self: 3)}),
}
BASES = {"object": (), "dict": (dict,), "int": (int,), "ValueError": (ValueError,), "Module": (nn.Module,)}


def _entered(t, o):
    with o:
        return t


def _raised(t, o):
    raise o


USES = (
    lambda t, o: (t + 1, type(type(o)()) is type(o)),
    lambda t, o: (t + 1, isinstance(o, type(o)), issubclass(type(o), dict), bool(o)),
    lambda t, o: (t + 1, setattr(o, "stored", 3), o.stored),
    lambda t, o: o.stored + t,
    lambda t, o: o() + t,
    lambda t, o: o + t,
    lambda t, o: t + o,
    lambda t, o: t[o],
    lambda t, o: o[1] + t,
    lambda t, o: (t, -o),
    lambda t, o: (t, len(o)),
    lambda t, o: (t, list(o)),
    lambda t, o: (t, o == 3, o != o),
    lambda t, o: (t + 1, copy.copy(o) is o),
    lambda t, o: (t + 1, str(type(o))),
    lambda t, o: (t + 1, type(o).__name__, type(o).__qualname__),
    lambda t, o: (t + 1, type(o).__module__),
    lambda t, o: (t + 1, type(o)(1, 2, 3, x=4)),
    lambda t, o: (t + 1, type(o)(x=4)),
    lambda t, o: delattr(o, "missing"),
    _entered,
    _raised,
)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", KINDS)
def test_used_as_any_other(kind, base):
    for use in USES:
        told = []
        cls = KINDS[kind](BASES[base])
        for function in (use, make_region(use, eager, suppress_errors=False)):
            ASKED.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                answer = outcome(function, torch.ones(2), cls())
            told.append((answer, tuple(ASKED)))
        (expected, asked), (found, asked_captured) = told
        assert found[0] == expected[0], (found, expected)
        if expected[0] == "raised":
            assert found == expected
        else:
            assert_equal(_without_objects(found[1]), _without_objects(expected[1]))
        assert asked_captured == asked


def _without_objects(result):
    items = result if isinstance(result, tuple) else (result,)
    return tuple(item if type(item) in (torch.Tensor, int, bool, str) else type(item) is not type for item in items)


def test_what_they_are_called():
    odd = _without_module(Meta, ())
    assert (class_name(odd), class_qualname(odd), class_module(odd), full_name(odd)) == ("Own", "Own", "", "Own")
    assert (name_of(odd), module_name(odd), ASKED.clear()) == ("Own", None, None)
    assert full_name(nn.Linear) == "torch.nn.modules.linear.Linear"
    assert (name_of(len), module_name(len), name_of(3)) == ("len", "builtins", "3")
    assert ASKED == []
