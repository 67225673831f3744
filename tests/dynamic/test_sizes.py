"""Sizes that change: static first, symbolic from the second size on, 0 and 1 on their own, results equal to eager each time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau_capture.errors import DynamicShapeError

from ..comparison import assert_same
from .counting import Counted, compilations, compilations_with_gradients, entries


def test_static_first_symbolic_second() -> None:
    """Two compilations serve every size above one."""
    counted = Counted(lambda x: (x * 2).sum() + x.shape[0])
    for size, graphs in ((3, 1), (3, 1), (4, 2), (5, 2), (1000, 2), (2, 2), (3, 2)):
        counted.check(torch.randn(size))
        assert counted.graphs == graphs


def test_zero_and_one_have_their_own_programs() -> None:
    """Broadcasting makes 1 special and emptiness makes 0 special; neither reuses the symbolic program."""
    assert (
        compilations(lambda x, y: (x + y) * x.shape[0], [(torch.randn(n), torch.randn(3)) for n in (3, 1, 3, 1)]) == 2
    )
    assert compilations(lambda x: x.cumsum(0) + x.flip(0), entries(3, 4, 1, 0, 6, 0, 1)) <= 4


def test_rows_that_lie_otherwise_in_memory() -> None:
    """Strides that were products of sizes still have to be: rows with gaps, one row for all, columns first."""
    wide = torch.randn(9, 14)
    layouts = [
        torch.randn(8, 6),
        torch.randn(9, 7),
        wide[:, :7],
        wide[:1, :7].expand(9, 7),
        wide[:, ::2],
        torch.randn(7, 9).t(),
    ]
    counted = Counted(lambda x: (x.square()[:, 1:] - x[:, :-1]).amin(-1))
    for first in layouts[:2] * 2 + layouts:
        counted.check(first)
    assert counted.graphs <= 6


def test_dynamic_true_and_false() -> None:
    """True: symbolic from the first call. False: a program for each size."""
    sizes = (3, 4, 6, 7)
    calls = [(torch.randn(n, n + 1),) for n in sizes]
    assert compilations(lambda x: x.sum(0) * x.shape[0], calls, dynamic=True) == 1
    assert compilations(lambda x: x.sum(0) * x.shape[0], calls, dynamic=False) == len(sizes)


def test_a_branch_on_a_size_compiles_each_side() -> None:
    """The guard of a branch separates programs; both sides are right."""
    calls = entries(3, 4, 20, 30, 5, 40)
    assert compilations(lambda x: x * 2 if x.shape[0] > 10 else x + 1, calls) <= 3


SHAPES: list[tuple[str, Callable[..., Any], list[tuple[Any, ...]], int]] = [
    ("cat-view", lambda x, y: torch.cat([x, y, x]).view(-1, 2).t().reshape(-1), [(torch.ones(n, 2), torch.ones(m, 2)) for n, m in ((3, 4), (5, 6), (7, 2), (2, 9))], 2),
    ("embedding", lambda i, w: F.embedding(i, w) @ w.t(), [(torch.arange(b * s).view(b, s) % 10, torch.ones(10, 4)) for b, s in ((2, 3), (3, 5), (4, 7), (5, 2))], 2),
    ("expand", lambda x: x[:, None].expand(-1, x.shape[0]).contiguous() * x, entries(3, 4, 6, 7), 2),
    ("arange", lambda x: x + torch.arange(x.shape[0]) + torch.zeros(x.size(0)).sum(), entries(3, 4, 6, 7), 2),
    ("slices", lambda x: x[1:-1].sum() + x[::2].sum() + x[-1], entries(3, 4, 6, 7), 3),
    ("strided", lambda x: (x * 2).t(), [(torch.arange(n * m * 1.0).view(n, m).t(),) for n, m in ((3, 2), (4, 3), (5, 4))], 2),
    ("halves", lambda x: x[: int(x.shape[0] * 0.5)] * 2, entries(4, 6, 8, 9), 5),
    ("softmax-mask", lambda x: torch.softmax(x.masked_fill(torch.ones(x.shape[-1], x.shape[-1]).tril() == 0, float("-inf")), -1), [(torch.ones(2, n, n),) for n in (3, 4, 6)], 2),
]  # fmt: skip


@pytest.mark.parametrize(("function", "calls", "most"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_operations_on_symbolic_sizes(function: Callable[..., Any], calls: list[tuple[Any, ...]], most: int) -> None:
    """Equal to eager for every size within the stated number of compilations."""
    assert compilations(function, calls) <= most


def test_attention_with_gradients() -> None:
    """Batch and length change together; the backward is symbolic as well."""

    def attention(q: Tensor) -> Tensor:
        heads = q.view(q.shape[0], q.shape[1], 2, 4).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).reshape(q.shape)

    calls = [(torch.randn(b, s, 8),) for b, s in ((2, 3), (3, 5), (4, 7), (2, 9))]
    assert compilations_with_gradients(attention, calls) <= 2


def test_training_with_a_changing_batch() -> None:
    """A last, smaller batch does not disturb training: the same parameters as eager after six steps."""
    ours = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    theirs = copy.deepcopy(ours)
    compiled = flambeau.compile(ours)
    pairs = [(m, torch.optim.SGD(p.parameters(), lr=0.1)) for m, p in ((compiled, ours), (theirs, theirs))]
    for size in (8, 8, 5, 3, 7, 8):
        x, target = torch.randn(size, 4), torch.randint(0, 3, (size,))
        losses = []
        for model, optimizer in pairs:
            optimizer.zero_grad()
            losses.append(F.cross_entropy(model(x), target))
            losses[-1].backward()
            optimizer.step()
        assert_same(losses[0], losses[1])
    assert_same(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-3, atol=1e-4)


def test_mark_dynamic() -> None:
    """One program from the start; specialising the dimension, or a size outside its range, is a clear error."""
    counted = Counted(lambda x: (x * 2).sum() + x.shape[0])
    x = torch.randn(5)
    flambeau.compiler.mark_dynamic(x, 0, min=2, max=9)
    counted.check(x)
    counted.check(torch.randn(7))
    assert counted.graphs == 1
    counted.check(torch.randn(20))
    branching = flambeau.compile(lambda x: x * 2 if x.shape[0] == 5 else x)
    with pytest.raises(DynamicShapeError, match="marked dynamic, but the program needs it to be 5"):
        branching(x)
    outside = torch.randn(12)
    flambeau.compiler.mark_dynamic(outside, 0, min=2, max=9)
    with pytest.raises(DynamicShapeError, match="is 12, outside the range"):
        flambeau.compile(lambda x: x * 3)(outside)


def test_mark_static_and_unbacked() -> None:
    """A static dimension is never symbolic; an unbacked one serves 1 too."""
    counted = Counted(lambda x: x.sum(0) / x.shape[0])
    for number, size in enumerate((3, 4, 5), 1):
        x = torch.randn(size, 2)
        flambeau.compiler.mark_static(x, 0)
        counted.check(x)
        assert counted.graphs == number
    unbacked = Counted(lambda x: x.sum(0) / x.shape[0])
    x = torch.randn(5, 2)
    flambeau.compiler.mark_unbacked(x, 0)
    unbacked.check(x)
    for size in (7, 1, 20):
        unbacked.check(torch.randn(size, 2))
    assert unbacked.graphs == 1


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_columns_of_no_rows(dynamic: bool | None) -> None:
    """A window of an empty tensor begins behind its end."""
    flambeau.compiler.reset()
    columns = flambeau.compile(lambda x: x[:, 0] @ x[:, 1], dynamic=dynamic)
    for rows in (0, 3, 1):
        assert columns(torch.ones(rows, 4)) == rows


def test_an_op_without_a_fake_result_breaks_the_graph_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """torch's own record of the traceback does not reach the user."""
    compiled = flambeau.compile(lambda x: torch.nn.functional.pad(x, (1, 1)) * 2)
    x = torch.ones(5, 4)
    flambeau.compiler.mark_unbacked(x, 0)
    assert compiled(x).sum() == 40
    assert capfd.readouterr().err == ""


@pytest.mark.falls_back("the recompile limit was reached")
def test_the_recompile_limit_holds_and_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond the limit calls run in eager; one warning says why."""
    counted = Counted(lambda x: x * 2, dynamic=False)
    for size in range(2, 20):
        counted.check(torch.randn(size))
    assert counted.graphs == 8
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("warning] recompile_limit ") == 1


def test_reset_forgets() -> None:
    """After a reset the same call compiles again."""
    counted = Counted(lambda x: x * 2)
    counted.check(torch.randn(3))
    flambeau.compiler.reset()
    counted.check(torch.randn(3))
    assert counted.graphs == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x[x.shape[0] // 2 :] + y,
        lambda x, y: y * x[: x.shape[0] // 2],
        lambda x, y: torch.where(y > 0, torch.tensor_split(x, 2)[1], y),
        lambda x, y: x[: x.shape[0] // 2].expand(y.shape) + 1,
        lambda x, y: torch.cat([x[: x.shape[0] // 2].expand(3, -1), y]),
        lambda x, y: x[: x.shape[0] // 2].squeeze(0) + y,
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_slice_that_is_one_and_broadcast(function: Callable[..., Tensor], dynamic: bool | None) -> None:
    """Half of two or three rows is one row, by a guard; half of four is not."""
    compiled = flambeau.compile(function, dynamic=dynamic)
    for rows in (2, 3, 2, 4, 5):
        x, y = torch.randn(rows, 7), torch.randn(rows, 7)
        results = []
        for call in (function, compiled):
            try:
                results.append(call(x, y))
            except RuntimeError:
                results.append(None)
        assert_same(results[1], results[0])


@pytest.mark.parametrize("index", [[0, 1, 0], [1]])
def test_sizes_of_constants(index: list[int]) -> None:
    """A tensor that the function makes is as long as it is, though arguments' sizes change."""

    def function(x: Tensor) -> Tensor:
        picked = x[..., torch.tensor(index)]
        return picked[: picked.shape[0] // 2].flatten()[:4]

    compiled = flambeau.compile(function, dynamic=True)
    for rows in (17, 9, 12):
        x = torch.randn(rows, 7)
        assert_same(compiled(x), function(x))
