"""Attributes of modules that are stored and deleted inside: what the module's tables say in the same frame and after, and what is refused.

`nn.Module` keeps parameters, buffers and submodules in tables of their own: `Sequential` and `named_parameters()` read those, `m.name` as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau


class Host(nn.Module):
    """One name of each kind."""

    in_class = 3

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_parameter("no_bias", None)
        self.register_buffer("mean", torch.ones(3))
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.child = nn.Linear(3, 3)
        self.count = 1
        self.chain = nn.Sequential(nn.Linear(3, 3), nn.Tanh())


NAMES = ("weight", "no_bias", "mean", "hidden", "child", "count", "in_class", "new")
VALUES = ("PARAMETER", "BUFFER", "MODULE", "x * 2", "None", "5")
STATEMENTS = (
    *(f"m.{name} = {value}" for name, value in itertools.product(NAMES, VALUES)),
    *(f"del m.{name}" for name in NAMES),
    # What is stored in front of a table's entry, which nothing looked at before.
    *(f"object.__setattr__(m, {name!r}, {value})" for name, value in itertools.product(("weight", "mean", "new"), VALUES)),
    "m.chain[0] = MODULE", "m.chain.append(MODULE)", "del m.chain[1]", "m.chain.insert(0, MODULE)", "m.chain.extend([MODULE])",
    "m.add_module('new', MODULE)", "m.register_buffer('new', x * 2)", "m.register_parameter('no_bias', PARAMETER)",
)  # fmt: skip
OBSERVED = (
    "[k for k, _ in m.named_parameters()], [k for k, _ in m.named_buffers()], [k for k, _ in m.named_children()], sorted(m._modules), "
    "sorted(m._buffers), m.chain(x), len(m.chain), getattr(m, 'count', 7), sorted(m._non_persistent_buffers_set)"
)


def _program(statement: str) -> tuple[Callable[..., Any], Host]:
    torch.manual_seed(0)
    space: dict[str, Any] = {
        "PARAMETER": nn.Parameter(torch.full((3,), 2.0)), "BUFFER": nn.Buffer(torch.full((3,), 3.0)), "MODULE": nn.Linear(3, 3),
    }  # fmt: skip
    lines = (
        "def f(m, x):",
        " y = m.child(x) if hasattr(m, 'child') and m.child is not None else x",
        f" {statement}",
        f" return y, {OBSERVED}",
    )
    exec("\n".join(lines), space)
    return space["f"], Host()


def _outcome(function: Callable[..., Any], host: Host) -> list[Any]:
    seen: list[Any] = []
    for _ in range(2):
        try:
            seen.append(_plain(function(host, torch.arange(3.0))))
        except (TypeError, AttributeError, LookupError, RuntimeError) as error:
            seen.append((type(error).__name__, str(error)))
        seen.append(sorted(host.state_dict()))
        seen.append(
            sorted((name, type(value).__name__) for name, value in vars(host).items() if not name.startswith("_"))
        )
    return seen


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.round(value.detach(), decimals=4).tolist()
    if isinstance(value, nn.Module):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value


@pytest.mark.parametrize("statement", STATEMENTS)
def test_tables_follow(statement: str) -> None:
    function, host = _program(statement)
    expected = _outcome(function, host)
    function, host = _program(statement)
    assert _outcome(flambeau.compile(function), host) == expected


@pytest.mark.judges_itself
@pytest.mark.parametrize(
    ("name", "there"), [("weight", torch.full((2, 2), 7.0)), ("scale", torch.tensor(5.0)), ("inner", torch.nn.Tanh())]
)
def test_what_an_instance_itself_holds_goes_before_its_parameters_and_modules(name, there):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, 2))
            self.register_buffer("scale", torch.tensor(2.0))
            self.inner = torch.nn.ReLU()

        def forward(self, x):
            return self.inner(x @ self.weight) * self.scale

    module = Module()
    region = flambeau.compile(module, backend="eager")
    x = torch.ones(2, 2)
    before = module(x)
    assert torch.equal(region(x), before)
    object.__setattr__(module, name, there)
    assert not torch.equal(module(x), before)
    assert torch.equal(region(x), module(x))
    object.__delattr__(module, name)
    assert torch.equal(region(x), before)


@pytest.mark.judges_itself
@pytest.mark.parametrize("store", [setattr, object.__setattr__], ids=["assigned", "in the instance"])
@pytest.mark.parametrize("make", [lambda call: call, lambda call: flambeau.compile(call, backend="eager")])
@pytest.mark.parametrize("place", ["called", "inside", "hooked"])
def test_what_stands_in_the_place_of_a_modules_call_is_called(place, make, store):
    """`nn.Module.compile` puts something there."""
    inner = nn.ReLU()
    if place == "hooked":
        inner.register_forward_hook(lambda module, args, result: result + 100)
    module = nn.Sequential(inner, nn.ReLU())

    def f(x):
        return (inner(x) if place == "called" else module(x)) + 1

    x = torch.ones(2)
    region = flambeau.compile(f, backend="eager", fullgraph=True)
    for there in (None, make(lambda x: x * 5), make(lambda x: x * 7), None, make(inner._call_impl)):
        store(inner, "_compiled_call_impl", there)
        for _ in range(2):
            assert torch.equal(region(x), f(x))
