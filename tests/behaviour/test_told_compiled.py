"""Where torch's own modules ask whether they are compiled, and would give other results then, they give those of eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import flambeau

from ..comparison import assert_same


def _padding(*rows: str) -> Tensor:
    """A mask: `x` is padding."""
    return torch.tensor([[letter == "x" for letter in row] for row in rows])


ENDS = [("...xx", "..xxx"), (".....", "..xxx")]


@pytest.mark.falls_back("layout torch.strided")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("checks", [True, False], ids=["checks the mask", "trusts the mask"])
@pytest.mark.parametrize("rows", ENDS, ids="-".join)
def test_padding_at_the_ends_is_zero(rows: tuple[str, ...], checks: bool) -> None:
    """The encoder computes with nested tensors then, which only plain Python does; not so with a history."""
    _same_encoded(rows, checks)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_other_padding_is_computed() -> None:
    """The encoder asks whether rows are padded on the right alone."""
    _same_encoded((".x...", "..xxx"), True)


def _same_encoded(rows: tuple[str, ...], checks: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), mask_check=checks).eval()
    compiled, x = flambeau.compile(encoder), torch.randn(2, 5, 8)
    mask = _padding(*rows)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert_same(compiled(x, src_key_padding_mask=mask), encoder(x, src_key_padding_mask=mask))


class Refuses(nn.Module):
    """Raises for three elements."""

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == 3:
            raise ValueError("three")
        return x + 1


class Catches(nn.Module):
    """Another way where the module raised."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Refuses()

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.inner(x)
        except ValueError:
            return x - 1


@pytest.mark.parametrize("everywhere", [False, True], ids=["own", "of all modules"])
def test_hooks_that_are_always_called_are(everywhere: bool) -> None:
    """Also those of a module that raises, what it raised being caught."""
    model, heard = Catches(), []
    register = nn.modules.module.register_module_forward_hook if everywhere else model.inner.register_forward_hook
    handle = register(lambda module, args, result: heard.append(type(module).__name__), always_call=True)
    try:
        compiled = flambeau.compile(model)
        for size in (2, 3, 2):
            expected, said = model(torch.ones(size)), heard.copy()
            heard.clear()
            assert_same(compiled(torch.ones(size)), expected)
            assert heard == said
            heard.clear()
    finally:
        handle.remove()


class Picks(nn.Module):
    """It raises for what the indices hold."""

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return x.sin()[at] + 1


def test_hooks_that_are_always_called_where_the_graph_raises() -> None:
    model, heard = Picks(), []
    model.register_forward_hook(lambda module, args, result: heard.append(result is None), always_call=True)

    def program(x: Tensor, at: Tensor) -> Tensor:
        return model(x * 2, at) * 2

    compiled = flambeau.compile(program, fullgraph=True)
    x = torch.ones(3)
    for at in (torch.tensor([0, 2]), torch.tensor([1, 1]), torch.tensor([1, 7]), torch.tensor([2, 0])):
        found = []
        for function in (program, compiled):
            heard.clear()
            try:
                found.append((function(x, at).tolist(), heard.copy()))
            except IndexError:
                found.append(("raised", heard.copy()))
        assert found[0] == found[1]
