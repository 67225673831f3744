"""Compiled modules: same class, same state, same names; copies and pickles compile themselves again."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import flambeau
from flambeau.compile import compile_recorded, rebuild
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

    return compiled_module(model, region, flambeau.compile, (rebuild, (model, {"fullgraph": True}))), calls


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


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    def right_inverse(self, x: Tensor) -> Tensor:
        return x / 2


def test_a_parametrisation_of_a_compiled_module_is_one_of_the_module() -> None:
    """It gives the object another class, of which original and twin are instances then; taking it away gives both their own back."""
    model, plain = nn.Linear(3, 3), nn.Linear(3, 3)
    plain.load_state_dict(model.state_dict())
    compiled, x = flambeau.compile(model, backend="eager"), torch.ones(2, 3)
    compiled(x)
    for module in (compiled, plain):
        parametrize.register_parametrization(module, "weight", Doubled(), unsafe=True)
    assert type(model).__name__ == type(compiled).__name__ == "ParametrizedLinear"
    assert repr(compiled) == repr(plain) and list(compiled.state_dict()) == list(plain.state_dict())
    plain.parametrizations["weight"].original.data.fill_(3)
    compiled.parametrizations["weight"].original.data.fill_(3)
    for module in (compiled, model):
        torch.testing.assert_close(module(x), plain(x))
        torch.testing.assert_close(module.weight, plain.weight)
    for module in (compiled, plain):
        parametrize.remove_parametrizations(module, "weight")
    assert type(model) is compiled.__class__ is nn.Linear
    torch.testing.assert_close(compiled(x), plain(x))


def test_a_parametrisation_of_the_original_is_seen_through_its_twin() -> None:
    """Its properties are there for who asks the twin."""
    model = nn.Linear(3, 3)
    compiled, _ = twin(model)
    parametrize.register_parametrization(model, "weight", Doubled())
    torch.testing.assert_close(compiled.weight, model.weight)
    assert type(compiled).__name__ == "ParametrizedLinear"


def test_a_twin_names_the_class_of_its_original() -> None:
    """As the original does; one that was given a class of its own names that."""
    model = Net()
    compiled, _ = twin(model)
    assert compiled.__class__ is Net and isinstance(compiled, Net)
    other = type("Other", (type(compiled),), {})
    compiled.__class__ = other
    assert compiled.__class__ is type(compiled) is other and type(model) is Net
