"""NumPy's objects that a call brings: guards on arrays and scalars."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from arrays import array, assert_same_arrays
from both_ways import outcome, recorded

pytestmark = pytest.mark.filterwarnings("ignore")


def _readonly():
    found = array("float64")
    found.flags.writeable = False
    return (found,)


def _one_twice():
    found = array("float64")
    return found, found


def _overlapping():
    found = array("float64", (5, 3))
    return found[:3], found[1:4]


KINDS = (
    lambda: (array("float64"),), lambda: (array("float64", (5, 3)),), lambda: (array("float64", (7, 3)),), lambda: (array("float32"),), lambda: (array("int64"),),
    lambda: (array("float64", order="F"),), lambda: (array("float64", order="K"),), _readonly, lambda: (array("float64").astype(">f8"),), lambda: (np.matrix(array("float64")),),
    lambda: (np.ma.array(array("float64")),), lambda: (array("float64", (4,)),), lambda: (np.float64(3),), lambda: (2.0,), lambda: (array("float64")[::-1],),
    lambda: (array("float64", (0, 3)),), lambda: (np.asarray(1.5),), lambda: (torch.ones(2),), lambda: (array(np.uint16),),
)  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_arrays_of_all_kinds_one_after_the_other(dynamic):
    graphs = []
    region = recorded(lambda a: a * 2 + 1, graphs, dynamic=dynamic, recompile_limit=len(KINDS))
    for make in KINDS:
        assert_same_arrays(region(*make()), make()[0] * 2 + 1)
    assert 6 <= len(graphs) <= 12


@pytest.mark.parametrize("dynamic", [None, True])
def test_arrays_that_are_one_or_share_memory(dynamic):
    def program(a, b):
        a += 1
        return a * b, a, b, a is b

    graphs = []
    region = recorded(program, graphs, dynamic=dynamic)
    for make in (
        lambda: (array("float64"), array("float64")),
        _one_twice,
        _overlapping,
        lambda: (array("float64"), array("float64", seed=3)),
    ):
        ours, theirs = make(), make()
        assert_same_arrays((region(*ours), *ours), (program(*theirs), *theirs))
    assert graphs


@pytest.mark.parametrize(
    "number",
    [
        np.float32(2.5),
        np.float64("nan"),
        np.int64(3),
        np.bool_(True),
        np.float16(2),
        np.complex64(2),
        np.uint16(3),
        2.5,
    ],
)
def test_scalars(number):
    """The very class and value are guarded; the scalar that a call brings is given back."""

    def program(x, s):
        return x * s, s + 1, s

    graphs = []
    region = recorded(program, graphs)
    x = torch.ones(3)
    for given in (np.float32(1.5), number, np.float32(1.5)):
        found = outcome(region, x, given)
        assert found[0] == "returned"
        assert_same_arrays(found[1][:2], program(x, given)[:2])
        assert found[1][2] is given
    assert graphs


def test_a_scalar_as_an_index_and_a_size():
    def program(x, i):
        return x[i], x[i:], x.reshape(i + 1, -1)

    graphs = []
    region = recorded(program, graphs, fullgraph=True)
    x = torch.arange(12.0).reshape(3, 4)
    for i in (np.int64(2), np.int64(0), np.int32(1), 1):
        assert_same_arrays(region(x, i), program(x, i))
    assert len(graphs) == 4


def test_a_table_of_the_program():
    """Its elements are read at each call; another array in its place is another graph where it is of another kind."""
    scope = {"table": np.linspace(0, 1, 5).astype(np.float32), "torch": torch}
    exec("def run(x):\n    return x * torch.from_numpy(table)", scope)
    graphs = []
    region = recorded(scope["run"], graphs, fullgraph=True)
    x = torch.ones(5)
    for change in (
        lambda: None,
        lambda: scope["table"].__setitem__(0, 7),
        lambda: scope.update(table=np.ones(5, "f4")),
        lambda: scope.update(table=np.ones(5)),
    ):
        change()
        assert_same_arrays(region(x), scope["run"](x))
    assert len(graphs) == 2


def test_sizes_that_change():
    """Arrays of other sizes are one more graph, whose sizes are symbols."""

    def program(x, y):
        return np.exp(-((x[:, None, :] - y[None, :, :]) ** 2).sum(-1) / 2), x.shape, x.size

    graphs = []
    region = recorded(program, graphs, fullgraph=True)
    for rows in (3, 5, 6, 9):
        given = array("float64", (rows, 2)), array("float64", (4, 2))
        assert_same_arrays(region(*given), program(*given))
    assert len(graphs) == 2
