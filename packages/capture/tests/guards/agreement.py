"""In: guards and a frame's names. Out: whether they hold, which the native tree and its Python twin must say alike."""

from __future__ import annotations

from flambeau_capture.guards import check as twin
from flambeau_capture.guards.build import build
from flambeau_capture.guards.explain import describe, explain
from flambeau_capture.sources import source as src

X = src.Local("x")
Y = src.Local("y")


def agree(specs, f_locals, f_globals=None):
    """Both checks give one verdict; return it."""
    f_globals = f_globals or {}
    tree, _ = build(specs)
    native = tree.check(f_locals, f_globals)
    failing = [i for i, spec in enumerate(specs) if not twin.holds(spec, f_locals, f_globals)]
    assert (native == -1) == (failing == []), (specs, f_locals, native, failing)
    if failing:
        assert native in failing
        for index in failing:
            assert explain(specs[index], f_locals, f_globals)
    for spec in specs:
        assert describe(spec)
    return native == -1
