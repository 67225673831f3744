"""Scalar nodes: identity, indirect indices, rewriting."""

import pickle

import torch

from flambeau_inductor.expr import Int, Symbol, free_symbols
from flambeau_inductor.ir import scalar as sc

F = torch.float32
I = Symbol("i0", bound=Int(8))


def test_equal_nodes_are_one_object():
    """Commutative operands of different form may come in any order; those that differ in their buffer stay as written."""
    a, b = sc.load("x", I, F), sc.load("y", I + 1, F)
    assert sc.op("add", a, b) is sc.op("add", b, a)
    assert sc.op("sub", a, b) is not sc.op("sub", b, a)
    c = sc.load("y", I, F)
    assert a.form == c.form and a.key != c.key
    assert sc.op("add", a, c).args[1:] == (a, c)


def test_constants_that_python_takes_for_equal_stay_apart():
    """0.0 and -0.0, 1 and True, NaN and NaN."""
    assert sc.constant(0.0, F) is not sc.constant(-0.0, F)
    assert sc.constant(True, torch.bool) is not sc.constant(1, torch.int64)
    assert sc.constant(float("nan"), F) is sc.constant(float("nan"), F)


def test_indirect_symbols_carry_their_scalar():
    """Loads behind an index are found, and rewritten with the rest."""
    index = sc.indirect(sc.load("idx", I, torch.int64), Int(5))
    node = sc.load("table", index * 4, F)
    assert {n.buffer for n in sc.loads(node)} == {"idx", "table"}
    moved = sc.substitute(node, {I: Symbol("k", bound=Int(8))})
    assert {s.name for n in sc.loads(moved) for s in free_symbols(n.index) if s.definition is None} == {"k"}


def test_transform_replaces_bottom_up():
    """A load is replaced wherever it stands."""
    a = sc.load("x", I, F)
    node = sc.op("mul", sc.op("exp", a), a)
    seen = sc.transform(node, lambda n: sc.constant(2.0, F) if n.kind == "load" else None)
    assert not sc.loads(seen)


def test_pickle_keeps_identity():
    """A node read back is the same object."""
    node = sc.op("add", sc.load("x", I, F), sc.constant(1.5, F))
    assert pickle.loads(pickle.dumps(node)) is node


def test_masks_fold_when_known():
    """A mask that is known needs no node."""
    a, b = sc.load("x", I, F), sc.constant(0.0, F)
    assert sc.masked(sc.constant(True, torch.bool), a, b) is a
    assert sc.masked(sc.constant(False, torch.bool), a, b) is b
