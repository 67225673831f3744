"""A call that eager refuses for shapes, strides or shared memory ends the graph; no call that eager takes does.

Operands of torch's own operator database, and of programs that write to what they read, are empty, or have one element.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from both_ways import assert_equal, outcome, recorded
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from flambeau_capture.graph.trials import trial_of

EMPTY, ONE, MATRIX = torch.ones(0, 4), torch.ones(()), torch.ones(2, 1, 4)
INDEX = torch.tensor(0)
REFUSED = {
    "transform of nothing": lambda: torch.fft.fft(EMPTY.t()),
    "maximum of nothing": lambda: EMPTY.max(),
    "padding takes all": lambda: F.pad(EMPTY, (1, 1, 1, -1)),
    "dimension": lambda: ONE.view(1).sort(1),
    "strides": lambda: MATRIX.transpose(0, -1).double().view(-1),
    "products of strides": lambda: torch.kron(MATRIX.transpose(0, -1), MATRIX.transpose(0, -1)[:1]),
    "half complex": lambda: torch.complex(ONE.half(), ONE.half()).logical_and(ONE.half()),
    "own first row": lambda: (x := MATRIX.flatten() * 1).add_(x[1]),
    "own elements": lambda: (x := MATRIX.flatten() * 1).put_(INDEX, x[1]),
    "own sums": lambda: (x := MATRIX[:, 0] * 1).scatter_add_(1, torch.zeros_like(x, dtype=torch.int64), x),
    "itself, empty": lambda: (x := EMPTY * 1).index_put_((), x),
    "own shift": lambda: (x := MATRIX.flatten() * 1)[1:].mul_(x[:-1]),
    "own first row, large": lambda: (x := torch.ones(64, 64))[1:].add_(x[0, 0]).add_(x[:-1]),
    "own transpose, large": lambda: (x := torch.ones(64, 64)).copy_(x.t()),
    "maximum of nothing in much": lambda: torch.ones(64, 64)[:0].max(),
    "another mask, large": lambda: torch.zeros(40, 40).masked_scatter_(torch.ones(40, 41) > 0, torch.ones(40, 41)),
    "too many": lambda: torch.zeros(3).masked_scatter_(torch.ones(3, 3) > 0, ONE),
}
PASSES = {
    "rows apart": lambda: (x := MATRIX.squeeze(1) * 1)[0].add_(x[1]),
    "columns apart": lambda: (x := MATRIX.squeeze(1) * 1)[:, ::2].mul_(x[:, 1::2]),
    "columns apart, large": lambda: (x := torch.ones(64, 64))[:, ::2].mul_(x[:, 1::2]),
    "itself": lambda: (x := MATRIX * 1).mul_(x.view(2, 1, 4)),
    "nothing": lambda: EMPTY.sum() + F.pad(EMPTY, (1, 1)).numel(),
    "values decide": lambda: torch.linalg.inv(torch.eye(2)) @ torch.ones(3, 2)[torch.tensor([2, 1])],
    "counts": lambda: torch.repeat_interleave(ONE.view(1), torch.tensor([3]), output_size=3),
    "drawn": lambda: MATRIX.bernoulli() + torch.rand(4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_error_comes_from_its_place(name):
    """What came before it is done, the program can catch it, and an unread result does not hide it."""

    def program(seen, caught):
        seen.add_(1)
        try:
            REFUSED[name]()
        except (RuntimeError, IndexError):
            if not caught:
                raise
            return seen * 3
        return seen

    for caught in (True, False):
        graphs, theirs, mine = [], torch.zeros(2), torch.zeros(2)
        expected = outcome(program, theirs, caught)
        assert caught == (expected[0] != "raised")
        assert_equal(outcome(recorded(program, graphs), mine, caught), expected)
        assert torch.equal(mine, theirs) and mine[0] == 1
        assert graphs, "the write was not captured"


@pytest.mark.parametrize("view", [torch.as_strided, torch.as_strided_copy])
@pytest.mark.parametrize("loss", [F.mse_loss, torch.dot], ids=["larger", "as large"])
def test_the_memory_of_a_result_is_that_of_eager(loss, view):
    """How large it is only eager's kernel knows: a frame that looks beyond a result is left to it, with what it wrote."""

    def program(seen):
        found = loss(seen.mul_(2), seen.sign())
        return view(found, (4,), (1,))[0]

    graphs, theirs, mine = [], torch.tensor([1.0, -2.0, 3.0, 4.0, 5.0]), torch.tensor([1.0, -2.0, 3.0, 4.0, 5.0])
    assert_equal(outcome(recorded(program, graphs), mine), outcome(program, theirs))
    assert torch.equal(mine, theirs)
    assert not graphs


@pytest.mark.parametrize("name", PASSES)
def test_what_passes_is_one_graph(name):
    graphs = []
    captured = recorded(lambda: PASSES[name](), graphs, fullgraph=True)
    torch.manual_seed(3)
    expected = PASSES[name]()
    torch.manual_seed(3)
    assert_equal(captured(), expected)
    assert len(graphs) == 1


def _slow(part):
    return pytest.param(part, marks=pytest.mark.slow)


def _refused_samples(ops):
    """(calls that were asked for, names of those that were refused though eager takes them)."""
    asked, wrong = 0, []
    for op in ops:
        for dtype in {torch.float32, torch.int64, torch.complex64} & op.supported_dtypes("cpu"):
            for sample in op.sample_inputs("cpu", dtype):
                given = pytree.tree_map_only(torch.Tensor, torch.detach, ((sample.input, *sample.args), sample.kwargs))
                mode = FakeTensorMode()
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
                trial = trial_of("call_function", op.op, args, kwargs)
                try:
                    with mode:
                        result = op.op(*args, **kwargs)
                    op.op(*given[0], **given[1])
                except (RuntimeError, IndexError, TypeError, ValueError, AssertionError):
                    continue
                if trial is not None:
                    asked += 1
                    wrong += [op.name] if trial.refuses(result) else []
    return asked, wrong


@pytest.mark.parametrize("part", [slice(3, None, 300), *(_slow(slice(p, None, 40)) for p in range(40))], ids=str)
def test_no_sample_of_the_database_is_refused(part):
    asked, wrong = _refused_samples(op_db[part])
    assert asked > 10
    assert not wrong


@pytest.mark.parametrize("call", [torch.linalg.ldl_solve, torch.linalg.lu_solve])
def test_pivots_are_not_made_up(call):
    """LAPACK follows them without a look: to other memory, where they are no places of rows."""
    assert trial_of("call_function", call, (MATRIX[0], torch.zeros(4, dtype=torch.int32), MATRIX[0]), {}) is None
