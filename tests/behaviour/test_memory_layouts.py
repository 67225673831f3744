"""Tensors that do not simply lie in memory of their own: expanded, overlapping, conjugated ones that are written, and results that equal an
argument but must not be in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau

from .. import comparison


def one_row() -> Tensor:
    return torch.arange(6.0).view(1, 6).expand(4, 6)


def one_column() -> Tensor:
    return torch.arange(4.0).view(4, 1).expand(4, 6)


def overlapping() -> Tensor:
    return torch.arange(12.0).as_strided((4, 6), (2, 1))


def negated() -> Tensor:
    return torch.complex(torch.ones(4, 6), torch.arange(24.0).view(4, 6)).conj().imag


def every_other() -> Tensor:
    return torch.arange(96.0).view(8, 12)[::2, ::2]


def in_place(x: Tensor) -> Any:
    return x.mul_(2).t()


def one_item(x: Tensor) -> Any:
    x[:, 1] = 3
    return x + 0


def through_views(x: Tensor) -> Any:
    x.t().add_(1)
    x[0].zero_()
    return x * 1


def outcome(function: Callable[..., Any], x: Tensor) -> Any:
    """The result and the memory of `x` afterwards, or that it raises."""
    try:
        result = function(x)
    except RuntimeError:
        return "raises"
    return result.clone(), x.clone()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [in_place, one_item, through_views])
@pytest.mark.falls_back("a tensor whose elements share memory is written", "a conjugated or negated view is written")
def test_writes_to_odd_tensors_are_eagers(program: Callable[..., Any], dynamic: bool) -> None:
    """In one compiled function, after an ordinary tensor: entries must not fit tensors that overlap."""
    compiled = flambeau.compile(program, dynamic=dynamic)
    for make in (every_other, one_row, one_column, overlapping, negated, every_other):
        found, wanted = outcome(compiled, make()), outcome(program, make())
        assert type(found) is type(wanted)
        if not isinstance(wanted, str):
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.falls_back("a tensor whose elements share memory is written")
def test_a_written_tensor_that_overlaps_is_no_graph() -> None:
    """`fullgraph` says so, and so does `explain`."""
    with pytest.raises(RuntimeError, match="elements share memory"):
        flambeau.compile(one_item, fullgraph=True)(one_column())
    (found,) = flambeau.explain(one_item)(one_column()).breaks
    assert found.code == "external-mutation"


UNCHANGED: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": torch.floor,
    "round": torch.round,
    "trunc": torch.trunc,
    "ceil": torch.ceil,
    "abs": torch.abs,
    "cat": lambda x: torch.cat([x]),
    "repeat": lambda x: x.repeat(1, 1),
    "roll": lambda x: x.roll(0, 0),
    "flip": lambda x: x.flip(()),
    "pad": lambda x: torch.nn.functional.pad(x, (0, 0)),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
    "nan_to_num": torch.nan_to_num,
    "select": lambda x: x[torch.arange(4)],
    "clone": torch.clone,
    "contiguous": torch.Tensor.contiguous,
    "add": lambda x: x + 0,
    "reshape": lambda x: x.reshape(4, 6),
    "detach": torch.detach,
    "tril": lambda x: x.tril(10),
    "maximum": lambda x: torch.maximum(x, x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_results_lie_where_eagers_do(dtype: torch.dtype) -> None:
    """In the argument's memory or in their own: the caller may write to either."""
    for name, function in UNCHANGED.items():
        x = torch.arange(24).view(4, 6).to(dtype)
        result, expected = flambeau.compile(function)(x), function(x)
        assert torch.equal(result, expected), name
        assert (result is x) == (expected is x), name
        assert (result.data_ptr() == x.data_ptr()) == (expected.data_ptr() == x.data_ptr()), name
        flambeau.compiler.reset()


def last_of_split(x: Tensor) -> Any:
    piece = (x + 0).split(2, 0)[-1]
    piece.view(-1)[::2] *= 3
    return piece


def unequal_pieces(x: Tensor) -> Any:
    rows = x.flatten() * 2
    first, second, third = rows.split([2, 5, rows.numel() - 7])
    third[::2].add_(1)
    second.copy_(second.flip(0))
    first += third.sum()
    return rows, first, second, third


def last_of_chunks(x: Tensor) -> Any:
    piece = (x * 2).chunk(3, 1)[-1]
    piece[:, 0].neg_()
    piece.t().add_(1)
    return piece, piece.sum()


@pytest.mark.parametrize("function", [last_of_split, unequal_pieces, last_of_chunks])
@pytest.mark.parametrize("dynamic", [None, True])
def test_writes_to_a_piece_smaller_than_the_others(function: Callable[[Tensor], Any], dynamic: bool | None) -> None:
    """Where a piece starts is told by the sizes of those before it."""
    compiled = flambeau.compile(function, dynamic=dynamic)
    for rows in (9, 7):
        x = torch.arange(rows * 5.0).view(rows, 5)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


def with_gaps(x: Tensor) -> Any:
    return torch.select_scatter(x[:, ::2], x[:, 0], 1, 1), x.new_empty_strided((2, 3), (7, 2)).fill_(1)


def laid_over_itself(x: Tensor) -> Any:
    return (x * 2).as_strided((3, 3), (1, 1), 2), x.new_empty_strided((2, 3), (1, 1)).zero_()


@pytest.mark.parametrize("program", [with_gaps, laid_over_itself])
def test_results_lie_as_eagers_do(program: Callable[..., Any]) -> None:
    x = torch.arange(48.0).view(6, 8)
    (ours, tensors), (theirs, wanted) = (
        comparison.outcome(call, [x], "plain") for call in (flambeau.compile(program), program)
    )
    assert ours == theirs
    comparison.assert_same(tensors, wanted)


@pytest.mark.parametrize("symbol", ["<", "<=", "==", "!=", ">", ">="])
def test_a_parameter_is_asked_first_by_a_comparison(symbol: str) -> None:
    """Its class is under the other operand's, and the first operand's layout is the result's."""
    names: dict[str, Any] = {}
    exec(f"def program(x, w):\n    return x {symbol} w, w {symbol} x, 2 {symbol} w", names)
    x, w = torch.arange(6.0).view(3, 2).t(), torch.nn.Parameter(torch.ones(2, 3).half())
    found, wanted = flambeau.compile(names["program"], backend="aot_eager")(x, w), names["program"](x, w)
    comparison.assert_same(found, wanted)
    assert [part.stride() for part in found] == [part.stride() for part in wanted] == [(3, 1), (3, 1), (3, 1)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_dropout_of_nothing_is_its_argument(dynamic: bool) -> None:
    """While it is traced too, where sizes are symbolic."""

    def program(x: Tensor) -> Any:
        kept, still = F.dropout(x, 0.5, training=False), torch.dropout(x, 0.0, True)
        return kept + 1, kept is x, still is x, kept.stride()

    found, wanted = (
        run(every_other()) for run in (flambeau.compile(program, backend="aot_eager", dynamic=dynamic), program)
    )
    comparison.assert_same(found, wanted)
    assert found[1:] == (True, True, (24, 2))


@pytest.mark.parametrize(
    "view", [Tensor.conj, torch.view_as_real, lambda x: x.imag, lambda x: x.conj().imag, Tensor.diagonal]
)
def test_an_argument_is_a_view_of_what_was_written_since(view: Callable[[Tensor], Tensor]) -> None:
    def gradient(function: Callable[[Tensor], Tensor]) -> Tensor:
        leaf = torch.arange(12.0).reshape(3, 4).to(torch.complex64).requires_grad_()
        whole = leaf * 1
        part = view(whole)
        whole.mul_(2)
        function(part).abs().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    def double(part: Tensor) -> Tensor:
        return part * 2

    torch.testing.assert_close(gradient(flambeau.compile(double)), gradient(double))
