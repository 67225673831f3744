"""Inputs that are given the contents of others, which are written in the same function: in eager, and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau

EXCHANGES = (
    "a[:] = b; b[0] = 1", "a.copy_(b.t()); b[0] = 1", "a.copy_(b[0]); b.add_(1)", "b.copy_(a); a.zero_()", "a.copy_(a.t().clone())",
    "t = a.clone(); a.copy_(b); b.copy_(t)", "t = torch.empty_like(a); t[:] = a; a[:] = b; b[:] = t", "a[:] = b; b[:] = c; c[:] = 9",
    "a.copy_(b); c.copy_(a); b.zero_(); a.zero_()", "t = c.clone(); c.copy_(a.t()); a.copy_(b); b.copy_(t)",
    "torch.add(b, 0, out=a); b.mul_(3)", "a.data.copy_(b); b.sub_(1)",
)  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_each_write_reads_what_was_there_before(exchange: str, backend: str) -> None:
    """Inputs that take the contents of others which are written too, in every order, and what was copied of them before."""
    for before in ("t = torch.empty_like(b); t.copy_(b)", "t = b.t().contiguous()"):
        space: dict[str, Any] = {"torch": torch}
        exec(f"def function(a, b, c):\n {before}\n {exchange}\n return t, a * 2, t.t()", space)
        mine, theirs = ([torch.arange(4.0).view(2, 2) + 10 * i for i in range(3)] for _ in range(2))
        found = flambeau.compile(space["function"], backend=backend)(*mine)
        torch.testing.assert_close((found, mine), (space["function"](*theirs), theirs))
