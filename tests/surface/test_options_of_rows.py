"""The option by which a row's result has the same bits however many rows there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import flambeau
from flambeau.errors import InvalidOption
from flambeau.options import resolve
from flambeau.stages import resolve_stages

from .rows import calls

OPTION = {"batch_invariant": True}
WIDTH, HEADS, LENGTH, MOST = 24, 2, 9, 33


class Block(nn.Module):
    """What a transformer is made of; a column for each row, and a number for each element of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.operands, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 53), nn.Linear(53, WIDTH)
        self.gate, self.head = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 7)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Shares of classes, and two reductions."""
        batch = x.shape[0]
        parts = self.operands(self.first(x)).view(batch, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.joined(attended.transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        x = x + self.down(functional.gelu(self.up(self.second(x))))
        x = x * torch.sigmoid(self.gate(x))
        return torch.softmax(self.head(x), -1), torch.logsumexp(x, (1, 2)), x.mean(1).pow(2).sum(-1)


def _results(function: Callable[..., Any], x: Tensor) -> list[Tensor]:
    """The results, and the gradient of the rows."""
    given = x.clone().requires_grad_()
    found = function(given)
    (slope,) = torch.autograd.grad(sum((part.float() ** 2).sum() for part in found), given)
    return [*(part.detach() for part in found), slope]


@calls("options", "batch_invariant")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_the_same_however_many_there_are(dtype: torch.dtype) -> None:
    """A program for each number of rows, and one for any number: forward and gradients of the rows, beside those of eager."""
    torch.manual_seed(0)
    block = Block().to(dtype)
    x = (3 * torch.randn(MOST, LENGTH, WIDTH)).to(dtype)

    def compiled(dynamic: bool | None) -> Callable[..., Any]:
        return flambeau.compile(block, dynamic=dynamic, fullgraph=True, options=OPTION)

    of_any_size = compiled(None)

    def for_any(x: Tensor) -> Any:
        """Of the sizes only the number of rows is open: each more makes each kernel longer. One row has a program of its own."""
        if len(x) > 1:
            flambeau.compiler.mark_dynamic(x, 0)
        return of_any_size(x)

    whole, eager = _results(compiled(False) if dtype is torch.float32 else for_any, x), _results(block, x)
    exact = _results(_in_double(block), x.double())
    for ours, theirs, right in zip(whole, eager, exact, strict=True):
        assert (ours - right).abs().max() <= 2 * (theirs - right).abs().max() + 1e-6 * right.abs().max()
    if dtype is torch.float32:
        alone = _results(compiled(False), x[:1])
        assert all(map(torch.equal, alone, (part[:1] for part in whole)))
    threads = torch.get_num_threads()
    try:
        for rows in (MOST, *range(1, 18)):
            torch.set_num_threads(1 + rows % 2)
            found = _results(for_any, x[:rows])
            assert all(map(torch.equal, found, (part[:rows] for part in whole)))
    finally:
        torch.set_num_threads(threads)


def _in_double(block: Block) -> Block:
    copy = Block().double()
    copy.load_state_dict({name: value.double() for name, value in block.state_dict().items()})
    return copy


def _adds_rows_to_its_input(x: Tensor) -> None:
    x.scatter_reduce_(0, torch.zeros_like(x, dtype=torch.int64), x + 1, "sum")


def _determinant_in_a_branch(x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, torch.linalg.det, lambda x: x.sum((1, 2)), (x,))
    return found


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x: torch.conv1d(x, torch.ones(3, 4, 2)), (2, 4, 8)),
        (torch.rand_like, (4, 4)),
        (torch.linalg.inv, (2, 3, 3)),
        (_adds_rows_to_its_input, (4, 4)),
        (lambda x: torch.multinomial(x, 2), (4, 4)),
        (lambda x: x[torch.randperm(x.shape[0])], (4, 4)),
        (_determinant_in_a_branch, (2, 3, 3)),
    ],
)
def test_what_only_a_library_computes_is_refused(function: Callable[..., Any], given: tuple[int, ...]) -> None:
    with pytest.raises(InvalidOption, match="batch_invariant: aten") as told:
        flambeau.compile(function, options=OPTION)(torch.ones(given))
    assert "leave the option out" in told.value.hint


def test_a_branch_is_as_good_as_what_is_in_it() -> None:
    def function(x: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(x.sum() > 0, lambda x: x @ x.t(), torch.sin, (x,))
        return chosen

    compiled = flambeau.compile(function, fullgraph=True, options=OPTION)
    for x in (torch.ones(3, 3), -torch.ones(3, 3)):
        torch.testing.assert_close(compiled(x), function(x))


def test_nothing_is_chosen_by_size() -> None:
    """What goes with the option, whatever else is asked for."""
    config = resolve_stages(resolve(None, {**OPTION, "max_autotune": True, "numerics": "fast"})).inductor
    assert config.batch_invariant and config.numerics == "faithful"
    assert not (config.max_autotune or config.split_reductions or config.pattern_matcher or config.batch_fusion)
