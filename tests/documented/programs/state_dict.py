"""Saving and loading what is compiled."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.documented.facts import documented, largest_difference
from torch import nn
from torch._dynamo.testing import CompileCounter


@documented("a compiled model shares its parameters with the original: one step of an optimizer is seen by both")
def shared_parameters() -> None:
    model = nn.Linear(4, 2)
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(3, 4)
    compiled(x)
    with torch.no_grad():
        model.weight.add_(1)
    assert torch.equal(compiled(x), model(x))
    assert next(iter(compiled.parameters())) is model.weight


@documented("the state of the original is saved, loaded into a new model, and that one is compiled")
def saved_and_loaded(folder: Path) -> None:
    model = nn.Linear(4, 2)
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(3, 4)
    expected = compiled(x)
    torch.save(model.state_dict(), folder / "model.pt")
    other = nn.Linear(4, 2)
    other.load_state_dict(torch.load(folder / "model.pt"))
    assert torch.equal(torch.compile(other, backend="eager")(x), expected)


@documented("a state loaded into the model behind a compiled one counts at the next call, without a recompile")
def loaded_later() -> None:
    counter = CompileCounter()
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    compiled = torch.compile(model, backend=counter)
    x = torch.randn(3, 4)
    compiled(x)
    model.load_state_dict(other.state_dict())
    assert largest_difference(compiled(x), other(x)) < 1e-6
    assert counter.frame_count == 1
