"""Compiled modules: same class, same state, same names; copies and pickles compile themselves again."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

import flambeau
from flambeau.compile import compile_recorded
from flambeau.module import compiled_module, original_of
from flambeau.records import Recorder


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def twin(model: nn.Module) -> tuple[nn.Module, list[Any]]:
    calls: list[Any] = []

    def region(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return model(*args, **kwargs)

    return compiled_module(model, region, {"fullgraph": True}, flambeau.compile), calls


def test_state_is_shared_and_unprefixed() -> None:
    """Keys are the original's; a write through either is seen through the other."""
    model = Net()
    compiled, _ = twin(model)
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == list(model.state_dict()) == ["count", "linear.weight", "linear.bias"]
    compiled.extra = 5
    assert model.extra == 5
    model.linear = nn.Linear(3, 4)
    assert compiled.linear is model.linear
    compiled.train(False)
    assert not model.training
    assert type(compiled).__name__ == "Net"


def test_calls_go_through_the_region() -> None:
    """The twin's call does, the original's does not."""
    model = Net()
    compiled, calls = twin(model)
    x = torch.ones(1, 3)
    torch.testing.assert_close(compiled(x), model(x))
    assert len(calls) == 1
    assert original_of(compiled) is model


def test_load_state_dict_keeps_names() -> None:
    """A checkpoint of the plain module loads into the compiled one and back."""
    model, other = Net(), Net()
    compiled, _ = twin(model)
    compiled.load_state_dict(other.state_dict())
    torch.testing.assert_close(OrderedDict(model.state_dict()), OrderedDict(other.state_dict()))


def test_deepcopy_and_pickle_compile_again() -> None:
    """Both give a compiled module with its own state and an equal result."""
    model = Net()
    compiled = flambeau.compile(model, backend="eager")
    x = torch.ones(2, 3)
    expected = model(x)
    for duplicate in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert original_of(duplicate) is not duplicate
        assert original_of(duplicate) is not model
        torch.testing.assert_close(duplicate(x), expected)
        duplicate.linear.weight.data.zero_()
    torch.testing.assert_close(compiled(x), expected)


def test_forward_is_compiled_and_runs_no_hooks() -> None:
    """As `module.forward` of a plain module; its signature stays, one that stands on the object wins."""
    model, records = Net(), Recorder()
    compiled = compile_recorded(model, records, backend="eager")
    model.register_forward_hook(lambda module, args, result: result + 1)
    x = torch.ones(2, 3)
    torch.testing.assert_close(compiled.forward(x), model.forward(x))
    torch.testing.assert_close(compiled(x), model.forward(x) + 1)
    assert len(records.graphs) == 2
    assert list(inspect.signature(compiled.forward).parameters) == ["x"]
    model.forward = lambda x: x * 3
    torch.testing.assert_close(compiled.forward(x), x * 3)


def test_a_copy_is_recorded_too() -> None:
    """It compiles as its original did, into the same record."""
    records = Recorder()
    compiled = compile_recorded(Net(), records, backend="eager")
    copy.deepcopy(compiled)(torch.ones(2, 3))
    assert len(records.graphs) == 1
